//! The arguments of the commands that make runs and look after them.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::{AofCache, Launch};
use dp_train::accounting::stopping::StoppingLaw;

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

#[derive(Debug, Args)]
pub(crate) struct Predict {
    /// The folder of a finished run, with its config.toml and parameters.safetensors
    pub(crate) run: PathBuf,

    /// The examples: .png, .jpg, .jpeg or .npy, or .csv for a model of a table, whose label is ignored
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Print one JSON array instead of a table
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

#[derive(Debug, Subcommand)]
pub(crate) enum SweepQuestion {
    /// Say what of a sweep is done, running (where, since when), failed (why) or missing, and what the queue says
    Status(SweepStatus),
}

#[derive(Debug, Args)]
pub(crate) struct SweepStatus {
    /// The file of the sweep (TOML)
    pub(crate) sweep: PathBuf,

    /// Folder of the run folders [default: runs/ and the file's name]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// A sweep to run, or a question about one.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Sweep {
    /// A question in place of a sweep to run
    #[command(subcommand)]
    pub(crate) question: Option<SweepQuestion>,

    /// The file of the sweep (TOML): base, seeds, `[grid]`, `[[candidates]]`, `[random]`; for a choice of the best,
    /// `[select]` and `[halving]`; for a cluster, `[slurm]`
    #[arg(required = true)]
    pub(crate) sweep: Option<PathBuf>,

    /// Runs at a time; the threads are shared out among them
    #[arg(long, default_value_t = 1)]
    pub(crate) jobs: usize,

    /// Folder of the run folders; what is there is not run again [default: runs/ and the file's name]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Run again what failed before
    #[arg(long)]
    pub(crate) retry_failed: bool,

    /// Where the runs are made, if not by this process
    #[command(flatten)]
    pub(crate) launch: Launch,

    /// With --launch: print the script and how many runs are missing, and submit nothing
    #[arg(long, requires = "launch")]
    pub(crate) dry_run: bool,

    /// Stop after the choice of `[select]`: chosen.toml is the config of the final runs
    #[arg(long)]
    pub(crate) choose_only: bool,

    /// Make a random number of runs with settings drawn at random, by secret coins, show nothing but the best, and say what
    /// that choice costs: mean and shape of the truncated negative binomial law, 1 for the geometric one. The base must
    /// have `data.validation`
    #[arg(long, value_name = "mean=M,shape=S", value_parser = super::stopping::parse)]
    pub(crate) random_stopping: Option<StoppingLaw>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

impl Sweep {
    /// The file; empty where there is a question in its place.
    pub(crate) fn file(&self) -> &Path {
        self.sweep.as_deref().unwrap_or(Path::new(""))
    }
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Folder of the records: every folder below it with config.toml and summary.json is a run
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(crate) results: PathBuf,

    /// Folder for the page, the tables and the figures [default: report in the folder of the records]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Print the counts as one JSON object
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

    /// Among how many runs on the same data they may be chosen, if that is more than they say: certificates and
    /// summaries state it then
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) trials: u64,

    /// Into a folder for each of the paper's accuracy tables, with a list of all its runs, runs.csv
    #[arg(long)]
    pub(crate) by_table: bool,
}
