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
//! use dp_train::training::non_private::{NonPrivateRequest, NonPrivateTraining};
//! use mf_core::Sgd;
//!
//! // The mean of 0, 1, ..., 9 by gradient descent.
//! let request = NonPrivateRequest {
//!     sgd: Sgd::new(1.0, 0.0)?,
//!     learning_rate: 0.1,
//!     factors: None,
//!     steps: 100,
//!     batch_size: 10,
//!     dim: 1,
//! };
//! let mut training = NonPrivateTraining::new(request, vec![0.0], 10, RunSeed(0))?;
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
use mf_core::sealed::{SealedReader, SealedWriter};

use super::TrainingError;
use super::average::{self, Average, Running};
use super::checkpoint::{Identity, ResumeError, check_end};
use super::descent::{Descent, Rates};
use crate::batches::Batches;
use crate::gradient::NonPrivateGradient;
use crate::seal::Seal;
use crate::seeds::RunSeed;

const VERSION: &[u8; 16] = b"bandroot open 03";

/// What is to be run without privacy.
#[derive(Debug, Clone, PartialEq)]
pub struct NonPrivateRequest {
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

/// A run without privacy.
#[derive(Debug, PartialEq)]
pub struct NonPrivateTraining {
    request: NonPrivateRequest,
    descent: Descent,
}

impl NonPrivateTraining {
    /// A run before its first step. With the same seed, examples come in the same order as in a private
    /// run.
    ///
    /// # Errors
    /// [`TrainingError`] if data, model or rates are not those of the request.
    pub fn new(
        request: NonPrivateRequest,
        parameters: Vec<f32>,
        examples: u32,
        seed: RunSeed,
    ) -> Result<Self, TrainingError> {
        if parameters.len() != request.dim {
            let (expected, found) = (request.dim, parameters.len());
            return Err(TrainingError::Dimension { expected, found });
        }
        if let Some(factors) = request.factors.as_ref().filter(|f| f.len() != request.steps) {
            let (expected, found) = (request.steps, factors.len());
            return Err(TrainingError::Rates { expected, found });
        }
        let rates = request.rates();
        rates.check()?;
        let batches = Batches::new(examples, request.batch_size, seed)?;
        let descent = Descent::new(request.sgd, rates, parameters, batches, seed);
        Ok(Self { request, descent })
    }

    /// Keeps an average of the iterates beside them, from the first step on: O(d) a step, and 8 bytes a parameter.
    ///
    /// # Errors
    /// [`TrainingError::Average`] if its number cannot be used, or if steps are taken already.
    pub fn with_average(mut self, average: Average) -> Result<Self, TrainingError> {
        self.descent.keep(average, self.request.steps)?;
        Ok(self)
    }

    /// Takes one step. `gradient` is called with the parameters and the examples of the batch.
    ///
    /// # Errors
    /// Those of `gradient`, and [`TrainingError::Ended`] after the last step or after an error.
    pub fn step<E: From<TrainingError>>(
        &mut self,
        gradient: impl FnOnce(&[f32], &[u32]) -> Result<NonPrivateGradient, E>,
    ) -> Result<(), E> {
        if self.is_finished() {
            return Err(TrainingError::Ended.into());
        }
        self.descent.step(|_, parameters, batch| gradient(parameters, batch))
    }

    /// The learning rate of a step.
    ///
    /// # Panics
    /// If there is a schedule and no such step.
    pub fn learning_rate(&self, step: usize) -> f32 {
        self.descent.rates.at(step)
    }

    /// What is run.
    pub fn request(&self) -> &NonPrivateRequest {
        &self.request
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
        self.descent.taken
    }

    /// Whether all steps are taken.
    pub fn is_finished(&self) -> bool {
        self.descent.taken == self.request.steps
    }

    /// Writes the state, with the seal that a continuation must agree with and a note of the caller's. O(d).
    ///
    /// # Errors
    /// Those of the writer.
    pub fn save(&self, writer: impl Write, seal: &Seal, note: &[u8]) -> io::Result<()> {
        let NonPrivateRequest { sgd, steps, batch_size, .. } = &self.request;
        let Descent { batches, taken, .. } = &self.descent;
        let mut file = SealedWriter::new(writer, VERSION)?;
        self.descent.put_identity(&mut file, seal)?;
        let examples = batches.cycle() * batch_size + batches.dropped();
        for size in [*steps, *batch_size, examples, *taken] {
            file.put(&(size as u64).to_le_bytes())?;
        }
        for number in [sgd.decay_factor(), sgd.momentum()] {
            file.put(&number.to_bits().to_le_bytes())?;
        }
        self.descent.put_state(&mut file)?;
        file.put_part(note)?;
        file.finish()?;
        Ok(())
    }

    /// The run that [`save`](Self::save) wrote, and the note. An average that it kept goes on.
    ///
    /// # Errors
    /// [`ResumeError`] if the bytes are damaged, were sealed for something else, or belong to another request,
    /// seed or data set.
    pub fn load(
        request: NonPrivateRequest,
        examples: u32,
        seed: RunSeed,
        seal: &Seal,
        reader: impl Read,
    ) -> Result<(Self, Vec<u8>), ResumeError> {
        let mut file = SealedReader::new(reader, VERSION)?;
        let identity = Identity::read(&mut file)?;
        let mut number = || file.array().map(u64::from_le_bytes);
        let (found, taken) = ([number()?, number()?, number()?], number()?);
        let found_sgd = [number()?, number()?];
        let (parameters, momentum) = (file.floats()?, file.floats()?);
        let average = average::read(&mut file, request.steps, parameters.len())?;
        let note = file.part()?;
        check_end(file.finish()?)?;
        identity.check(seal, seed, &request.rates())?;
        let sgd = [request.sgd.decay_factor(), request.sgd.momentum()].map(f64::to_bits);
        let sizes = [request.steps, request.batch_size, examples as usize].map(|size| size as u64);
        let lengths = [parameters.len(), momentum.len()];
        if (found, found_sgd) != (sizes, sgd)
            || lengths != [request.dim; 2]
            || taken > request.steps as u64
        {
            return Err(ResumeError::OtherRun);
        }
        let sgd = request.sgd;
        let Self { request, descent } =
            Self::new(request, parameters, examples, seed).map_err(|_| ResumeError::OtherRun)?;
        let descent = descent.resumed(sgd, momentum, taken as usize, average);
        Ok((Self { request, descent }, note))
    }
}

impl NonPrivateRequest {
    fn rates(&self) -> Rates {
        Rates { learning_rate: self.learning_rate, factors: self.factors.clone() }
    }
}
