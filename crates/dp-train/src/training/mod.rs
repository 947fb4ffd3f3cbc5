//! Training: the state of a private run, one step at a time.
//!
//! One step of the paper's Algorithm 1:
//!
//! 1. the next batch is entered in the ledger, which refuses what the plan does not cover;
//! 2. the caller adds the gradients of its examples to a sum, which clips them;
//! 3. the mechanism adds the noise of the step and divides by the batch size;
//! 4. momentum and decay move the parameters.
//!
//! Beside the parameters a run can keep an [average](average::Average) of its iterates.

use thiserror::Error;

use crate::batches::{Batches, NoBatch};
use crate::gradient::{ClipCounts, ClippedSum, GradientError, PrivateGradient};
use crate::ledger::{Ledger, Violation};
use crate::mechanism::{Mechanism, MechanismError};
use crate::parting::LargePart;
use crate::plan::DpPlan;
#[cfg(feature = "burn")]
use crate::seeds::Draws;
use crate::seeds::{KeyOrigin, NoEntropy, NoiseKey, RunSeed};

pub mod average;
pub mod checkpoint;
mod descent;
pub mod non_private;
#[cfg(feature = "gpu")]
mod noise_ahead;
#[cfg(feature = "gpu")]
pub mod resident;
#[cfg(feature = "gpu")]
pub mod rig;

use average::{Average, AverageError, Running};
use descent::{Descent, Rates};

/// A run of a plan: parameters, momentum, noise and ledger move together or not at all.
///
/// # Guarantees
/// * A batch is entered in the ledger before its examples are given out.
/// * What is made private is a sum of the plan's dimension and clip norm, of at most as many examples as the batch
///   has.
/// * After an error no further step is taken: a run that fell out of step with its noise has ended.
#[derive(Debug, PartialEq)]
pub struct Training {
    plan: DpPlan,
    descent: Descent,
    mechanism: Mechanism,
    ledger: Ledger,
}

impl Training {
    /// A run before its first step, with the order of `examples` from the seed, or their slots from the key if the plan
    /// is for balls-in-bins. The learning rate is multiplied by the plan's rate of the step, if it has a schedule.
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
        let batches = Batches::of(request, examples, seed, &key)?;
        if batches.cycle() < request.min_separation {
            return Err(TrainingError::Separation {
                planned: request.min_separation,
                found: batches.cycle(),
            });
        }
        if let Some(planned) = request.examples.filter(|&planned| planned != u64::from(examples)) {
            return Err(TrainingError::OtherExamples { planned, found: examples });
        }
        let mechanism = Mechanism::new(&plan, key)?;
        let ledger = Ledger::new(plan.participation(), examples)?;
        let rates = Rates { learning_rate, factors: request.learning_rates.clone() };
        rates.check()?;
        let descent = Descent::new(request.sgd, rates, parameters, batches, seed);
        Ok(Self { plan, descent, mechanism, ledger })
    }

    /// Keeps an average of the iterates beside them, from the first step on: O(d) a step, and 8 bytes a parameter. It is
    /// post-processing of what is released: the guarantee of the run covers it.
    ///
    /// # Errors
    /// [`TrainingError::Average`] if its number cannot be used, or if steps are taken already.
    pub fn with_average(mut self, average: Average) -> Result<Self, TrainingError> {
        self.descent.keep(average, self.plan.participation().steps())?;
        Ok(self)
    }

    /// Takes one step. `fill` is called with the parameters, the examples of the batch and an empty sum of the
    /// plan, to which it adds each example's gradient: one by one with [`ClippedSum::add`], or as an engine's
    /// clipped sum (`*sum = ...`). An example that is left out counts as zero; the noise is the same.
    ///
    /// Where batches are secret, sums of an engine are to be those of the [parts](crate::parting::Parting) of a batch, added
    /// up with [`ClippedSum::add_sum`]: only so is their rounding covered.
    ///
    /// That each gradient is one example's, and each example of the batch is added once, is up to `fill`: what is
    /// added as one example's moves the sum by at most the clip norm, whatever it is.
    ///
    /// # Errors
    /// Those of `fill`, and [`TrainingError`]: among them, sums of another clip norm or dimension or of more
    /// examples than the batch has. The run has ended then.
    pub fn step<E: From<TrainingError>>(
        &mut self,
        fill: impl FnOnce(&[f32], &[u32], &mut ClippedSum) -> Result<(), E>,
    ) -> Result<ClipCounts, E> {
        let mut counts = ClipCounts::default();
        let Self { descent, mechanism, ledger, .. } = self;
        descent.step(|step, parameters, batch| {
            let fill = |sum: &mut ClippedSum| fill(parameters, batch, sum);
            let (gradient, seen) = private_gradient(mechanism, ledger, step, batch, fill)?;
            counts = seen;
            Ok::<_, E>(gradient)
        })?;
        Ok(counts)
    }

    /// Releases the gradient of the next batch and moves nothing: for an optimizer of one's own, which keeps the parameters. What
    /// it does with released gradients is post-processing, covered by the guarantee whatever it is; but the plan's error is that of
    /// SGD with the plan's momentum and decay, and the parameters, momentum and average in here stay as they began.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn release<E: From<TrainingError>>(
        &mut self,
        fill: impl FnOnce(&[u32], &mut ClippedSum) -> Result<(), E>,
    ) -> Result<(PrivateGradient, ClipCounts), E> {
        let Self { descent, mechanism, ledger, .. } = self;
        descent.advance(|step, _, batch| {
            private_gradient(mechanism, ledger, step, batch, |sum| fill(batch, sum))
        })
    }

    /// The learning rate of a step.
    ///
    /// # Panics
    /// If the plan has a schedule and no such step.
    pub fn learning_rate(&self, step: usize) -> f32 {
        self.descent.rates.at(step)
    }

    /// What is run.
    pub fn plan(&self) -> &DpPlan {
        &self.plan
    }

    /// The parameters after the last step.
    pub fn parameters(&self) -> &[f32] {
        &self.descent.parameters
    }

    /// The average of the iterates so far, rounded to f32: a copy, from which nothing leads back into a step. None
    /// if none is kept, or before its first iterate. O(d).
    pub fn average(&self) -> Option<Vec<f32>> {
        self.descent.average.as_ref().and_then(Running::parameters)
    }

    /// Steps taken so far.
    pub fn steps_taken(&self) -> usize {
        self.mechanism.next_step()
    }

    /// Whether all steps of the plan are taken.
    pub fn is_finished(&self) -> bool {
        self.steps_taken() == self.plan.participation().steps()
    }

    /// What the draws of the next step's layers are seeded from.
    #[cfg(feature = "burn")]
    pub(crate) fn draws(&self) -> Draws {
        self.mechanism.key().draws(self.steps_taken() as u64)
    }

    /// The examples of a step.
    #[cfg(feature = "learner")]
    pub(crate) fn batch(&self, step: usize) -> std::borrow::Cow<'_, [u32]> {
        self.descent.batches.batch(step)
    }

    /// Steps after which an example may come again: one pass over the data, unless batches are Poisson.
    pub fn cycle(&self) -> usize {
        self.descent.batches.cycle()
    }

    /// Examples that are never used because they do not fill a batch.
    pub fn dropped_examples(&self) -> usize {
        self.descent.batches.dropped()
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

/// Enters the batch of a step in the ledger, has it summed, and adds the noise of the step.
fn private_gradient<E: From<TrainingError>>(
    mechanism: &mut Mechanism,
    ledger: &mut Ledger,
    step: usize,
    batch: &[u32],
    fill: impl FnOnce(&mut ClippedSum) -> Result<(), E>,
) -> Result<(PrivateGradient, ClipCounts), E> {
    if ledger.next_step() != step || mechanism.next_step() != step {
        return Err(TrainingError::Ended.into());
    }
    ledger.record(step, batch).map_err(TrainingError::from)?;
    let mut sum = mechanism.empty_sum();
    fill(&mut sum)?;
    let counts = sum.counts();
    if counts.examples > batch.len() {
        let (batch, found) = (batch.len(), counts.examples);
        return Err(TrainingError::Examples { batch, found }.into());
    }
    // The mechanism checks the clip norm and the dimension of what may be another sum by now.
    Ok((mechanism.privatize(sum).map_err(TrainingError::from)?, counts))
}

/// Why a run cannot start or go on.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum TrainingError {
    /// The model has another number of parameters than the plan.
    #[error("the plan is for {expected} parameters, but the model has {found}")]
    Dimension {
        /// Of the plan.
        expected: usize,
        /// Of the model.
        found: usize,
    },
    /// The learning rate is not a positive finite number.
    #[error("the learning rate must be positive and finite, but it is {learning_rate}")]
    LearningRate {
        /// The value given.
        learning_rate: f32,
    },
    /// Not one factor of the learning rate per step.
    #[error("{expected} steps need a learning rate each, but there are {found}")]
    Rates {
        /// Steps.
        expected: usize,
        /// Factors that were given.
        found: usize,
    },
    /// The data set has too few batches to keep the uses of an example as far apart as planned.
    #[error(
        "the plan keeps two uses of an example {planned} steps apart, but the data has only {found} \
         batches"
    )]
    Separation {
        /// `b` of the plan.
        planned: usize,
        /// Batches in the data set.
        found: usize,
    },
    /// The probability of a Poisson batch is for another number of examples.
    #[error("the plan is for {planned} examples, but the data has {found}")]
    OtherExamples {
        /// `N` of the plan.
        planned: u64,
        /// Of the data.
        found: u32,
    },
    /// A sum has more examples than the batch: some example would count twice.
    #[error("the batch has {batch} examples, but the sum has {found}")]
    Examples {
        /// Examples in the batch.
        batch: usize,
        /// Examples in the sum.
        found: usize,
    },
    /// No batch can be filled.
    #[error(transparent)]
    Batches(#[from] NoBatch),
    /// The operating system has no random bytes.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// A step that the plan does not cover.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A gradient cannot be added.
    #[error(transparent)]
    Gradient(#[from] GradientError),
    /// The mechanism refused.
    #[error(transparent)]
    Mechanism(#[from] MechanismError),
    /// An average that cannot be kept.
    #[error(transparent)]
    Average(#[from] AverageError),
    /// A batch that cannot be cut into parts.
    #[error(transparent)]
    Parts(#[from] LargePart),
    /// An earlier step failed.
    #[error("an earlier step failed, and the run has ended with it")]
    Ended,
}
