//! The arguments of `bandroot reproduce`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Aof, Launch};
use crate::published::Regime;

#[derive(Debug, Subcommand)]
pub(crate) enum Reproduce {
    /// The 16 tables of expected error, and the figures made of them
    Errors(Errors),
    /// The 16 tables of time to factorize, and the figures of the errors that were reached
    Runtimes(Runtimes),
    /// The 6 tables of accuracy on CIFAR-10: trains what is missing, as far as the time allows
    Accuracy(Accuracy),
    /// Expected error against memory for every factorization, with the certified optimum as the floor
    Frontier(Frontier),
}

/// How a table is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns
    Text,
    /// Comma-separated values in full precision
    Csv,
    /// A Markdown table
    Markdown,
}

#[derive(Debug, Args)]
pub(crate) struct Errors {
    /// Leave out the aof column, which is solved by iteration; the rest takes a second
    #[arg(long)]
    pub(crate) without_aof: bool,

    /// Options of the aof solver
    #[command(flatten)]
    pub(crate) aof: Aof,

    /// How to print the table
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "json")]
    pub(crate) format: Format,

    /// Write the tables (text, CSV, Markdown, JSON), the figures (SVG, PNG) and the environment into
    /// this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Print one JSON object that counts agreements instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Runtimes {
    /// Only this participation
    #[arg(long, value_enum)]
    pub(crate) participation: Option<Regime>,

    /// Only these decay factors
    #[arg(long, value_delimiter = ',')]
    pub(crate) alpha: Vec<f64>,

    /// Only these momenta
    #[arg(long, value_delimiter = ',')]
    pub(crate) beta: Vec<f64>,

    /// Only these numbers of steps
    #[arg(long, value_delimiter = ',')]
    pub(crate) steps: Vec<usize>,

    /// Certified relative gap to the optimal expected error at which the aof solver stops
    #[arg(long, default_value_t = 1e-4)]
    pub(crate) tolerance: f64,

    /// Folder for the measurements, the tables and the figures; what is measured there is not measured again
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// Print the measurements as JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Accuracy {
    /// Only this participation
    #[arg(long, value_enum)]
    pub(crate) participation: Option<Regime>,

    /// Only these privacy losses
    #[arg(long, value_delimiter = ',')]
    pub(crate) epsilon: Vec<f64>,

    /// Only these methods: bsr, aof, identity, input
    #[arg(long, value_delimiter = ',')]
    pub(crate) method: Vec<String>,

    /// Only these numbers of epochs, of repeated participation
    #[arg(long, value_delimiter = ',')]
    pub(crate) epochs: Vec<usize>,

    /// Only these numbers of steps, of single participation
    #[arg(long, value_delimiter = ',')]
    pub(crate) steps: Vec<usize>,

    /// Seeds of every cell
    #[arg(long, value_delimiter = ',', default_value = "0,1,2,3,4")]
    pub(crate) seeds: Vec<u64>,

    /// Start no run that would not end within this time, such as 90m or 1h30m [default: run all]
    #[arg(long, value_name = "TIME", value_parser = super::duration::parse)]
    pub(crate) budget: Option<std::time::Duration>,

    /// Print what is missing and what it will cost, with --launch the script besides, and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Say what is done, running (where, since when), failed (why) or missing, and what the queue says, and run nothing
    #[arg(long, conflicts_with_all = ["dry_run", "launch", "retry_failed"])]
    pub(crate) status: bool,

    /// Runs at a time; the threads are shared out among them
    #[arg(long, default_value_t = 1)]
    pub(crate) jobs: usize,

    /// Run again what failed before
    #[arg(long)]
    pub(crate) retry_failed: bool,

    /// Where the runs are made, if not by this process
    #[command(flatten)]
    pub(crate) launch: Launch,

    /// With --launch: a TOML file whose table `[slurm]` says what to ask for
    #[arg(long, value_name = "FILE", requires = "launch")]
    pub(crate) slurm: Option<PathBuf>,

    /// File of the hyper-parameters
    #[arg(long, value_name = "FILE", default_value = "configs/paper/tuned.toml")]
    pub(crate) tuned: PathBuf,

    /// Folder of the data sets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    pub(crate) data: PathBuf,

    /// Folder of the records: what is anywhere below it is not run again
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(crate) results: PathBuf,

    /// Folder of the new run folders; `bandroot results import` copies what is to be kept from there
    #[arg(long, value_name = "DIR", default_value = "runs/accuracy")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Frontier {
    /// Number of steps n
    #[arg(long, default_value_t = 2000)]
    pub(crate) steps: usize,

    /// Least distance b between two uses of one example, which must divide the steps
    #[arg(long, default_value_t = 100)]
    pub(crate) separation: usize,

    /// Options of the aof solver
    #[command(flatten)]
    pub(crate) aof: Aof,

    /// Write the tables (CSV, Markdown), the figure (SVG, PNG) and the environment into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Print JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}
