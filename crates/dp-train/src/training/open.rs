//! Training without privacy: the same batches, momentum, schedule and checkpoints, and no noise.
//!
//! To compare with, and to see what a model could do. Its types are its own, so that no part of it can
//! be taken for a private run: there is no plan, no ledger and no certificate here, and what reaches the
//! parameters is a [`NonPrivateGradient`].
//!
//! ```
//! use dp_train::gradient::NonPrivateGradient;
//! use dp_train::seeds::RunSeed;
//! use dp_train::training::TrainingError;
//! use dp_train::training::open::{OpenRequest, OpenTraining};
//! use mf_core::Sgd;
//!
//! // The mean of 0, 1, ..., 9 by gradient descent.
//! let request = OpenRequest {
//!     sgd: Sgd::new(1.0, 0.0)?,
//!     learning_rate: 0.1,
//!     factors: None,
//!     steps: 100,
//!     batch_size: 10,
//!     dim: 1,
//! };
//! let mut training = OpenTraining::new(request, vec![0.0], 10, RunSeed(0))?;
//! while !training.is_finished() {
//!     training.step(|parameters, batch| -> Result<_, TrainingError> {
//!         let sum = batch.iter().map(|&example| parameters[0] - example as f32).sum();
//!         Ok(NonPrivateGradient::mean(vec![sum], batch.len()))
//!     })?;
//! }
//! assert!((training.parameters()[0] - 4.5).abs() < 1e-3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::{self, Read, Write};

use mf_core::Sgd;

use super::checkpoint::{ResumeError, check_seal};
use super::parts::{Parts, Sealed, rates_digest};
use super::{TrainingError, rate_of};
use crate::batches::Batches;
use crate::gradient::NonPrivateGradient;
use crate::seal::Seal;
use crate::seeds::RunSeed;
use crate::update::Momentum;

const VERSION: &[u8; 16] = b"bandroot open 02";

/// What is to be run without privacy.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenRequest {
    /// `alpha` and `beta` of the optimizer.
    pub sgd: Sgd,
    /// The learning rate, times the factor of the step.
    pub learning_rate: f32,
    /// One factor per step; none for a constant rate.
    pub factors: Option<Vec<f64>>,
    /// `n`, the number of steps.
    pub steps: usize,
    /// Examples in a batch.
    pub batch_size: usize,
    /// `d`, the number of parameters.
    pub dim: usize,
}

/// A run without privacy: parameters, momentum and the place in the order.
#[derive(Debug, PartialEq)]
pub struct OpenTraining {
    request: OpenRequest,
    seed: RunSeed,
    parameters: Vec<f32>,
    momentum: Momentum,
    batches: Batches,
    taken: usize,
    ended: bool,
}

impl OpenTraining {
    /// A run before its first step. With the same seed, examples come in the same order as in a private
    /// run.
    ///
    /// # Errors
    /// [`TrainingError`] if data, model or rates are not those of the request.
    pub fn new(
        request: OpenRequest,
        parameters: Vec<f32>,
        examples: u32,
        seed: RunSeed,
    ) -> Result<Self, TrainingError> {
        if parameters.len() != request.dim {
            let (expected, found) = (request.dim, parameters.len());
            return Err(TrainingError::Dimension { expected, found });
        }
        let factors = request.factors.as_deref();
        if let Some(factors) = factors.filter(|factors| factors.len() != request.steps) {
            let (expected, found) = (request.steps, factors.len());
            return Err(TrainingError::Rates { expected, found });
        }
        for step in 0..factors.map_or(1, <[f64]>::len) {
            let learning_rate = rate_of(request.learning_rate, factors, step);
            if !(learning_rate > 0.0 && learning_rate.is_finite()) {
                return Err(TrainingError::LearningRate { learning_rate });
            }
        }
        let batches = Batches::new(examples, request.batch_size, seed)?;
        let momentum = Momentum::new(request.sgd, parameters.len());
        Ok(Self { request, seed, parameters, momentum, batches, taken: 0, ended: false })
    }

    /// Takes one step. `gradient` is given the parameters and the examples of the batch.
    ///
    /// # Errors
    /// Those of `gradient`, and [`TrainingError::Ended`] after the last step or after an error.
    pub fn step<E: From<TrainingError>>(
        &mut self,
        gradient: impl FnOnce(&[f32], &[u32]) -> Result<NonPrivateGradient, E>,
    ) -> Result<(), E> {
        if self.ended || self.is_finished() {
            return Err(TrainingError::Ended.into());
        }
        self.ended = true;
        let gradient = gradient(&self.parameters, self.batches.batch(self.taken))?;
        let rate = self.learning_rate(self.taken);
        self.momentum.step_without_privacy(&mut self.parameters, gradient, rate);
        self.taken += 1;
        self.ended = false;
        Ok(())
    }

    /// The learning rate of a step.
    ///
    /// # Panics
    /// If there is a schedule and no such step.
    pub fn learning_rate(&self, step: usize) -> f32 {
        rate_of(self.request.learning_rate, self.request.factors.as_deref(), step)
    }

    /// What is run.
    pub fn request(&self) -> &OpenRequest {
        &self.request
    }

    /// The parameters after the last step.
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// Steps taken so far.
    pub fn steps_taken(&self) -> usize {
        self.taken
    }

    /// Whether all steps are taken.
    pub fn is_finished(&self) -> bool {
        self.taken == self.request.steps
    }

    /// Writes the state, with the seal that a continuation must agree with and a note of the caller's. O(d).
    ///
    /// # Errors
    /// Those of the writer.
    pub fn save(&self, mut writer: impl Write, seal: &Seal, note: &[u8]) -> io::Result<()> {
        let OpenRequest { sgd, learning_rate, factors, steps, batch_size, .. } = &self.request;
        let mut parts = Parts::new(VERSION);
        parts.put(&serde_json::to_vec(seal)?);
        parts.put_array(&self.seed.0.to_le_bytes());
        parts.put_array(&rates_digest(*learning_rate, factors.as_deref()));
        let examples = self.batches.per_epoch() * batch_size + self.batches.dropped();
        for size in [*steps, *batch_size, examples, self.taken] {
            parts.put_array(&(size as u64).to_le_bytes());
        }
        for number in [sgd.decay_factor(), sgd.momentum()] {
            parts.put_array(&number.to_bits().to_le_bytes());
        }
        parts.put_floats(&self.parameters);
        parts.put_floats(self.momentum.buffer());
        parts.put(note);
        writer.write_all(&parts.seal())
    }

    /// The run that [`save`](Self::save) wrote, and the note.
    ///
    /// # Errors
    /// [`ResumeError`] if the bytes are damaged, were sealed for something else, or belong to another request,
    /// seed or data set.
    pub fn load(
        request: OpenRequest,
        examples: u32,
        seed: RunSeed,
        seal: &Seal,
        reader: impl Read,
    ) -> Result<(Self, Vec<u8>), ResumeError> {
        let mut parts = Sealed::new(reader, VERSION)?;
        let sealed = parts.part()?;
        let found_seed = RunSeed(u64::from_le_bytes(parts.array()?));
        let found_rates: [u8; 32] = parts.array()?;
        let mut number = || parts.array().map(u64::from_le_bytes);
        let (found, taken) = ([number()?, number()?, number()?], number()?);
        let found_sgd = [number()?, number()?];
        let (parameters, buffer) = (parts.floats()?, parts.floats()?);
        let note = parts.part()?;
        parts.open()?;
        check_seal(&sealed, seal)?;
        let sgd = [request.sgd.decay_factor(), request.sgd.momentum()].map(f64::to_bits);
        let rates = rates_digest(request.learning_rate, request.factors.as_deref());
        let sizes = [request.steps, request.batch_size, examples as usize].map(|size| size as u64);
        let lengths = [parameters.len(), buffer.len()];
        if (found_seed, found_rates, found, found_sgd) != (seed, rates, sizes, sgd)
            || lengths != [request.dim; 2]
            || taken > request.steps as u64
        {
            return Err(ResumeError::OtherRun);
        }
        let momentum = Momentum::with_buffer(request.sgd, buffer);
        let training = Self::new(request, parameters, examples, seed);
        let training = training.map_err(|_| ResumeError::OtherRun)?;
        Ok((Self { momentum, taken: taken as usize, ..training }, note))
    }
}
