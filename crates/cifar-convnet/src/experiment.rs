//! From a config to what is run: epochs and batches become `n`, `b` and `k`, layers a model, and these a plan.

use dp_train::NonPrivateRequest;
use dp_train::calibration;
use dp_train::model::Architecture;
use dp_train::plan::{DpPlan, PlanError, PlanRequest, Sampling};
use dp_train::training::average::Average;
use mf_core::Sgd;

use crate::config::error::ConfigError;
use crate::config::privacy::{Guarantee, Privacy};
use crate::config::{self, Config, Noise, Record};
use crate::data::Dataset;
use crate::data::features::Mirrored;
use crate::factorizations::{Choice, Solver};

/// What is run: everything that is settled before any data is read, each computed once.
#[derive(Debug)]
pub struct Experiment {
    /// The file that it was made from, with all defaults.
    pub config: Config,
    /// What reaches the weights.
    pub kind: Kind,
    /// The layers of the model.
    pub architecture: Architecture,
    /// How long it is.
    pub steps: Steps,
}

/// With or without a guarantee.
#[derive(Debug)]
pub enum Kind {
    /// By a plan, whose noise is part of every step.
    Private(Box<DpPlan>),
    /// `privacy = "none"`.
    NonPrivate(NonPrivateRequest),
}

/// Why a config is no experiment.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// A key that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A request that has no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl Experiment {
    /// Makes the plan and the model. The cost is that of the factorization.
    ///
    /// # Errors
    /// [`ExperimentError`] names the key that is wrong.
    pub fn new(config: Config, solver: &mut Solver<'_>) -> Result<Self, ExperimentError> {
        let kind = match &config.privacy {
            Privacy::Guaranteed(_) => Kind::Private(Box::new(solver.plan(config.plan_request()?)?)),
            Privacy::None => Kind::NonPrivate(config.non_private_request()?),
        };
        let architecture = config.model.architecture(&config.data)?;
        let steps = config.steps()?;
        Ok(Self { config, kind, architecture, steps })
    }
}

/// Most views of an example in a step; more do not fit beside a batch.
const MOST_VIEWS: usize = 1024;

/// Steps of the longest run: a schedule has a number for each of them.
const MOST_STEPS: usize = 1 << 22;

/// How long a run is: an epoch is `b = examples / batch_size` steps, rounded down, because the remainder
/// is dropped; an example takes part once per epoch, so `k = epochs` and `n = k b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// `b`, the steps of one epoch.
    pub per_epoch: usize,
    /// `n`, all steps.
    pub total: usize,
}

impl Config {
    /// That a run can be made of it, as far as that is known without data and factorization.
    pub fn check(&self) -> Result<(), ConfigError> {
        match &self.privacy {
            Privacy::None => self.non_private_request().map(drop),
            Privacy::Guaranteed(_) => self.plan_request().map(drop),
        }
    }

    /// The data set to train on and to be judged by, with features of mirror images where training or evaluation needs
    /// them.
    ///
    /// # Errors
    /// Those of [`Data::load_with`](config::data::Data::load_with).
    pub fn load_data(&self) -> anyhow::Result<Dataset> {
        let Self { data, evaluation, .. } = self;
        data.load_with(Mirrored { train: data.augmentation.flip, test: evaluation.mirror })
    }

    /// How long the run is, and that all numbers of the run besides privacy can be used.
    pub fn steps(&self) -> Result<Steps, ConfigError> {
        self.data.check()?;
        let (examples, batch_size) = (self.data.training_examples()?, self.training.batch_size);
        if batch_size == 0 || batch_size > examples {
            return Err(ConfigError::BatchSize { batch_size, examples });
        }
        if self.training.epochs == 0 {
            return Err(ConfigError::NoEpochs);
        }
        if self.data.judges_by_training_files() && self.training.record == Record::Public {
            return Err(ConfigError::NothingToShow);
        }
        let learning_rate = self.optimizer.learning_rate;
        // As it is used, in f32.
        if !(learning_rate as f32 > 0.0 && (learning_rate as f32).is_finite()) {
            return Err(ConfigError::LearningRate { learning_rate });
        }
        let (views, shape) = (&self.data.augmentation, self.data.shape()?);
        if shape.is_vector() && !views.is_off() {
            return Err(ConfigError::NoViews { name: self.data.name.as_str() });
        }
        self.evaluation.check(shape.is_vector(), self.data.name.as_str())?;
        self.average()?;
        if views.crop_padding == 0 && !views.padding.is_black() {
            return Err(ConfigError::NoPadding);
        }
        let (padding, side) = (views.crop_padding, shape.height.min(shape.width));
        let count = views.views;
        if !(1..=MOST_VIEWS).contains(&count) {
            return Err(ConfigError::Views { views: count, most: MOST_VIEWS });
        }
        if padding >= side {
            return Err(ConfigError::CropPadding { padding, side });
        }
        let per_epoch = examples / batch_size;
        let total = per_epoch.checked_mul(self.training.epochs);
        let total = total.filter(|&total| total <= MOST_STEPS);
        let total = total.ok_or(ConfigError::TooManySteps { most: MOST_STEPS })?;
        Ok(Steps { per_epoch, total })
    }

    /// The average of the iterates that is the result of the run, if it is not the last of them.
    pub fn average(&self) -> Result<Option<Average>, ConfigError> {
        self.training.average.as_ref().map(config::average::Average::rule).transpose()
    }

    fn sgd(&self) -> Result<Sgd, ConfigError> {
        Sgd::new(self.optimizer.decay_factor, self.optimizer.momentum)
            .map_err(ConfigError::Optimizer)
    }

    /// What is guaranteed, and the noise for it.
    fn guarantee(&self) -> Result<(&Guarantee, &Noise), ConfigError> {
        match (&self.privacy, &self.noise) {
            (Privacy::None, _) => Err(ConfigError::NotPrivate),
            (Privacy::Guaranteed(_), None) => Err(ConfigError::NoNoise),
            (Privacy::Guaranteed(guarantee), Some(noise)) => Ok((guarantee, noise)),
        }
    }

    /// Where aof stops.
    pub fn tolerance(&self) -> f64 {
        self.noise.as_ref().map_or_else(config::default_tolerance, |noise| noise.tolerance)
    }

    /// The request of the plan.
    pub fn plan_request(&self) -> Result<PlanRequest, ConfigError> {
        let (guarantee, noise) = self.guarantee()?;
        if self.optimizer.clip_norm.is_some() {
            return Err(ConfigError::TwoClipNorms);
        }
        if guarantee.trials == 0 {
            return Err(ConfigError::NoTrials);
        }
        // The plan would refuse them too, but only after the factorization.
        calibration::multiplier(guarantee.epsilon, guarantee.delta)
            .map_err(ConfigError::Privacy)?;
        checked_clip_norm("privacy", guarantee.clip_norm)?;
        let Steps { per_epoch, total } = self.steps()?;
        let choice = Choice {
            name: noise.method,
            bands: noise.bands,
            lambda: noise.lambda,
            buffers: noise.buffers,
            tolerance: noise.tolerance,
        };
        let method = choice.method(total, per_epoch).map_err(ConfigError::Method)?;
        let (min_separation, participations, examples) = match guarantee.sampling {
            Sampling::FixedOrder | Sampling::BallsInBins => (per_epoch, self.training.epochs, None),
            // An example may come again as soon as its group does.
            Sampling::Poisson | Sampling::CyclicPoisson => {
                let groups = method.size().unwrap_or(1).max(1);
                (groups, total.div_ceil(groups), Some(self.data.training_examples()? as u64))
            }
        };
        Ok(PlanRequest {
            sgd: self.sgd()?,
            learning_rates: self.optimizer.factors(total)?,
            workload_column: None,
            strategy_for: noise.strategy_for,
            method,
            steps: total,
            min_separation,
            max_participations: Some(participations),
            clip_norm: guarantee.clip_norm,
            batch_size: self.training.batch_size,
            epsilon: guarantee.epsilon,
            delta: guarantee.delta,
            neighbouring: guarantee.neighbouring,
            sampling: guarantee.sampling,
            examples,
            accountant: guarantee.accountant,
            dim: self.model.architecture(&self.data)?.parameter_count(),
            keep_rows: noise.keep_rows,
        })
    }

    /// The request of a run without privacy.
    pub fn non_private_request(&self) -> Result<NonPrivateRequest, ConfigError> {
        if self.training.record == Record::Public {
            return Err(ConfigError::NothingPublic);
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
            dim: self.model.architecture(&self.data)?.parameter_count(),
        })
    }
}

fn checked_clip_norm(section: &'static str, clip_norm: f64) -> Result<(), ConfigError> {
    let usable = clip_norm > 0.0 && clip_norm.is_finite();
    if usable { Ok(()) } else { Err(ConfigError::ClipNorm { section, clip_norm }) }
}
