//! From a config to the request of a plan: epochs and batches become `n`, `b` and `k`.

use std::fmt;

use dp_train::calibration;
use dp_train::plan::{PlanRequest, StrategyFor};
use mf_core::Sgd;

use super::{Config, Method, Neighbouring};

/// A number of the config that leaves nothing to plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RequestError {
    /// No batch can be filled.
    BatchSize { batch_size: usize, examples: usize },
    /// Nothing is to be trained.
    NoEpochs,
    /// More bands than steps in an epoch, for a method whose columns must not overlap.
    AofBands { bands: usize, separation: usize },
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
                "training.batch_size must be between 1 and data.examples = {examples}, \
                 but it is {batch_size}"
            ),
            RequestError::NoEpochs => write!(f, "training.epochs must be at least 1"),
            RequestError::AofBands { bands, separation } => write!(
                f,
                "noise.bands must be at most the {separation} steps of an epoch for aof, \
                 but it is {bands}"
            ),
            RequestError::Optimizer(error) => write!(f, "optimizer: {error}"),
            RequestError::LearningRate { learning_rate } => write!(
                f,
                "optimizer.learning_rate must be positive and finite, but it is {learning_rate}"
            ),
        }
    }
}

impl Config {
    /// The request of the plan: an epoch is `b = examples / batch_size` steps, rounded down, because the
    /// remainder is dropped; an example takes part once per epoch, so `k = epochs` and `n = k b`.
    pub(crate) fn plan_request(&self) -> Result<PlanRequest, RequestError> {
        let (examples, batch_size) = (self.data.examples, self.training.batch_size);
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
            dim: self.model.parameters,
        })
    }
}
