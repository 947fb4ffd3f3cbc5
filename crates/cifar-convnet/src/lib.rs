//! The paper's ConvNet on CIFAR-10, from a TOML file to a run folder.
//!
//! ```text
//! Config -> Experiment (plan or request, architecture, steps)      before any data is read
//! Dataset, Experiment -> Session -> Summary, run folder            training
//! run folder -> findings                                           for anyone to check afterwards
//! ```
//!
//! The program `bandroot` is this library with arguments, tables and progress bars.

pub mod bad_argument;
pub mod machine;
pub mod files;
pub mod data;
pub mod convnet;
pub mod factorizations;
pub mod config;
pub mod experiment;
pub mod run;

#[cfg(test)]
mod fuzz;

pub use bad_argument::BadArgument;
