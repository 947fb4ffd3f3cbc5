//! A thread that owns the mechanism of a run on a device, and draws the noise of the next step while this one is computed.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use super::TrainingError;
use crate::mechanism::{Mechanism, MechanismError, ResidentNoise};

/// The noise of a run, one step ahead.
#[derive(Debug)]
pub(super) struct NoiseAhead {
    rows: Receiver<Result<ResidentNoise, MechanismError>>,
    thread: JoinHandle<Mechanism>,
}

impl NoiseAhead {
    /// Begins with the next step of a mechanism.
    pub(super) fn of(mechanism: Mechanism) -> Self {
        // A row waits with the thread until it is asked for: so there is one ahead, and only the thread has to take it back.
        let (rows, asked) = sync_channel(0);
        let draw = move || {
            let mut mechanism = mechanism;
            loop {
                let (row, overwritten) = match mechanism.draw_resident() {
                    Ok((row, overwritten)) => (Ok(row), Some(overwritten)),
                    Err(error) => (Err(error), None),
                };
                if rows.send(row).is_err() {
                    if let Some(overwritten) = overwritten {
                        mechanism.take_back(overwritten);
                    }
                    return mechanism;
                }
            }
        };
        Self { rows: asked, thread: std::thread::spawn(draw) }
    }

    /// The noise of the next step. Waits until it is drawn.
    ///
    /// # Errors
    /// Those of the mechanism.
    pub(super) fn next(&self) -> Result<ResidentNoise, TrainingError> {
        // Without a thread, which only a panic can bring about, there is no noise.
        Ok(self.rows.recv().map_err(|_| TrainingError::Ended)??)
    }

    /// The mechanism before the noise that nobody has asked for.
    pub(super) fn stop(self) -> Mechanism {
        drop(self.rows);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use mf_core::{Method, Participation, Sgd};

    use super::*;
    use crate::noise::NoiseError;
    use crate::plan::{Budget, Clipping, PlanRequest};
    use crate::seeds::{NoiseKey, RunSeed};

    #[test]
    fn the_mechanism_comes_back_as_if_nothing_had_been_drawn_ahead() {
        let (sgd, epochs) = (Sgd::new(1.0, 0.9).unwrap(), Participation::epochs(4, 10).unwrap());
        let budget = Budget { epsilon: 4.0, delta: 1e-5 };
        let clipping = Clipping { batch_size: 10, clip_norm: 1.0 };
        let method = Method::Blt { buffers: 2 };
        let plan = PlanRequest::new(method, sgd, epochs, budget, clipping, 50).plan().unwrap();
        let mechanism = || Mechanism::new(&plan, NoiseKey::fixed(RunSeed(3))).unwrap();
        let (mut plain, mut ahead) = (mechanism(), mechanism());
        for taken in [0, 1, 7, 32] {
            let noise = NoiseAhead::of(ahead);
            for _ in 0..taken {
                let step = plain.next_step();
                let (expected, _) = plain.draw_resident().unwrap();
                let found = noise.next().unwrap();
                assert_eq!((found.step(), expected.step()), (step, step));
                assert!(found == expected, "step {step}");
            }
            ahead = noise.stop();
            assert!(ahead == plain, "after {taken} steps");
        }
        let noise = NoiseAhead::of(ahead);
        for _ in 0..2 {
            let found = noise.next().unwrap_err();
            let exhausted = NoiseError::Exhausted { steps: 40 };
            assert_eq!(found, TrainingError::Mechanism(MechanismError::Noise(exhausted)));
        }
        assert_eq!(noise.stop().next_step(), 40);
    }
}
