//! The arguments of `bandroot bench`.

use clap::{Args, Subcommand, ValueEnum};
use dp_train::engine::{ConvolutionMethod, Device};
use serde::Serialize;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Examples per second: forward, plain gradient, private gradient
    ///
    /// Devices, batches, threads and convolutions may be lists, say 1,2: everything is measured then, devices and
    /// threads taking turns.
    Engine(BenchEngine),
    /// Images per second of scattering features, on drawn images of 3 x 32 x 32
    Features(BenchFeatures),
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

    /// The model
    #[arg(long, value_enum, default_value_t = Preset::Convnet)]
    pub(crate) model: Preset,

    /// How 3 x 3 convolutions are computed
    #[arg(long, value_enum, value_delimiter = ',', default_value = "winograd")]
    pub(crate) convolution: Vec<ConvolutionMethod>,

    /// How often everything is measured, after one round that is not counted
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,

    /// Print a JSON object for every measurement instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// A model by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Preset {
    /// The ConvNet of the paper
    Convnet,
    /// The same convolutions with tanh, and two linear layers
    ConvnetTanh,
}
