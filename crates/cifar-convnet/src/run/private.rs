//! A private run under way, here or on a GPU that keeps all of it.

#[cfg(feature = "gpu")]
use anyhow::Context;
use dp_train::engine::GradientEngine;
#[cfg(feature = "gpu")]
use dp_train::engine::{GpuEngine, StepSeen};
use dp_train::parting::Parting;
use dp_train::training::Training;
#[cfg(feature = "gpu")]
use dp_train::training::resident::ResidentTraining;

use crate::run::feed::Feed;
use crate::run::seen::Seen;

/// A private run.
#[derive(Debug)]
pub(super) enum PrivateRun {
    /// Its parameters are here; an engine is asked for sums.
    Here(Box<Training>),
    /// They are on a device, which is asked for nothing within an epoch.
    #[cfg(feature = "gpu")]
    OnDevice(Box<ResidentTraining>),
}

impl PrivateRun {
    pub(super) fn new(training: Training) -> Self {
        Self::Here(Box::new(training))
    }

    /// The run.
    ///
    /// # Panics
    /// If steps were taken on a device since it was last [read](Self::read).
    pub(super) fn training(&self) -> &Training {
        match self {
            Self::Here(training) => training,
            #[cfg(feature = "gpu")]
            Self::OnDevice(resident) => resident.training().expect("the device is read first"),
        }
    }

    #[cfg(feature = "gpu")]
    pub(super) fn is_on_device(&self) -> bool {
        matches!(self, Self::OnDevice(_))
    }

    pub(super) fn steps_taken(&self) -> usize {
        match self {
            Self::Here(training) => training.steps_taken(),
            #[cfg(feature = "gpu")]
            Self::OnDevice(resident) => resident.steps_taken(),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        match self {
            Self::Here(training) => training.is_finished(),
            #[cfg(feature = "gpu")]
            Self::OnDevice(resident) => resident.is_finished(),
        }
    }

    /// The learning rate of a step.
    pub(super) fn learning_rate(&self, step: usize) -> f32 {
        match self {
            Self::Here(training) => training.learning_rate(step),
            #[cfg(feature = "gpu")]
            Self::OnDevice(resident) => resident.learning_rate(step),
        }
    }

    /// Brings the run to the engine's device, if that can keep it, with its data set if it is one of bytes.
    ///
    /// # Errors
    /// If it does not fit there.
    pub(super) fn move_to(
        self,
        engine: &mut (dyn GradientEngine + 'static),
        feed: &Feed<'_>,
    ) -> anyhow::Result<Self> {
        #[cfg(feature = "gpu")]
        if let (Self::Here(_), Some(gpu)) = (&self, GpuEngine::of(engine)) {
            let Self::Here(training) = self else { return Ok(self) };
            let resident = ResidentTraining::new(*training, gpu, feed.stored())?;
            return Ok(Self::OnDevice(Box::new(resident)));
        }
        let _ = (engine, feed);
        Ok(self)
    }

    /// Waits for the device. What the steps saw since the last time; none if they are here.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn read(
        &mut self,
        engine: &mut (dyn GradientEngine + 'static),
    ) -> anyhow::Result<Vec<Seen>> {
        match self {
            Self::Here(_) => {
                let _ = engine;
                Ok(Vec::new())
            }
            #[cfg(feature = "gpu")]
            Self::OnDevice(resident) => {
                let gpu = GpuEngine::of(engine).context("the run is on a device that is gone")?;
                let (_, steps) = resident.read(gpu)?;
                let seen = steps.into_iter().map(|StepSeen { metrics, counts }| Seen {
                    metrics,
                    examples: counts.examples,
                    clipped: Some(counts.clipped),
                });
                Ok(seen.collect())
            }
        }
    }

    /// Takes one step. What it saw, unless that is to be [read](Self::read).
    ///
    /// # Errors
    /// Those of the engine and of the mechanism.
    pub(super) fn step(
        &mut self,
        engine: &mut (dyn GradientEngine + 'static),
        feed: &mut Feed<'_>,
    ) -> anyhow::Result<Option<Seen>> {
        let training = match self {
            Self::Here(training) => training,
            #[cfg(feature = "gpu")]
            Self::OnDevice(resident) => {
                let gpu = GpuEngine::of(engine).context("the run is on a device that is gone")?;
                resident.step(gpu, move |step, slots| -> anyhow::Result<_> {
                    Ok(feed.show(step, slots))
                })?;
                return Ok(None);
            }
        };
        let step = training.steps_taken();
        let mut seen = Seen::default();
        let parting = Parting::of(training.plan().request());
        let counts = training.step(|parameters, batch, sum| -> anyhow::Result<_> {
            let clip_norm = sum.clip_norm();
            for part in parting.parts(batch)? {
                let part = feed.load(step, &part);
                let (clipped, metrics) = engine.clipped_sum(parameters, part, clip_norm)?;
                // The first one need not be copied.
                match sum.counts().examples {
                    0 => *sum = clipped,
                    _ => sum.add_sum(clipped)?,
                }
                seen.metrics += metrics;
            }
            Ok(())
        })?;
        (seen.examples, seen.clipped) = (counts.examples, Some(counts.clipped));
        Ok(Some(seen))
    }

    /// Whether the device is to be read before the next step.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Here(_) => false,
            #[cfg(feature = "gpu")]
            Self::OnDevice(resident) => resident.is_full(),
        }
    }
}
