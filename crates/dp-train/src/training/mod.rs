//! Training: the state of a private run, one step at a time.
//!
//! One step of the paper's Algorithm 1:
//!
//! 1. the next batch of the fixed order is entered in the ledger, which refuses what the plan does not cover;
//! 2. the model clips the gradients of its examples and adds them up;
//! 3. the mechanism adds the noise of the step and divides by the batch size;
//! 4. momentum and decay move the parameters.

use std::fmt;

use crate::batches::{Batches, NoBatch};
use crate::gradient::{ClipCounts, ClippedSum};
use crate::ledger::{Ledger, Violation};
use crate::mechanism::{Mechanism, MechanismError};
use crate::plan::DpPlan;
use crate::seeds::{KeyOrigin, NoEntropy, NoiseKey, RunSeed};
use crate::update::Momentum;

pub mod checkpoint;

pub mod open;

mod parts;

/// A run of a plan: parameters, momentum, noise and ledger move together or not at all.
///
/// # Guarantees
/// * Every example that reaches a gradient was entered in the ledger before.
/// * After an error no further step is taken: a run that fell out of step with its noise has ended.
#[derive(Debug, PartialEq)]
pub struct Training {
    plan: DpPlan,
    seed: RunSeed,
    /// Times the factor of the step, if the plan has a schedule.
    learning_rate: f32,
    parameters: Vec<f32>,
    momentum: Momentum,
    mechanism: Mechanism,
    batches: Batches,
    ledger: Ledger,
}

impl Training {
    /// A run before its first step, with the order of `examples` from the seed. The learning rate is
    /// multiplied by the plan's rate of the step, if it has a schedule.
    ///
    /// # Errors
    /// [`TrainingError`] if data, model or rate are not those of the plan.
    pub fn new(
        plan: DpPlan,
        parameters: Vec<f32>,
        examples: u32,
        learning_rate: f32,
        seed: RunSeed,
        key: NoiseKey,
    ) -> Result<Self, TrainingError> {
        let request = plan.request();
        if parameters.len() != request.dim {
            let (expected, found) = (request.dim, parameters.len());
            return Err(TrainingError::Dimension { expected, found });
        }
        if !(learning_rate > 0.0 && learning_rate.is_finite()) {
            return Err(TrainingError::LearningRate { learning_rate });
        }
        let batches = Batches::new(examples, request.batch_size, seed)?;
        if batches.per_epoch() < request.min_separation {
            return Err(TrainingError::Separation {
                planned: request.min_separation,
                found: batches.per_epoch(),
            });
        }
        let mechanism = Mechanism::new(&plan, key)?;
        let ledger = Ledger::new(plan.participation(), examples)?;
        let momentum = Momentum::new(request.sgd, parameters.len());
        Ok(Self { plan, seed, learning_rate, parameters, momentum, mechanism, batches, ledger })
    }

    /// Takes one step. `clip` is given the parameters and the examples of the batch.
    ///
    /// # Errors
    /// Those of `clip`, and [`TrainingError`]. The run has ended then.
    pub fn step<E: From<TrainingError>>(
        &mut self,
        clip: impl FnOnce(&[f32], &[u32]) -> Result<ClippedSum, E>,
    ) -> Result<ClipCounts, E> {
        let step = self.ledger.next_step();
        if step != self.mechanism.next_step() {
            return Err(TrainingError::Ended.into());
        }
        let batch = self.batches.batch(step);
        self.ledger.record(step, batch).map_err(TrainingError::from)?;
        let sum = clip(&self.parameters, batch)?;
        let counts = sum.counts();
        let gradient = self.mechanism.privatize(sum).map_err(TrainingError::from)?;
        let rate = self.learning_rate(step);
        self.momentum.step(&mut self.parameters, gradient, rate);
        Ok(counts)
    }

    /// The learning rate of a step.
    ///
    /// # Panics
    /// If the plan has a schedule and no such step.
    pub fn learning_rate(&self, step: usize) -> f32 {
        rate_of(self.learning_rate, self.plan.request().learning_rates.as_deref(), step)
    }

    /// What is run.
    pub fn plan(&self) -> &DpPlan {
        &self.plan
    }

    /// The parameters after the last step.
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// Steps taken so far.
    pub fn steps_taken(&self) -> usize {
        self.mechanism.next_step()
    }

    /// Whether all steps of the plan are taken.
    pub fn is_finished(&self) -> bool {
        self.steps_taken() == self.plan.participation().steps()
    }

    /// Steps of one pass over the data.
    pub fn steps_per_epoch(&self) -> usize {
        self.batches.per_epoch()
    }

    /// Examples that are never used because they do not fill a batch.
    pub fn dropped_examples(&self) -> usize {
        self.batches.dropped()
    }

    /// Who took part when.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Where the noise key came from.
    pub fn key_origin(&self) -> KeyOrigin {
        self.mechanism.key_origin()
    }
}

/// The rate of a step: the product is rounded once.
fn rate_of(learning_rate: f32, factors: Option<&[f64]>, step: usize) -> f32 {
    factors.map_or(learning_rate, |factors| (f64::from(learning_rate) * factors[step]) as f32)
}

/// Why a run cannot start or go on.
#[derive(Debug, Clone, PartialEq)]
pub enum TrainingError {
    /// The model has another number of parameters than the plan.
    Dimension {
        /// Of the plan.
        expected: usize,
        /// Of the model.
        found: usize,
    },
    /// The learning rate is not a positive finite number.
    LearningRate {
        /// The value given.
        learning_rate: f32,
    },
    /// Not one factor of the learning rate per step.
    Rates {
        /// Steps.
        expected: usize,
        /// Factors that were given.
        found: usize,
    },
    /// The data set has too few batches to keep the uses of an example as far apart as planned.
    Separation {
        /// `b` of the plan.
        planned: usize,
        /// Batches in the data set.
        found: usize,
    },
    /// No batch can be filled.
    Batches(NoBatch),
    /// The operating system has no random bytes.
    Entropy(NoEntropy),
    /// A step that the plan does not cover.
    Violation(Violation),
    /// The mechanism refused.
    Mechanism(MechanismError),
    /// An earlier step failed.
    Ended,
}

impl fmt::Display for TrainingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainingError::Dimension { expected, found } => {
                write!(f, "the plan is for {expected} parameters, but the model has {found}")
            }
            TrainingError::LearningRate { learning_rate } => {
                write!(
                    f,
                    "the learning rate must be positive and finite, but it is {learning_rate}"
                )
            }
            TrainingError::Rates { expected, found } => {
                write!(f, "{expected} steps need a learning rate each, but there are {found}")
            }
            TrainingError::Separation { planned, found } => write!(
                f,
                "the plan keeps two uses of an example {planned} steps apart, but the data has only \
                 {found} batches"
            ),
            TrainingError::Batches(error) => error.fmt(f),
            TrainingError::Entropy(error) => error.fmt(f),
            TrainingError::Violation(error) => error.fmt(f),
            TrainingError::Mechanism(error) => error.fmt(f),
            TrainingError::Ended => {
                write!(f, "an earlier step failed, and the run has ended with it")
            }
        }
    }
}

impl std::error::Error for TrainingError {}

macro_rules! from {
    ($($source:ty => $variant:ident),* $(,)?) => {
        $(impl From<$source> for TrainingError {
            fn from(error: $source) -> Self {
                TrainingError::$variant(error)
            }
        })*
    };
}

from! {
    NoBatch => Batches,
    NoEntropy => Entropy,
    Violation => Violation,
    MechanismError => Mechanism,
}
