//! The loop that private and non-private runs share: batches in a fixed order, a gradient, one step of SGD.
//!
//! What differs is where the gradient comes from. Its type says so: a [`PrivateGradient`] or a
//! [`NonPrivateGradient`], each with a step of its own.

use mf_core::Sgd;
use sha2::{Digest, Sha256};

use super::TrainingError;
use super::average::{Average, AverageError, Running};
use crate::batches::Batches;
use crate::gradient::{NonPrivateGradient, PrivateGradient};
use crate::seeds::RunSeed;
use crate::update::Momentum;

/// A gradient that may move parameters.
pub(super) trait Moves {
    /// Takes one step of SGD.
    fn apply(self, momentum: &mut Momentum, parameters: &mut [f32], learning_rate: f32);
}

impl Moves for PrivateGradient {
    fn apply(self, momentum: &mut Momentum, parameters: &mut [f32], learning_rate: f32) {
        momentum.step(parameters, self, learning_rate);
    }
}

impl Moves for NonPrivateGradient {
    fn apply(self, momentum: &mut Momentum, parameters: &mut [f32], learning_rate: f32) {
        momentum.step_without_privacy(parameters, self, learning_rate);
    }
}

/// The learning rates of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rates {
    /// Times the factor of the step, if there is a schedule.
    pub(super) learning_rate: f32,
    /// One factor per step; none for a constant rate.
    pub(super) factors: Option<Vec<f64>>,
}

impl Rates {
    /// The rate of a step: the product is rounded once.
    pub(super) fn at(&self, step: usize) -> f32 {
        let product = |factors: &Vec<f64>| (f64::from(self.learning_rate) * factors[step]) as f32;
        self.factors.as_ref().map_or(self.learning_rate, product)
    }

    /// SHA-256 of the rate and of the factor of every step: a run goes on with the rates that it began with.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.learning_rate.to_bits().to_le_bytes());
        for factor in self.factors.iter().flatten() {
            hash.update(factor.to_bits().to_le_bytes());
        }
        hash.finalize().into()
    }

    /// That every rate of a run is positive and finite.
    pub(super) fn check(&self) -> Result<(), TrainingError> {
        for step in 0..self.factors.as_ref().map_or(1, Vec::len) {
            let learning_rate = self.at(step);
            if !(learning_rate > 0.0 && learning_rate.is_finite()) {
                return Err(TrainingError::LearningRate { learning_rate });
            }
        }
        Ok(())
    }
}

/// The state of a run: parameters, momentum, the place in the order, and an average if one is kept.
#[derive(Debug, PartialEq)]
pub(super) struct Descent {
    pub(super) seed: RunSeed,
    pub(super) rates: Rates,
    pub(super) parameters: Vec<f32>,
    pub(super) momentum: Momentum,
    pub(super) batches: Batches,
    /// Steps taken.
    pub(super) taken: usize,
    /// Of the iterates so far; it is only ever read from outside.
    pub(super) average: Option<Running>,
    /// Whether a step failed: then there is no further one.
    ended: bool,
}

impl Descent {
    /// A run before its first step, with the order of `examples` from the seed.
    pub(super) fn new(
        sgd: Sgd,
        rates: Rates,
        parameters: Vec<f32>,
        batches: Batches,
        seed: RunSeed,
    ) -> Self {
        let momentum = Momentum::new(sgd, parameters.len());
        Self { seed, rates, parameters, momentum, batches, taken: 0, average: None, ended: false }
    }

    /// A run after `taken` steps.
    pub(super) fn resumed(
        self,
        sgd: Sgd,
        momentum: Vec<f32>,
        taken: usize,
        average: Option<Running>,
    ) -> Self {
        Self { momentum: Momentum::with_buffer(sgd, momentum), taken, average, ..self }
    }

    /// Keeps an average of the iterates of a run of `steps` steps.
    pub(super) fn keep(&mut self, average: Average, steps: usize) -> Result<(), AverageError> {
        if self.taken > 0 {
            return Err(AverageError::Begun { taken: self.taken });
        }
        self.average = Some(Running::new(average, steps, self.parameters.len())?);
        Ok(())
    }

    /// Takes one step with the gradient of the next batch. After an error there is no further step.
    pub(super) fn step<G: Moves, E: From<TrainingError>>(
        &mut self,
        gradient: impl FnOnce(usize, &[f32], &[u32]) -> Result<G, E>,
    ) -> Result<(), E> {
        let gradient = self.advance(gradient)?;
        gradient.apply(&mut self.momentum, &mut self.parameters, self.rates.at(self.taken - 1));
        if let Some(average) = &mut self.average {
            average.add(self.taken, &self.parameters);
        }
        Ok(())
    }

    /// Goes on to the next batch, the gradient of which moves nothing here.
    pub(super) fn advance<G, E: From<TrainingError>>(
        &mut self,
        gradient: impl FnOnce(usize, &[f32], &[u32]) -> Result<G, E>,
    ) -> Result<G, E> {
        if self.ended {
            return Err(TrainingError::Ended.into());
        }
        self.ended = true;
        let gradient = gradient(self.taken, &self.parameters, &self.batches.batch(self.taken))?;
        self.taken += 1;
        self.ended = false;
        Ok(gradient)
    }
}
