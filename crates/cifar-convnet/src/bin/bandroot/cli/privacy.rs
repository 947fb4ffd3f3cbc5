//! The arguments of the commands about what is promised and whether it holds.

use std::path::PathBuf;

use cifar_convnet::factorizations::MethodName;
use clap::Args;
use dp_train::plan::Sampling;

use super::AofCache;

/// An experiment, and what is to be different in it.
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// The config file (TOML)
    pub(crate) config: PathBuf,

    /// Override a key of the config: section.key=value
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Calibrate {
    /// The privacy loss to reach
    #[arg(long, required_unless_present = "noise_multiplier", conflicts_with = "noise_multiplier")]
    pub(crate) epsilon: Option<f64>,

    /// The noise multiplier to find epsilon for: noise over sensitivity, over the clip norm for poisson, over the largest
    /// column of C for cyclic-poisson
    #[arg(long)]
    pub(crate) noise_multiplier: Option<f64>,

    /// The probability with which epsilon may be exceeded
    #[arg(long)]
    pub(crate) delta: f64,

    /// How batches are made
    #[arg(long, value_enum, default_value = "fixed-order")]
    pub(crate) sampling: Sampling,

    /// Probability with which a step takes an example, for poisson; with which the step of its group does, for
    /// cyclic-poisson
    #[arg(long)]
    pub(crate) probability: Option<f64>,

    /// Number of steps n, for all but fixed-order
    #[arg(long)]
    pub(crate) steps: Option<usize>,

    /// How C is chosen, for balls-in-bins
    #[arg(long, value_enum)]
    pub(crate) method: Option<MethodName>,

    /// Diagonals of C, or of its inverse, as for factorize; for cyclic-poisson the number of groups
    #[arg(long)]
    pub(crate) bands: Option<usize>,

    /// Decay factor, for balls-in-bins
    #[arg(long, default_value_t = 1.0)]
    pub(crate) alpha: f64,

    /// Momentum, for balls-in-bins
    #[arg(long, default_value_t = 0.0)]
    pub(crate) beta: f64,

    /// Steps b of one epoch, each example in one of them, for balls-in-bins
    #[arg(long)]
    pub(crate) separation: Option<usize>,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// The experiment
    #[command(flatten)]
    pub(crate) config: ConfigFile,

    /// Options of the aof solver
    #[command(flatten)]
    pub(crate) aof: AofCache,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// The experiment
    #[command(flatten)]
    pub(crate) config: ConfigFile,

    /// Memory that the noise history may take, in MiB
    #[arg(long, value_name = "MIB")]
    pub(crate) memory_limit: Option<u64>,

    /// Options of the aof solver
    #[command(flatten)]
    pub(crate) aof: AofCache,

    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The folder of a run, with its privacy.json
    pub(crate) run: PathBuf,

    /// Also fail if the numbers hold but the noise seed was fixed, so that the run is not private
    #[arg(long)]
    pub(crate) require_private: bool,

    /// Read the training data too, and compare their SHA-256 with the one in the certificate
    #[arg(long)]
    pub(crate) data: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// The experiment
    #[command(flatten)]
    pub(crate) config: ConfigFile,

    /// Independent trials with and without the canary, each
    #[arg(long, default_value_t = 3_000_000)]
    pub(crate) trials: u64,

    /// Seed of the audit's noise
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// Options of the aof solver
    #[command(flatten)]
    pub(crate) aof: AofCache,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}
