//! From a config to the request of a plan: epochs and batches become `n`, `b` and `k`.

use std::fmt;

use dp_train::calibration;
use dp_train::model::{Architecture, Shape};
use dp_train::plan::{PlanRequest, StrategyFor};
use mf_core::Sgd;

use super::{Config, Data, Method, Neighbouring, Noise};
use crate::dataset::textures::Textures;
use crate::dataset::{Dataset, Name};
use crate::factorize::{FEW_BANDS, FEW_BUFFERS};
use crate::output::BadArgument;

/// A number of the config that leaves nothing to plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RequestError {
    /// No batch can be filled.
    BatchSize { batch_size: usize, examples: usize },
    /// A number of examples for a data set that has its own.
    Examples { name: &'static str },
    /// A share of examples that leaves nothing to train on or to validate with.
    Validation { share: f64 },
    /// Nothing is to be trained.
    NoEpochs,
    /// More bands than steps in an epoch, for a method whose columns must not overlap.
    AofBands { bands: usize, separation: usize },
    /// A key of one method in the config of another.
    OtherMethod { key: &'static str, of: &'static str, method: Method },
    /// A number that the factorization refuses.
    Optimizer(mf_core::Error),
    /// The learning rate is not a positive finite number.
    LearningRate { learning_rate: f64 },
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::BatchSize { batch_size, examples } => write!(
                f,
                "training.batch_size must be between 1 and the {examples} training examples, \
                 but it is {batch_size}"
            ),
            RequestError::Examples { name } => write!(
                f,
                "data.examples and data.test_examples are for textures; {name} has its own number"
            ),
            RequestError::Validation { share } => write!(
                f,
                "data.validation must be 0 or leave both parts some examples, but it is {share}"
            ),
            RequestError::NoEpochs => write!(f, "training.epochs must be at least 1"),
            RequestError::AofBands { bands, separation } => write!(
                f,
                "noise.bands must be at most the {separation} steps of an epoch for aof, \
                 but it is {bands}"
            ),
            RequestError::OtherMethod { key, of, method } => write!(
                f,
                "noise.{key} is for method {of}, but noise.method is {method}: leave the key out"
            ),
            RequestError::Optimizer(error) => write!(f, "optimizer: {error}"),
            RequestError::LearningRate { learning_rate } => write!(
                f,
                "optimizer.learning_rate must be positive and finite, but it is {learning_rate}"
            ),
        }
    }
}

impl Data {
    /// How many examples there will be to train on, without reading them.
    pub(crate) fn training_examples(&self) -> Result<usize, RequestError> {
        let drawn = self.examples.is_some() || self.test_examples.is_some();
        let all = match self.name {
            Name::Textures => self.textures().train,
            name if drawn => return Err(RequestError::Examples { name: name.as_str() }),
            Name::Cifar10 => 50_000,
            Name::FashionMnist => 60_000,
        };
        if self.validation == 0.0 {
            return Ok(all);
        }
        let held_out = (self.validation * all as f64).round();
        if !(held_out >= 1.0 && held_out < all as f64) {
            return Err(RequestError::Validation { share: self.validation });
        }
        Ok(all - held_out as usize)
    }

    fn textures(&self) -> Textures {
        let default = Textures::default();
        Textures {
            train: self.examples.unwrap_or(default.train),
            test: self.test_examples.unwrap_or(default.test),
            ..default
        }
    }

    /// Reads or draws the data set, as many examples as [`training_examples`](Self::training_examples)
    /// says.
    pub(crate) fn load(&self) -> anyhow::Result<Dataset> {
        let data = match self.name {
            Name::Textures => self.textures().draw(),
            name => name.load(&self.folder)?,
        };
        if self.validation == 0.0 { Ok(data) } else { data.for_tuning(self.validation) }
    }
}

impl Config {
    /// Whether the model takes the pictures of the data set and tells its classes apart.
    pub(crate) fn check_shape(
        &self,
        data: &Dataset,
        architecture: &Architecture,
    ) -> Result<(), BadArgument> {
        let shape = data.shape;
        let found =
            Shape::Image { channels: shape.channels, height: shape.height, width: shape.width };
        let shapes = architecture.shapes();
        let classes = Shape::Vector { features: data.classes.len() };
        if shapes.first() == Some(&found) && shapes.last() == Some(&classes) {
            return Ok(());
        }
        Err(BadArgument(format!(
            "model.name does not fit data.name: {} has pictures of {} x {} x {} in {} classes",
            data.name.as_str(),
            shape.channels,
            shape.height,
            shape.width,
            data.classes.len()
        )))
    }

    /// The request of the plan: an epoch is `b = examples / batch_size` steps, rounded down, because the
    /// remainder is dropped; an example takes part once per epoch, so `k = epochs` and `n = k b`.
    pub(crate) fn plan_request(&self) -> Result<PlanRequest, RequestError> {
        let (examples, batch_size) = (self.data.training_examples()?, self.training.batch_size);
        if batch_size == 0 || batch_size > examples {
            return Err(RequestError::BatchSize { batch_size, examples });
        }
        if self.training.epochs == 0 {
            return Err(RequestError::NoEpochs);
        }
        let learning_rate = self.optimizer.learning_rate;
        if !(learning_rate > 0.0 && learning_rate.is_finite()) {
            return Err(RequestError::LearningRate { learning_rate });
        }
        let sgd = Sgd::new(self.optimizer.decay_factor, self.optimizer.momentum)
            .map_err(RequestError::Optimizer)?;
        let min_separation = examples / batch_size;
        let bands = self.noise.bands.unwrap_or(min_separation);
        if self.noise.method == Method::Aof && bands > min_separation {
            return Err(RequestError::AofBands { bands, separation: min_separation });
        }
        let inverse_bands =
            self.noise.bands.unwrap_or(FEW_BANDS.min(min_separation * self.training.epochs));
        let Noise { method, lambda, buffers, .. } = self.noise;
        if lambda.is_some() && method != Method::LambdaCgd {
            return Err(RequestError::OtherMethod { key: "lambda", of: "lambda-cgd", method });
        }
        if buffers.is_some() && method != Method::Blt {
            return Err(RequestError::OtherMethod { key: "buffers", of: "blt", method });
        }
        Ok(PlanRequest {
            sgd,
            learning_rates: None,
            strategy_for: StrategyFor::default(),
            method: match self.noise.method {
                Method::Identity => mf_core::Method::Identity,
                Method::Input => mf_core::Method::Input,
                Method::Sqrt => mf_core::Method::SquareRoot,
                Method::Bsr => mf_core::Method::Bsr { bands },
                Method::Aof => mf_core::Method::Aof { bands, tolerance: self.noise.tolerance },
                Method::Bisr => mf_core::Method::Bisr { bands: inverse_bands },
                Method::LambdaCgd => mf_core::Method::LambdaCgd { lambda },
                Method::Toeplitz => mf_core::Method::Toeplitz { bands },
                Method::InverseToeplitz => {
                    mf_core::Method::InverseToeplitz { bands: inverse_bands }
                }
                Method::Blt => mf_core::Method::Blt { buffers: buffers.unwrap_or(FEW_BUFFERS) },
                Method::NormalisedSqrt => mf_core::Method::NormalisedSquareRoot { bands },
            },
            steps: min_separation * self.training.epochs,
            min_separation,
            max_participations: Some(self.training.epochs),
            clip_norm: self.privacy.clip_norm,
            batch_size,
            epsilon: self.privacy.epsilon,
            delta: self.privacy.delta,
            neighbouring: match self.privacy.neighbouring {
                Neighbouring::AddRemove => calibration::Neighbouring::AddRemove,
                Neighbouring::ZeroOut => calibration::Neighbouring::ZeroOut,
                Neighbouring::ReplaceOne => calibration::Neighbouring::ReplaceOne,
            },
            dim: self.model.architecture().parameter_count(),
            keep_rows: self.noise.keep_rows,
        })
    }
}
