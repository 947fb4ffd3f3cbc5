//! One file per command: arguments in, text or JSON out.

pub(crate) mod calibrate;
pub(crate) mod factorize;
pub(crate) mod plan;
pub(crate) mod train;
pub(crate) mod eval;
pub(crate) mod predict;
pub(crate) mod verify;
pub(crate) mod audit;
pub(crate) mod devices;
pub(crate) mod bench;
pub(crate) mod data;
pub(crate) mod results;
