//! The arguments of `bandroot bench`.

use std::convert::Infallible;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use dp_train::engine::{ConvolutionMethod, Device};

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Examples per second: forward, plain gradient, private gradient
    ///
    /// Devices, models, batches, threads and convolutions may be lists, say 1,2: everything is measured then, devices,
    /// models and threads taking turns.
    Engine(BenchEngine),
    /// Images per second of scattering features, on drawn images of 3 x 32 x 32
    Features(BenchFeatures),
    /// What it costs many workers to share a sweep: claims, and waiting for the last runs, with runs that only sleep
    Sweep(BenchSweep),
    /// One worker of `bench sweep`
    #[command(hide = true)]
    SweepWorker(BenchSweepWorker),
    /// One run of `bench sweep`
    #[command(hide = true)]
    SweepRun(BenchSweepRun),
}

#[derive(Debug, Args)]
pub(crate) struct BenchSweep {
    /// Workers, each a process on this machine
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) workers: u32,

    /// Runs
    #[arg(long, default_value_t = 640, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) cells: u32,

    /// Seconds that a run sleeps
    #[arg(long, default_value_t = 1.0)]
    pub(crate) seconds: f64,

    /// Print a JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchSweepWorker {
    /// The folder that is shared
    pub(crate) folder: PathBuf,

    /// Runs
    pub(crate) cells: u32,

    /// Seconds that a run sleeps
    pub(crate) seconds: f64,
}

#[derive(Debug, Args)]
pub(crate) struct BenchSweepRun {
    /// The folder of the run
    pub(crate) folder: PathBuf,

    /// Seconds to sleep
    pub(crate) seconds: f64,
}

#[derive(Debug, Args)]
pub(crate) struct BenchFeatures {
    /// Images of a round
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) images: u32,

    /// Sizes of wavelets
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub(crate) scales: u8,

    /// Directions of wavelets
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) angles: u8,

    /// Threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,

    /// How often it is measured, after one round that is not counted
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,

    /// Print a JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Devices {
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BenchEngine {
    /// What computes; all but cpu need the Cargo feature of that name
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cpu")]
    pub(crate) device: Vec<Device>,

    /// Examples in a batch
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "500",
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    pub(crate) batch: Vec<u32>,

    /// Threads [default: one per core]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Vec<u16>,

    /// Examples that go through the network together [default: the engine's choice]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) microbatch: Option<u16>,

    /// The model: convnet, convnet-tanh, or a config whose model it is
    #[arg(long, value_name = "NAME|CONFIG", value_delimiter = ',', default_value = "convnet")]
    pub(crate) model: Vec<BenchModel>,

    /// How 3 x 3 convolutions are computed
    #[arg(long, value_enum, value_delimiter = ',', default_value = "winograd")]
    pub(crate) convolution: Vec<ConvolutionMethod>,

    /// Which GPU, by a part of its name as `bandroot devices` shows it [default: the fastest kind]
    #[arg(long, value_name = "NAME")]
    pub(crate) adapter: Option<String>,

    /// On GPUs, measure burn's own operations too, in turns
    #[arg(long)]
    pub(crate) beside_burn: bool,

    /// How often everything is measured, after one round that is not counted
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,

    /// Print a JSON object for every measurement instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// A model by name, or that of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BenchModel {
    /// The ConvNet of the paper
    Convnet,
    /// The same convolutions with tanh, and two linear layers
    ConvnetTanh,
    /// The one that a config describes, for the examples of its data.
    Config(PathBuf),
}

impl FromStr for BenchModel {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "convnet" => Self::Convnet,
            "convnet-tanh" => Self::ConvnetTanh,
            path => Self::Config(path.into()),
        })
    }
}

impl Display for BenchModel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Convnet => f.write_str("convnet"),
            Self::ConvnetTanh => f.write_str("convnet-tanh"),
            Self::Config(path) => path.display().fmt(f),
        }
    }
}
