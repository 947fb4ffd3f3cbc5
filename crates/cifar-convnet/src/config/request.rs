//! From a config to the request of a plan: epochs and batches become `n`, `b` and `k`.

use anyhow::ensure;
use dp_train::NonPrivateRequest;
use dp_train::calibration;
use dp_train::plan::{self, PlanRequest};
use mf_core::Sgd;

use super::error::RequestError;
use super::privacy::{Guarantee, Neighbouring, Privacy};
use super::{Config, Data, Noise, Record, StrategyFor};
use crate::dataset::textures::Textures;
use crate::dataset::{Dataset, Name};
use crate::method::Choice;

/// Most views of an example in a step; more do not fit beside a batch.
const MOST_VIEWS: usize = 1024;

/// Most textures to draw: 3 GB of them.
const MOST_DRAWN: usize = 1_000_000;

impl Data {
    /// How many examples there will be to train on, without reading them.
    pub(crate) fn training_examples(&self) -> Result<usize, RequestError> {
        let drawn = self.examples.is_some() || self.test_examples.is_some();
        for (key, number) in [("examples", self.examples), ("test_examples", self.test_examples)] {
            if let Some(examples) = number.filter(|number| !(1..=MOST_DRAWN).contains(number)) {
                return Err(RequestError::Drawn { key, examples, most: MOST_DRAWN });
            }
        }
        let all = match self.name {
            Name::Textures => self.textures().train,
            name if drawn => return Err(RequestError::Examples { name: name.as_str() }),
            Name::Cifar10 => 50_000,
            Name::FashionMnist => 60_000,
        };
        if !self.holds_out() {
            return Ok(all);
        }
        let held_out = (self.validation * all as f64).round();
        if !(held_out >= 1.0 && held_out < all as f64) {
            return Err(RequestError::Validation { share: self.validation });
        }
        Ok(all - held_out as usize)
    }

    /// Whether the run is judged by held-out training examples in place of the test examples.
    pub(crate) fn holds_out(&self) -> bool {
        self.validation != 0.0
    }

    /// How many training examples are held out; none if the config cannot be run.
    pub(crate) fn held_out_examples(&self) -> usize {
        let all = Self { validation: 0.0, ..self.clone() }.training_examples();
        let rest = self.training_examples();
        all.ok().zip(rest.ok()).map_or(0, |(all, rest)| all - rest)
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
        if self.holds_out() { data.for_tuning(self.validation) } else { Ok(data) }
    }
}

/// Steps of the longest run: a schedule has a number for each of them.
const MOST_STEPS: usize = 1 << 22;

/// How long a run is: an epoch is `b = examples / batch_size` steps, rounded down, because the remainder
/// is dropped; an example takes part once per epoch, so `k = epochs` and `n = k b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) per_epoch: usize,
    pub(crate) total: usize,
}

impl Config {
    /// Reads the data, and sees that it is what the plan was made for.
    pub(crate) fn load_data(&self) -> anyhow::Result<Dataset> {
        let data = self.data.load()?;
        let (found, expected) = (data.train.len(), self.data.training_examples());
        let fits = data.shape == data.name.shape() && expected == Ok(found);
        ensure!(
            fits,
            "{} has {found} training pictures of {:?}, which is not the data set of that name",
            data.name.as_str(),
            data.shape
        );
        Ok(data)
    }

    /// That a run can be made of it, as far as that is known without data and factorization.
    pub(crate) fn check(&self) -> Result<(), RequestError> {
        match &self.privacy {
            Privacy::None => self.open_request().map(drop),
            Privacy::Guaranteed(_) => self.plan_request().map(drop),
        }
    }

    /// How long the run is, and that all numbers of the run besides privacy can be used.
    pub(crate) fn steps(&self) -> Result<Steps, RequestError> {
        let (examples, batch_size) = (self.data.training_examples()?, self.training.batch_size);
        if batch_size == 0 || batch_size > examples {
            return Err(RequestError::BatchSize { batch_size, examples });
        }
        if self.training.epochs == 0 {
            return Err(RequestError::NoEpochs);
        }
        if self.data.holds_out() && self.training.record == Record::Public {
            return Err(RequestError::NothingToShow);
        }
        let learning_rate = self.optimizer.learning_rate;
        // As it is used, in f32.
        if !(learning_rate as f32 > 0.0 && (learning_rate as f32).is_finite()) {
            return Err(RequestError::LearningRate { learning_rate });
        }
        let (views, shape) = (&self.data.augmentation, self.data.name.shape());
        let (padding, side) = (views.crop_padding, shape.height.min(shape.width));
        let multiplicity = views.multiplicity;
        if !(1..=MOST_VIEWS).contains(&multiplicity) {
            return Err(RequestError::Views { multiplicity, most: MOST_VIEWS });
        }
        if padding >= side {
            return Err(RequestError::CropPadding { padding, side });
        }
        let per_epoch = examples / batch_size;
        let total = per_epoch.checked_mul(self.training.epochs);
        let total = total.filter(|&total| total <= MOST_STEPS);
        let total = total.ok_or(RequestError::TooManySteps { most: MOST_STEPS })?;
        Ok(Steps { per_epoch, total })
    }

    fn sgd(&self) -> Result<Sgd, RequestError> {
        Sgd::new(self.optimizer.decay_factor, self.optimizer.momentum)
            .map_err(RequestError::Optimizer)
    }

    /// What is guaranteed, and the noise for it.
    fn guarantee(&self) -> Result<(&Guarantee, &Noise), RequestError> {
        match (&self.privacy, &self.noise) {
            (Privacy::None, _) => Err(RequestError::NotPrivate),
            (Privacy::Guaranteed(_), None) => Err(RequestError::NoNoise),
            (Privacy::Guaranteed(guarantee), Some(noise)) => Ok((guarantee, noise)),
        }
    }

    /// Where aof stops.
    pub(crate) fn tolerance(&self) -> f64 {
        self.noise.as_ref().map_or_else(super::default_tolerance, |noise| noise.tolerance)
    }

    /// The request of the plan.
    pub(crate) fn plan_request(&self) -> Result<PlanRequest, RequestError> {
        let (guarantee, noise) = self.guarantee()?;
        if self.optimizer.clip_norm.is_some() {
            return Err(RequestError::TwoClipNorms);
        }
        if guarantee.trials == 0 {
            return Err(RequestError::NoTrials);
        }
        // The plan would refuse them too, but only after the factorization.
        calibration::multiplier(guarantee.epsilon, guarantee.delta)
            .map_err(RequestError::Privacy)?;
        checked_clip_norm("privacy", guarantee.clip_norm)?;
        let Steps { per_epoch, total } = self.steps()?;
        let choice = Choice {
            name: noise.method,
            bands: noise.bands,
            lambda: noise.lambda,
            buffers: noise.buffers,
            tolerance: noise.tolerance,
        };
        Ok(PlanRequest {
            sgd: self.sgd()?,
            learning_rates: self.optimizer.factors(total)?,
            workload_column: None,
            strategy_for: match noise.strategy_for {
                StrategyFor::ConstantRate => plan::StrategyFor::ConstantRate,
                StrategyFor::Schedule => plan::StrategyFor::Schedule,
            },
            method: choice.method(total, per_epoch).map_err(RequestError::Method)?,
            steps: total,
            min_separation: per_epoch,
            max_participations: Some(self.training.epochs),
            clip_norm: guarantee.clip_norm,
            batch_size: self.training.batch_size,
            epsilon: guarantee.epsilon,
            delta: guarantee.delta,
            neighbouring: match guarantee.neighbouring {
                Neighbouring::ZeroOut => calibration::Neighbouring::ZeroOut,
                Neighbouring::ReplaceOne => calibration::Neighbouring::ReplaceOne,
            },
            dim: self.model.architecture(self.data.name)?.parameter_count(),
            keep_rows: noise.keep_rows,
        })
    }

    /// The request of a run without privacy.
    pub(crate) fn open_request(&self) -> Result<NonPrivateRequest, RequestError> {
        if self.training.record == Record::Public {
            return Err(RequestError::NothingPublic);
        }
        if let Some(clip_norm) = self.optimizer.clip_norm {
            checked_clip_norm("optimizer", clip_norm)?;
        }
        let Steps { total, .. } = self.steps()?;
        Ok(NonPrivateRequest {
            sgd: self.sgd()?,
            learning_rate: self.optimizer.learning_rate as f32,
            factors: self.optimizer.factors(total)?,
            steps: total,
            batch_size: self.training.batch_size,
            dim: self.model.architecture(self.data.name)?.parameter_count(),
        })
    }
}

fn checked_clip_norm(section: &'static str, clip_norm: f64) -> Result<(), RequestError> {
    let usable = clip_norm > 0.0 && clip_norm.is_finite();
    if usable { Ok(()) } else { Err(RequestError::ClipNorm { section, clip_norm }) }
}
