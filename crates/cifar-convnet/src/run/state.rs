//! The state of a run, private or not, and its next step.

use std::io::BufRead;

use anyhow::{Context, bail};
use dp_train::engine::GradientEngine;
use dp_train::gradient::NonPrivateGradient;
use dp_train::seal::{Seal, SealDifference};
use dp_train::seeds::{NoiseKey, RunSeed};
use dp_train::training::Training;
use dp_train::training::checkpoint::ResumeError;
use dp_train::training::non_private::NonPrivateTraining;

use crate::data::Dataset;
use crate::experiment::{Experiment, Kind};
use crate::run::feed::Feed;
use crate::run::folder::RunFolder;
use crate::run::private::PrivateRun;
use crate::run::seen::Seen;
use crate::run::start::Start;

/// How a checkpoint begins that was written with privacy if this is without, and the other way round.
fn other_kind(kind: &Kind) -> &'static [u8] {
    match kind {
        Kind::Private(_) => b"bandroot open ",
        Kind::NonPrivate(_) => b"bandroot run ",
    }
}

/// What such a checkpoint is bound to that this is not.
fn other_privacy(kind: &Kind) -> SealDifference {
    let words = ["\"none\"", "a guarantee"].map(|word| Some(word.to_owned()));
    let [sealed, found] = match (kind, words) {
        (Kind::Private(_), words) => words,
        (Kind::NonPrivate(_), [none, guarantee]) => [guarantee, none],
    };
    SealDifference { key: "privacy".to_owned(), sealed, found }
}

/// A run under way.
#[derive(Debug)]
pub(super) enum State {
    /// Every step goes through the mechanism.
    Private(PrivateRun),
    /// `privacy = "none"`; clipped to a norm if there is one.
    NonPrivate(Box<NonPrivateTraining>, Option<f64>),
}

impl State {
    /// A run before its first step.
    pub(super) fn begin(
        experiment: &Experiment,
        data: &Dataset,
        start: &Start,
    ) -> anyhow::Result<State> {
        let Experiment { config, kind, architecture, .. } = experiment;
        let (seed, examples) = (RunSeed(config.training.seed), examples(data)?);
        let mut parameters = config.model.initialization().draw(architecture, seed);
        start.apply(architecture, &mut parameters)?;
        Ok(match kind {
            Kind::Private(plan) => {
                let key = match config.privacy.noise_seed() {
                    Some(seed) => NoiseKey::fixed(RunSeed(seed)),
                    None => NoiseKey::from_os()?,
                };
                let (plan, rate) = (plan.as_ref().clone(), config.optimizer.learning_rate as f32);
                let mut training = Training::new(plan, parameters, examples, rate, seed, key)?;
                if let Some(average) = config.average()? {
                    training = training.with_average(average)?;
                }
                State::Private(PrivateRun::new(training))
            }
            Kind::NonPrivate(request) => {
                let mut training =
                    NonPrivateTraining::new(request.clone(), parameters, examples, seed)?;
                if let Some(average) = config.average()? {
                    training = training.with_average(average)?;
                }
                State::NonPrivate(Box::new(training), config.optimizer.clip_norm)
            }
        })
    }

    /// A run from its newest checkpoint, with the note in it.
    ///
    /// # Errors
    /// If there is none, or if it is bound to something else than `seal`.
    pub(super) fn load(
        experiment: &Experiment,
        data: &Dataset,
        folder: &RunFolder,
        seal: &Seal,
    ) -> anyhow::Result<(State, Vec<u8>)> {
        let Experiment { config, kind, .. } = experiment;
        let (seed, examples) = (RunSeed(config.training.seed), examples(data)?);
        let loaded = folder.load_checkpoint(|mut file| {
            if file.fill_buf()?.starts_with(other_kind(kind)) {
                return Err(ResumeError::Sealed(other_privacy(kind)));
            }
            match kind {
                Kind::Private(plan) => {
                    let (plan, rate) =
                        (plan.as_ref().clone(), config.optimizer.learning_rate as f32);
                    let loaded = Training::load(plan, examples, rate, seed, seal, file);
                    loaded.map(|(training, note)| (State::Private(PrivateRun::new(training)), note))
                }
                Kind::NonPrivate(request) => {
                    let loaded =
                        NonPrivateTraining::load(request.clone(), examples, seed, seal, file);
                    let clip_norm = config.optimizer.clip_norm;
                    let state = |training| State::NonPrivate(Box::new(training), clip_norm);
                    loaded.map(|(training, note)| (state(training), note))
                }
            }
        })?;
        let Some((state, note)) = loaded else {
            let finished = if folder.is_finished() { ": the run is finished" } else { "" };
            bail!("{} has no checkpoint to continue from{finished}", folder.path().display());
        };
        // The seal agreed: what is repeated gives the same numbers.
        if let State::Private(run) = &state {
            folder.check_continuation(run.training().ledger())?;
        }
        Ok((state, note))
    }

    pub(super) fn parameters(&self) -> &[f32] {
        match self {
            State::Private(run) => run.training().parameters(),
            State::NonPrivate(training, _) => training.parameters(),
        }
    }

    /// The average of the iterates, if one is kept and has begun.
    pub(super) fn average(&self) -> Option<Vec<f32>> {
        match self {
            State::Private(run) => run.training().average(),
            State::NonPrivate(training, _) => training.average(),
        }
    }

    pub(super) fn steps_taken(&self) -> usize {
        match self {
            State::Private(run) => run.steps_taken(),
            State::NonPrivate(training, _) => training.steps_taken(),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        match self {
            State::Private(run) => run.is_finished(),
            State::NonPrivate(training, _) => training.is_finished(),
        }
    }

    /// The learning rate of a step.
    pub(super) fn learning_rate(&self, step: usize) -> f32 {
        match self {
            State::Private(run) => run.learning_rate(step),
            State::NonPrivate(training, _) => training.learning_rate(step),
        }
    }

    /// All of it as bytes, with the seal that a continuation must agree with and a note.
    pub(super) fn bytes(&self, seal: &Seal, note: &[u8]) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self {
            State::Private(run) => run.training().save(&mut bytes, seal, note)?,
            State::NonPrivate(training, _) => training.save(&mut bytes, seal, note)?,
        }
        Ok(bytes)
    }

    /// Brings the run to the engine's device, if that can keep it.
    ///
    /// # Errors
    /// If it does not fit there.
    pub(super) fn move_to(
        self,
        engine: &mut (dyn GradientEngine + 'static),
        feed: &Feed<'_>,
    ) -> anyhow::Result<State> {
        Ok(match self {
            State::Private(run) => State::Private(run.move_to(engine, feed)?),
            State::NonPrivate(..) => self,
        })
    }

    /// Waits for a device that keeps the run. What its steps saw since the last time, none without such a device.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn read(
        &mut self,
        engine: &mut (dyn GradientEngine + 'static),
    ) -> anyhow::Result<Vec<Seen>> {
        match self {
            State::Private(run) => run.read(engine),
            State::NonPrivate(..) => Ok(Vec::new()),
        }
    }

    /// Whether a device is to be read before the next step.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, State::Private(run) if run.is_full())
    }

    /// Takes one step. What it saw, unless that is to be [read](Self::read).
    pub(super) fn step(
        &mut self,
        engine: &mut (dyn GradientEngine + 'static),
        feed: &mut Feed<'_>,
    ) -> anyhow::Result<Option<Seen>> {
        let step = self.steps_taken();
        let mut seen = Seen::default();
        match self {
            State::Private(run) => return run.step(engine, feed),
            State::NonPrivate(training, clip_norm) => {
                let clip_norm = *clip_norm;
                training.step(|parameters, batch| -> anyhow::Result<_> {
                    let examples = batch.len();
                    seen.examples = examples;
                    let batch = feed.load(step, batch);
                    let Some(clip_norm) = clip_norm else {
                        let (sum, metrics) = engine.gradient_sum(parameters, batch)?;
                        seen.metrics = metrics;
                        return Ok(NonPrivateGradient::mean(sum, metrics.images));
                    };
                    let (sum, metrics) = engine.clipped_sum(parameters, batch, clip_norm)?;
                    seen.metrics = metrics;
                    seen.clipped = Some(sum.counts().clipped);
                    Ok(NonPrivateGradient::mean_of_clipped(sum, examples))
                })?;
            }
        }
        Ok(Some(seen))
    }
}

/// The number of examples as the order of batches counts them.
fn examples(data: &Dataset) -> anyhow::Result<u32> {
    u32::try_from(data.train.len()).context("too many examples")
}
