//! The arguments of every command.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use cifar_convnet::factorizations::MethodName;
use serde::Serialize;

mod bench;
mod data;
mod duration;
mod reproduce;

pub(crate) use bench::{Bench, BenchEngine, Preset};
pub(crate) use data::{Data, Describe, Export, Fetch, Show, Which};
pub(crate) use reproduce::{Accuracy, Errors, Format, Frontier, Reproduce, Runtimes};

/// Differentially private training with matrix-factorization noise
#[derive(Debug, Parser)]
#[command(name = "bandroot", version, max_term_width = 100, help_expected = true)]
pub(crate) struct Cli {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What `bandroot` says without a command.
pub(crate) const FIRST_STEPS: &str = "\
bandroot trains models with differential privacy: noise that is correlated over the steps, and a
certificate that anyone can check.

Train the paper's ConvNet privately on textures that are built in (a minute or two, no download):
  bandroot train configs/quickstart.toml

Then, for example:
  bandroot plan configs/quickstart.toml      what a config promises, before any data is read
  bandroot compare configs/quickstart.toml   all factorizations at the same privacy
  bandroot data fetch cifar10                CIFAR-10, for configs/cifar10-bsr.toml
  bandroot config-reference                  every key of a config

All commands: bandroot --help
";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Factorize the SGD workload A = BC, and print the sensitivity of C and the expected error
    Factorize(Factorize),
    /// Compute the paper's tables and figures and set them beside what is printed there
    #[command(subcommand)]
    Reproduce(Reproduce),
    /// Find the noise multiplier for (epsilon, delta), or epsilon for a noise multiplier
    Calibrate(Calibrate),
    /// Train privately, and leave a run folder that explains and proves itself
    Train(Train),
    /// Measure again how the model of a finished run does
    Eval(Eval),
    /// Train a grid of configs and seeds, until nothing is missing; many processes may share one folder
    Sweep(Sweep),
    /// Set everything that was recorded beside the paper: a web page, tables and figures
    Report(Report),
    /// Look after recorded results
    #[command(subcommand)]
    Results(Results),
    /// Show what a config promises, before any data is read
    Plan(Plan),
    /// Compare all factorizations for the same privacy
    Compare(Compare),
    /// Check the certificate of a run by a slow reference path; exit code 0 says yes, 1 says no
    Verify(Verify),
    /// Attack the noise of a config's plan, and bound its epsilon from below
    Audit(Audit),
    /// Measure how fast this machine computes private gradients
    #[command(subcommand)]
    Bench(Bench),
    /// Fetch, check, describe and show the data sets
    #[command(subcommand)]
    Data(Data),
    /// Print the reference page of the configs
    ConfigReference,
    /// Print a completion script for a shell
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
}

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

    /// The noise multiplier to find epsilon for
    #[arg(long)]
    pub(crate) noise_multiplier: Option<f64>,

    /// The probability with which epsilon may be exceeded
    #[arg(long)]
    pub(crate) delta: f64,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Train {
    /// The config file (TOML)
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub(crate) config: Option<PathBuf>,

    /// Override a key of the config: section.key=value
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub(crate) set: Vec<String>,

    /// Folder of the new run [default: runs/, the config's name and the time]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,

    /// Continue the run in this folder from its last checkpoint, bit by bit
    #[arg(long, value_name = "RUN_DIR")]
    pub(crate) resume: Option<PathBuf>,

    /// Options of the aof solver
    #[command(flatten)]
    pub(crate) aof: AofCache,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Eval {
    /// The folder of a finished run, with its config.toml and parameters.safetensors
    pub(crate) run: PathBuf,

    /// Which examples [default: those that the run was judged by]
    #[arg(long, value_enum)]
    pub(crate) split: Option<SplitName>,

    /// Write one line per example to this CSV file: its number, label, prediction and logits
    #[arg(long, value_name = "FILE")]
    pub(crate) logits: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// A part of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SplitName {
    /// The test examples
    Test,
    /// The training examples that data.validation held out: what comes out is covered by no guarantee
    Validation,
    /// The training examples: what comes out is covered by no guarantee
    Train,
}

#[derive(Debug, Args)]
pub(crate) struct Sweep {
    /// The file of the sweep (TOML): base, `[grid]`, seeds; for a choice of the best, `[select]` and `[halving]`
    pub(crate) sweep: PathBuf,

    /// Runs at a time; the threads are shared out among them
    #[arg(long, default_value_t = 1)]
    pub(crate) jobs: usize,

    /// Folder of the run folders; what is there is not run again [default: runs/ and the file's name]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Run again what failed before
    #[arg(long)]
    pub(crate) retry_failed: bool,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Folder of the records: every folder below it with config.toml and summary.json is a run
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(crate) results: PathBuf,

    /// Folder for the page, the tables and the figures [default: report in the folder of the records]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Print one JSON object that counts instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with recorded results.
#[derive(Debug, Subcommand)]
pub(crate) enum Results {
    /// Copy runs into a folder of results: their small files only, and nothing twice
    Import(Import),
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Run folders, or folders with run folders below them, such as that of a sweep
    #[arg(required = true, value_name = "RUN_DIR")]
    pub(crate) runs: Vec<PathBuf>,

    /// The folder to copy them to
    #[arg(long, value_name = "DIR", default_value = "results/runs")]
    pub(crate) into: PathBuf,
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

    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The folder of a run, with its privacy.json
    pub(crate) run: PathBuf,

    /// Say no also if the numbers hold but the noise seed was fixed, so that the run is not private
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

/// The completion script for one shell.
pub(crate) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "bandroot", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }
}
