//! A run: one experiment, trained in a folder of its own.

pub mod environment;
pub mod memory;
pub mod parameters;
pub mod evaluation;
mod seen;
pub mod metrics;
pub mod summary;
pub mod folder;
pub mod trained;
mod checkpoints;
mod provenance;
pub mod commitment;
pub mod verification;
mod source;
mod start;
mod binding;
mod events;
mod feed;
mod private;
mod state;
pub mod session;
