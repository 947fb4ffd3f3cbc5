//! The arguments that hand runs to a scheduler.

use clap::{Args, ValueEnum};

/// Who starts the workers of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheduler {
    /// An array of workers, submitted by sbatch
    Slurm,
}

#[derive(Debug, Args)]
pub(crate) struct Launch {
    /// Submit an array of workers that take runs until none is missing, instead of running them here
    #[arg(long, value_enum, value_name = "SCHEDULER")]
    pub(crate) launch: Option<Scheduler>,

    /// With --launch: submit although workers of this folder are still in the queue
    #[arg(long, requires = "launch")]
    pub(crate) more: bool,

    /// Run again what failed before this moment, in seconds since 1970: what workers that start later are given in place of
    /// --retry-failed
    #[arg(long, hide = true, value_name = "SECONDS", conflicts_with = "retry_failed")]
    pub(crate) retry_failed_before: Option<f64>,
}
