//! `bandroot reproduce`: the paper's tables and figures, computed here and set beside it.

pub(crate) mod errors;

pub(crate) mod optimum;

pub(crate) mod runtimes;

pub(crate) mod accuracy;

mod trials;

mod tuned;

mod cost;

pub(crate) mod frontier;
