//! A private run whose parameters, momentum and data stay on a GPU.
//!
//! The same steps as those of [`Training`], and the same order, ledger, noise and checkpoints; only the arithmetic of
//! gradients and of the update is the device's. Nothing is waited for within a step: while the device computes the sum of a
//! step, the CPU draws its noise.

use super::{Training, TrainingError};
use crate::engine::{ByteImages, EngineError, GpuEngine, Resident, Shown, StepSeen};
use crate::parting::Parting;

/// A run on a device. [`read`](Self::read) gives it back as a [`Training`], with all that the device did.
///
/// # Guarantees
/// Those of [`Training`]. Nothing of a step leaves the device but parameters after their noise, and numbers that are not
/// private.
#[derive(Debug)]
pub struct ResidentTraining {
    training: Training,
    resident: Resident,
    parting: Parting,
    ended: bool,
}

impl ResidentTraining {
    /// Brings a run to the engine's device, with its data set if it is one of bytes.
    ///
    /// # Errors
    /// [`EngineError`] if it does not fit there.
    pub fn new(
        training: Training,
        engine: &mut GpuEngine,
        images: Option<ByteImages<'_>>,
    ) -> Result<Self, EngineError> {
        let (parameters, momentum) = (training.parameters(), training.descent.momentum.buffer());
        let resident = Resident::new(engine, parameters, momentum, images)?;
        let parting = Parting::of(training.plan().request());
        Ok(Self { training, resident, parting, ended: false })
    }

    /// Takes one step. `show` is called with the step and its slots, and shows the example of every slot, all of its views.
    /// Slots without an example keep others in their places: they are shown anything.
    ///
    /// An average of the iterates, if one is kept, needs the parameters after every step: they are read then.
    ///
    /// # Errors
    /// Those of `show`, [`TrainingError`] and [`EngineError`]. The run has ended then.
    pub fn step<'s, E: From<TrainingError> + From<EngineError>>(
        &mut self,
        engine: &mut GpuEngine,
        show: impl FnOnce(usize, &[Option<u32>]) -> Result<Shown<'s>, E>,
    ) -> Result<(), E> {
        let Self { training: Training { plan, descent, mechanism, ledger, .. }, resident, .. } =
            self;
        let step = mechanism.next_step();
        if self.ended || ledger.next_step() != step || descent.taken != step || resident.is_full() {
            return Err(TrainingError::Ended.into());
        }
        self.ended = true;
        let batch = descent.batches.batch(step);
        ledger.record(step, &batch).map_err(TrainingError::from)?;
        let slots = self.parting.slots(&batch).map_err(TrainingError::from)?;
        let shown = show(step, &slots)?;
        let request = plan.request();
        let sum = resident.clipped_sum(engine, &slots, shown, request.clip_norm)?;
        let gradient = mechanism.privatize_resident(sum).map_err(TrainingError::from)?;
        gradient.step(engine, request.sgd, descent.rates.at(step))?;
        descent.taken += 1;
        if let Some(average) = &mut descent.average {
            average.add(descent.taken, &resident.parameters(engine)?);
        }
        self.ended = false;
        Ok(())
    }

    /// Waits for the device. The run as it is now, and what the steps since the last time saw; not private.
    ///
    /// # Errors
    /// [`EngineError`] if the device failed: then nothing of these steps may be kept.
    pub fn read(
        &mut self,
        engine: &mut GpuEngine,
    ) -> Result<(&Training, Vec<StepSeen>), EngineError> {
        let ended = std::mem::replace(&mut self.ended, true);
        let found = self.resident.read(engine)?;
        let descent = &mut self.training.descent;
        descent.parameters = found.parameters;
        descent.momentum =
            crate::update::Momentum::with_buffer(self.training.plan.request().sgd, found.momenta);
        self.ended = ended;
        Ok((&self.training, found.steps))
    }

    /// Steps whose numbers were not read yet.
    pub fn unread(&self) -> usize {
        self.resident.unread()
    }

    /// Whether [`read`](Self::read) must come before the next step.
    pub fn is_full(&self) -> bool {
        self.resident.is_full()
    }

    /// Steps taken so far.
    pub fn steps_taken(&self) -> usize {
        self.training.steps_taken()
    }

    /// Whether all steps of the plan are taken.
    pub fn is_finished(&self) -> bool {
        self.training.is_finished()
    }

    /// The learning rate of a step.
    ///
    /// # Panics
    /// If the plan has a schedule and no such step.
    pub fn learning_rate(&self, step: usize) -> f32 {
        self.training.learning_rate(step)
    }

    /// The run, unless some of it is on the device only: after [`read`](Self::read) and before the next step.
    pub fn training(&self) -> Option<&Training> {
        (self.unread() == 0 && !self.ended).then_some(&self.training)
    }
}
