//! The arguments of every command.

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

mod factorize;
mod privacy;
mod runs;
mod launch;
mod reproduce;
mod duration;
mod stopping;
mod bench;
mod data;

pub(crate) use bench::{
    Bench, BenchEngine, BenchFeatures, BenchModel, BenchSweep, BenchSweepRun, BenchSweepWorker,
    Devices,
};
pub(crate) use data::{Chosen, Data, Describe, Export, Fetch, Show, Which};
pub(crate) use factorize::{Aof, AofCache, Factorize};
pub(crate) use launch::Launch;
pub(crate) use privacy::{Audit, Calibrate, Compare, ConfigFile, Plan, Verify};
pub(crate) use reproduce::{Accuracy, Errors, Format, Frontier, Reproduce, Runtimes};
pub(crate) use runs::{
    Eval, Predict, Report, Results, SplitName, Sweep, SweepQuestion, SweepStatus, Train,
};

/// Differentially private training with matrix-factorization noise
#[derive(Debug, Parser)]
#[command(name = "bandroot", version, max_term_width = 100, help_expected = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What scripts can go by.
const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 bad arguments or config, nothing was changed; 3 a checkpoint that began with another
program, processor, config or data, nothing was changed; 75 stopped by a signal, goes on later.";

/// What `bandroot` says without a command.
pub(crate) const FIRST_STEPS: &str = "\
bandroot trains models with differential privacy: noise that is correlated over the steps, and a
certificate that anyone can check.

Train a small ConvNet privately on textures that are built in (a minute, no download):
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
    /// Train privately, and leave a run folder that describes itself and can be verified
    ///
    /// A run that is interrupted (SIGINT, SIGTERM, SIGUSR1) writes a checkpoint and ends with exit code 75; `--resume`
    /// goes on, bit by bit.
    Train(Train),
    /// Evaluate the model of a finished run again
    Eval(Eval),
    /// Classify new examples with the model of a finished run
    ///
    /// Images of any size (PNG, JPEG) are resized as in training; arrays (.npy) and the rows of tables (.csv) are
    /// taken as they are. A prediction uses nothing but the trained model: if that is private, so is every
    /// prediction, however many are made.
    Predict(Predict),
    /// Train a grid of configs and seeds, until nothing is missing; many processes may share one folder, but for
    /// `--random-stopping`
    ///
    /// With `--launch slurm` the processes are an array of workers on a cluster, by the options in `[slurm]`; `sweep
    /// status` says how it stands. A sweep that is interrupted (SIGINT, SIGTERM, SIGUSR1) keeps a checkpoint of every run
    /// and ends with exit code 75; the same command goes on.
    ///
    /// With `[select]` it is a search: settings from a grid, a list or random draws are judged by held-out training
    /// examples, with `[halving]` in rounds of which the best share goes on. The best is written to chosen.toml and
    /// trained on all examples with seeds that the file names beforehand. All runs count as trials in every
    /// certificate: the choice itself is not covered by the epsilon of one run.
    Sweep(Sweep),
    /// Compare all recorded results with the paper: a web page, tables and figures
    Report(Report),
    /// Manage recorded results
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
    /// List what can compute here, and how a config names it
    Devices(Devices),
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
