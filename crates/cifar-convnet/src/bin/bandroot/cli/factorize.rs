//! The arguments of `bandroot factorize`, and of the solver wherever it is used.

use std::path::PathBuf;

use cifar_convnet::factorizations::MethodName;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Factorize {
    /// How to choose C
    #[arg(long, value_enum)]
    pub(crate) method: MethodName,

    /// Decay factor: the weights are multiplied by it in every step, in (0, 1]
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) alpha: f64,

    /// Momentum: the buffer is multiplied by it in every step, in [0, alpha)
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) beta: f64,

    /// Number of steps n
    #[arg(long)]
    pub(crate) steps: usize,

    /// Number of diagonals p of C for bsr, toeplitz, normalised-sqrt and aof [default: the separation], of
    /// its inverse for bisr and inverse-toeplitz [default: 4]
    #[arg(long)]
    pub(crate) bands: Option<usize>,

    /// Share of the row before that lambda-cgd takes back, in [0, 1] [default: the best one]
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) lambda: Option<f64>,

    /// Most buffers of blt [default: 3]
    #[arg(long)]
    pub(crate) buffers: Option<usize>,

    /// Least distance b between two uses of one example [default: the steps, single participation]
    #[arg(long)]
    pub(crate) separation: Option<usize>,

    /// Most uses k of one example [default: steps / separation, which must be whole]
    #[arg(long)]
    pub(crate) participations: Option<usize>,

    /// File with one learning rate per line, one line per step [default: constant]
    #[arg(long, value_name = "FILE")]
    pub(crate) learning_rates: Option<PathBuf>,

    /// Options of the aof solver
    #[command(flatten)]
    pub(crate) aof: Aof,

    /// Write C to this CSV file: its first column if it is Toeplitz, else its rows by lag
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// How the approximately optimal factorization is solved.
#[derive(Debug, Args)]
pub(crate) struct Aof {
    /// Certified relative gap to the optimal expected error at which the aof solver stops
    #[arg(long, default_value_t = 1e-4, allow_negative_numbers = true)]
    pub(crate) tolerance: f64,

    /// Iterations that the aof solver may take
    #[arg(long, default_value_t = 1000)]
    pub(crate) max_iterations: usize,

    /// Where solutions are kept
    #[command(flatten)]
    pub(crate) cache: AofCache,
}

/// Where solved factorizations are kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct AofCache {
    /// Folder of solved factorizations [default: `BANDROOT_CACHE`, else bandroot in the user's cache]
    #[arg(long, value_name = "DIR", conflicts_with = "no_cache")]
    pub(crate) cache: Option<PathBuf>,

    /// Solve again, and keep nothing
    #[arg(long)]
    pub(crate) no_cache: bool,
}
