//! A run: one experiment, trained in a folder of its own.

pub mod environment;
pub mod memory;
pub mod parameters;
pub mod evaluation;
pub mod metrics;
pub mod summary;
pub mod folder;
pub mod trained;
mod checkpoints;
pub mod verification;
mod binding;
pub mod commitment;
mod events;
mod state;
pub mod session;
