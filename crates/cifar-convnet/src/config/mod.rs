//! Configs: one TOML file per experiment, checked before anything happens.

use std::fmt;
use std::path::PathBuf;

use dp_train::model::Architecture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dataset;

pub(crate) mod file;

pub(crate) mod page;

pub(crate) mod request;

/// An experiment: the data, the model, the privacy, the noise and the training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// What is trained on.
    pub(crate) data: Data,
    /// What is trained.
    pub(crate) model: Model,
    /// What is guaranteed.
    pub(crate) privacy: Privacy,
    /// How the noise is correlated.
    pub(crate) noise: Noise,
    /// How the parameters move.
    pub(crate) optimizer: Optimizer,
    /// How long, and in which batches.
    pub(crate) training: Training,
}

/// What is trained on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Data {
    /// Which data set.
    pub(crate) name: dataset::Name,
    /// The folder with the files of the data sets.
    #[serde(default = "default_folder")]
    pub(crate) folder: PathBuf,
    /// Training examples to draw, for textures; 10000 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) examples: Option<usize>,
    /// Test examples to draw, for textures; 2000 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) test_examples: Option<usize>,
    /// Share of the training examples that is held out and takes the place of the test examples, for
    /// tuning.
    #[serde(default)]
    pub(crate) validation: f64,
}

fn default_folder() -> PathBuf {
    PathBuf::from("datasets")
}

/// What is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    /// Which model.
    pub(crate) name: ModelName,
}

/// A model by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ModelName {
    /// The ConvNet of the paper: six 3 x 3 convolutions with ReLU and a linear layer.
    Convnet,
    /// The same convolutions with tanh, and linear layers of 128 and 10.
    ConvnetTanh,
}

impl Model {
    /// The layers of the model.
    pub(crate) fn architecture(&self) -> Architecture {
        match self.name {
            ModelName::Convnet => Architecture::convnet(),
            ModelName::ConvnetTanh => Architecture::convnet_tanh(),
        }
    }
}

/// What is guaranteed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Privacy {
    /// The privacy loss of the whole training.
    pub(crate) epsilon: f64,
    /// The probability with which it may be exceeded.
    pub(crate) delta: f64,
    /// Which data sets are told apart at most that well.
    #[serde(default)]
    pub(crate) neighbouring: Neighbouring,
    /// The gradient of every example is scaled down to at most this norm.
    pub(crate) clip_norm: f64,
    /// Draws the noise from this seed instead of a secret key: the run is then reproducible and not
    /// private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) noise_seed: Option<u64>,
}

/// Which data sets count as neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Neighbouring {
    /// One example more or less, at the same place in the order: its gradients are zero.
    #[default]
    AddRemove,
    /// One example's gradients are set to zero.
    ZeroOut,
    /// One example is another one, which needs twice the noise.
    ReplaceOne,
}

/// How the noise is correlated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Noise {
    /// The factorization.
    pub(crate) method: Method,
    /// Diagonals of the strategy, for bsr, toeplitz, normalised-sqrt and aof, the steps of one epoch if left
    /// out; of its inverse, for bisr and inverse-toeplitz, 4 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bands: Option<usize>,
    /// Share of the row before that lambda-cgd takes back, in [0, 1]; the best one if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lambda: Option<f64>,
    /// Most buffers of blt; 3 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) buffers: Option<usize>,
    /// Rows of noise kept in memory by bisr, lambda-cgd and inverse-toeplitz; the others are drawn again, the
    /// same bits for more time. All if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keep_rows: Option<usize>,
    /// Certified relative gap to the optimum at which aof stops.
    #[serde(default = "default_tolerance")]
    pub(crate) tolerance: f64,
}

fn default_tolerance() -> f64 {
    1e-4
}

/// A factorization by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    /// Independent noise: DP-SGD.
    Identity,
    /// Noise on the iterates.
    Input,
    /// The square root of the workload.
    Sqrt,
    /// The banded square root.
    Bsr,
    /// The approximately optimal factorization.
    Aof,
    /// The banded inverse square root.
    Bisr,
    /// One row of noise taken back in part.
    LambdaCgd,
    /// The best banded Toeplitz strategy.
    Toeplitz,
    /// The best strategy with a banded Toeplitz inverse.
    InverseToeplitz,
    /// Buffered linear Toeplitz.
    Blt,
    /// The banded square root with columns of unit norm.
    NormalisedSqrt,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::Identity => "identity",
            Method::Input => "input",
            Method::Sqrt => "sqrt",
            Method::Bsr => "bsr",
            Method::Aof => "aof",
            Method::Bisr => "bisr",
            Method::LambdaCgd => "lambda-cgd",
            Method::Toeplitz => "toeplitz",
            Method::InverseToeplitz => "inverse-toeplitz",
            Method::Blt => "blt",
            Method::NormalisedSqrt => "normalised-sqrt",
        })
    }
}

/// How the parameters move: `m = momentum m + gradient`, `theta = decay_factor theta - learning_rate m`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Optimizer {
    /// The step size.
    pub(crate) learning_rate: f64,
    /// beta: the momentum buffer is multiplied by it in every step, in [0, `decay_factor`).
    #[serde(default)]
    pub(crate) momentum: f64,
    /// alpha: the weights are multiplied by it in every step, in (0, 1]; 1 is no weight decay.
    #[serde(default = "one")]
    pub(crate) decay_factor: f64,
}

fn one() -> f64 {
    1.0
}

/// How long, and in which batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Training {
    /// How often every example is used.
    pub(crate) epochs: usize,
    /// Examples in a batch. What is left over at the end of the data is never used.
    pub(crate) batch_size: usize,
    /// Seed of the initial parameters and of the order of the examples.
    #[serde(default)]
    pub(crate) seed: u64,
    /// Steps between checkpoints, besides the one at the end of every epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint_steps: Option<usize>,
}
