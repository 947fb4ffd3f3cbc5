//! The section `[data]`: a data set by name, or one of one's own.

mod examples;
mod facts;
mod features;
mod keys;
mod own;
mod title;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::data::Name;
use crate::data::own::{Dtype, Layout};
use crate::data::views::Augmentation;

pub use features::FeaturesKey;

/// What is trained on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Which data set: `textures`, `cifar10` and `fashion-mnist` are known; the others are formats of data of
    /// one's own. folder: PNG and JPEG in `train/CLASS` and `test/CLASS`. npy: arrays of `NumPy`. idx: files as
    /// those of MNIST. csv: tables of numbers.
    pub name: DataName,
    /// The folder with the files of the data sets; for data of one's own, the folder of its files.
    #[serde(default = "default_folder")]
    pub folder: PathBuf,
    /// Training examples: to draw, for textures, 10000 if left out; for data of one's own, what is in the
    /// files, those for `test_share` included, found in listings and headers if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<usize>,
    /// Test examples to draw, for textures; 2000 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_examples: Option<usize>,
    /// Share of the examples of one's own to test on, drawn with a fixed seed, where there are no files to test
    /// on; class folders then lie in `folder` itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_share: Option<f64>,
    /// Share of the training examples that is held out and takes the place of the test examples, for
    /// tuning. What is measured on them is called validation and is not private: the guarantee holds for
    /// the examples that are trained on.
    #[serde(default)]
    pub validation: f64,
    /// Names of the labels 0, 1, ..., or their number. For folder, the names of the class folders, sorted, if
    /// left out; needed for npy, idx and csv, where it stands for the labels of the files (for csv, also by name).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<Classes>,
    /// Rows and columns of an image, or one number for both. Required for folder, whose images are resized to it;
    /// for npy and idx found in the files if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// 3 for colour or 1 for grey, for folder, 3 if left out; for npy found in the file if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<usize>,
    /// How an npy array of four sizes is ordered: `(N, H, W, C)` or `(N, C, H, W)`. One of three sizes is of grey
    /// images, one of two of vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// What an npy array holds: bytes, or numbers that are scaled; found in the file if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    /// File of the training examples in `folder`, for npy and idx (plain or .gz): `train_images.npy` or
    /// `train-images-idx3-ubyte` if left out. `FILE.npz:ARRAY` names an array of an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_images: Option<String>,
    /// File of their labels: `train_labels.npy` or `train-labels-idx1-ubyte` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_labels: Option<String>,
    /// File of the test examples: `test_images.npy` or `t10k-images-idx3-ubyte` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_images: Option<String>,
    /// File of their labels: `test_labels.npy` or `t10k-labels-idx1-ubyte` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_labels: Option<String>,
    /// Table of the training examples, for csv, with the names of the columns in its first line: `train.csv` if
    /// left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_table: Option<String>,
    /// Table of the test examples: `test.csv` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_table: Option<String>,
    /// Column of the label: `label` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Columns that the model sees, in this order; all but that of the label if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// What is taken off a number of csv, or of npy that is no byte, before it is divided by `scale`: one number,
    /// or one per column or channel; 0 if left out. It is public: it must not be computed from the examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Constants>,
    /// What it is then divided by; 1 if left out. Public, as `offset` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Constants>,
    /// Features that a model sees in place of pixels, such as `features = { kind = "scattering" }`; pixels if left out.
    /// They have more channels and fewer places: 243 x 8 x 8 for 3 x 32 x 32, 2 scales and 8 angles. Each channel is
    /// normalized by its mean and deviation over the built-in textures, constants that do not depend on the data. They
    /// are made once and kept in `folder`, in hidden files that are as confidential as the data; those of the textures
    /// are not kept. With `augmentation.flip` the mirror images have features of their own; `crop_padding` is for
    /// pixels. For an npy array of two sizes, `features` is the numbers of a vector, found in the file if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<FeaturesKey>,
    /// Random views of the training images; off if left out.
    #[serde(default, skip_serializing_if = "Augmentation::is_off")]
    pub augmentation: Augmentation,
}

fn default_folder() -> PathBuf {
    PathBuf::from("datasets")
}

/// A data set that is known, or a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DataName {
    /// Ten classes of textures, made by the program itself.
    Textures,
    /// Ten classes of photographs, 32 x 32 in colour.
    Cifar10,
    /// Ten classes of clothes, 28 x 28 in grey.
    FashionMnist,
    /// Class folders of PNG and JPEG.
    Folder,
    /// Arrays of `NumPy`.
    Npy,
    /// IDX files, as those of MNIST.
    Idx,
    /// Tables of numbers.
    Csv,
}

impl DataName {
    /// The known data set of this name.
    pub fn known(self) -> Option<Name> {
        match self {
            Self::Textures => Some(Name::Textures),
            Self::Cifar10 => Some(Name::Cifar10),
            Self::FashionMnist => Some(Name::FashionMnist),
            Self::Folder | Self::Npy | Self::Idx | Self::Csv => None,
        }
    }

    /// The name as it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::Npy => "npy",
            Self::Idx => "idx",
            Self::Csv => "csv",
            known => known.known().map_or("", Name::as_str),
        }
    }
}

/// How many classes there are, or their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "data.classes must be a number or a list of names")]
pub enum Classes {
    /// Labels are called by their numbers.
    Number(usize),
    /// The names of the labels 0, 1, ...
    Names(Vec<String>),
}

/// The sides of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "data.size must be a number of pixels, or [height, width]")]
pub enum Size {
    /// As high as it is wide.
    Side(usize),
    /// Rows, and columns.
    Sides([usize; 2]),
}

/// A constant for all columns or channels, or one for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "data.offset and data.scale must be a number or a list of numbers")]
pub enum Constants {
    /// For all.
    One(f64),
    /// For each.
    Each(Vec<f64>),
}

impl Constants {
    fn as_slice(&self) -> &[f64] {
        match self {
            Self::One(constant) => std::slice::from_ref(constant),
            Self::Each(constants) => constants,
        }
    }
}
