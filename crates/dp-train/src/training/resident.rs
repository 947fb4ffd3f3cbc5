//! A private run whose parameters, momentum and data stay on a GPU.
//!
//! The same steps as those of [`Training`], and the same order, ledger, noise and checkpoints; only the arithmetic of
//! gradients and of the update is the device's. Nothing is waited for within a step: while the device computes the sum of a
//! step, a thread draws the noise of the next one.

use super::descent::Descent;
use super::noise_ahead::NoiseAhead;
use super::{Training, TrainingError};
use crate::engine::{ByteImages, EngineError, GpuEngine, Resident, Shown, StepSeen};
use crate::ledger::Ledger;
use crate::parting::Parting;
use crate::plan::{DpPlan, Sampling};
use crate::update::Momentum;

/// A run on a device. [`read`](Self::read) gives it back as a [`Training`], with all that the device did.
///
/// # Guarantees
/// Those of [`Training`]. Nothing of a step leaves the device but parameters after their noise, and numbers that are not
/// private.
#[derive(Debug)]
pub struct ResidentTraining {
    run: Run,
    resident: Resident,
    parting: Parting,
    ended: bool,
}

/// Who has the mechanism.
#[derive(Debug)]
enum Run {
    /// The training, as it was read.
    Whole(Box<Training>),
    /// A thread, which draws ahead.
    UnderWay(Box<UnderWay>),
    /// Nobody, between the two.
    Moving,
}

/// A training without its mechanism.
#[derive(Debug)]
struct UnderWay {
    plan: DpPlan,
    descent: Descent,
    ledger: Ledger,
    noise: NoiseAhead,
}

impl Run {
    /// The run with its mechanism on a thread.
    fn under_way(&mut self) -> &mut UnderWay {
        *self = match std::mem::replace(self, Self::Moving) {
            Self::Whole(training) => {
                let Training { plan, descent, mechanism, ledger } = *training;
                let noise = NoiseAhead::of(mechanism);
                Self::UnderWay(Box::new(UnderWay { plan, descent, ledger, noise }))
            }
            run => run,
        };
        match self {
            Self::UnderWay(run) => run,
            Self::Whole(_) | Self::Moving => unreachable!("{MOVING}"),
        }
    }

    /// The run as a whole, as if no noise had been drawn ahead.
    fn whole(&mut self) -> &mut Training {
        *self = match std::mem::replace(self, Self::Moving) {
            Self::UnderWay(run) => {
                let UnderWay { plan, descent, ledger, noise } = *run;
                let mechanism = noise.stop();
                Self::Whole(Box::new(Training { plan, descent, mechanism, ledger }))
            }
            run => run,
        };
        match self {
            Self::Whole(training) => training,
            Self::UnderWay(_) | Self::Moving => unreachable!("{MOVING}"),
        }
    }

    /// What is here, wherever the mechanism is.
    fn here(&self) -> (&DpPlan, &Descent) {
        match self {
            Self::Whole(training) => (&training.plan, &training.descent),
            Self::UnderWay(run) => (&run.plan, &run.descent),
            Self::Moving => unreachable!("{MOVING}"),
        }
    }
}

const MOVING: &str = "a panic has ended the run";

impl ResidentTraining {
    /// Brings a run to the engine's device, with its data set if it is one of bytes.
    ///
    /// # Errors
    /// [`EngineError`] if it does not fit there, or the device adds noise otherwise than the host.
    pub fn new(
        training: Training,
        engine: &mut GpuEngine,
        images: Option<ByteImages<'_>>,
    ) -> Result<Self, EngineError> {
        let request = training.plan().request();
        // Parts of secret batches leave places empty, and the batches are not all of one size.
        let more =
            if request.sampling == Sampling::FixedOrder { 0 } else { request.batch_size / 2 };
        engine.check_parts(request.batch_size + more)?;
        let (parameters, momentum) = (training.parameters(), training.descent.momentum.buffer());
        let resident = Resident::new(engine, parameters, momentum, images)?;
        let parting = Parting::of(training.plan().request());
        let run = Run::Whole(Box::new(training));
        Ok(Self { run, resident, parting, ended: false })
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
        if self.ended || self.resident.is_full() {
            return Err(TrainingError::Ended.into());
        }
        self.ended = true;
        let UnderWay { plan, descent, ledger, noise } = self.run.under_way();
        let (resident, step) = (&mut self.resident, descent.taken);
        if ledger.next_step() != step {
            return Err(TrainingError::Ended.into());
        }
        let batch = descent.batches.batch(step);
        ledger.record(step, &batch).map_err(TrainingError::from)?;
        let slots = self.parting.slots(&batch).map_err(TrainingError::from)?;
        let shown = show(step, &slots)?;
        let request = plan.request();
        let sum = resident.clipped_sum(engine, &slots, shown, request.clip_norm)?;
        let noise = noise.next()?;
        if noise.step() != step {
            return Err(TrainingError::Ended.into());
        }
        let gradient = noise.privatize(sum).map_err(TrainingError::from)?;
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
        let training = self.run.whole();
        training.descent.parameters = found.parameters;
        training.descent.momentum =
            Momentum::with_buffer(training.plan.request().sgd, found.momenta);
        self.ended = ended;
        Ok((training, found.steps))
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
        self.run.here().1.taken
    }

    /// Whether all steps of the plan are taken.
    pub fn is_finished(&self) -> bool {
        let (plan, descent) = self.run.here();
        descent.taken == plan.participation().steps()
    }

    /// The learning rate of a step.
    ///
    /// # Panics
    /// If the plan has a schedule and no such step.
    pub fn learning_rate(&self, step: usize) -> f32 {
        self.run.here().1.rates.at(step)
    }

    /// The run, unless some of it is on the device only: after [`read`](Self::read) and before the next step.
    pub fn training(&self) -> Option<&Training> {
        match &self.run {
            Run::Whole(training) if !self.ended => Some(training),
            _ => None,
        }
    }
}
