//! Parts of a batch that are summed at once, so that the bits do not depend on the threads.
//!
//! A lane sums at most 16 examples in f32; lanes are added up in f64. So an example that is zeroed
//! changes the rounding of its own lane and of nothing else, however large the batch is: that is what
//! [`SUM_ROUNDING`](crate::gradient::SUM_ROUNDING) rests on.

use std::sync::Mutex;

use rayon::prelude::*;

use super::block::{Goal, Model, Tally};
use super::{Batch, BatchMetrics, Engine, EngineError};

/// Most partial sums that are held at once, whatever the number of threads.
const MOST_LANES: usize = 32;
/// Most examples that one lane sums in f32.
pub(super) const EXAMPLES_PER_LANE: usize = 16;
/// Floats of the final sum that one thread adds up at a time.
const CHUNK: usize = 16 * 1024;

/// A part of a batch and its partial sum.
#[derive(Debug, Default)]
pub(super) struct Lane {
    sum: Vec<f32>,
    tally: Tally,
}

impl Engine {
    /// The sum over a batch, round by round.
    pub(super) fn sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        goal: Goal,
    ) -> Result<(Vec<f64>, BatchMetrics, Tally), EngineError> {
        let Batch { images, labels } = batch;
        let copies = goal.copies();
        self.sizes.check(parameters, images, labels.len() * copies)?;
        self.sizes.check_labels(labels)?;
        self.pack(parameters);
        self.total.fill(0.0);
        let block = (self.microbatch / copies).max(1);
        let round = MOST_LANES * (EXAMPLES_PER_LANE / block) * block;
        let pixels = copies * self.network.input;
        let mut tally = Tally::default();
        for (images, labels) in images.chunks(round * pixels).zip(labels.chunks(round)) {
            tally += self.add_round(parameters, Batch { images, labels }, goal, block);
        }
        let mut flat = vec![0.0; self.network.parameters];
        self.network.unpack(&self.total, &mut flat);
        let (examples, loss_sum) = (labels.len() * copies, tally.loss);
        let metrics = BatchMetrics { examples, loss_sum, correct: tally.correct };
        Ok((flat, metrics, tally))
    }

    /// Adds the sum over one round to the total, its examples dealt to lanes that are added in their order.
    fn add_round(
        &mut self,
        parameters: &[f32],
        Batch { images, labels }: Batch<'_>,
        goal: Goal,
        block: usize,
    ) -> Tally {
        let examples = labels.len();
        let lanes = examples.div_ceil(block).min(MOST_LANES);
        while self.lanes.len() < lanes {
            let sum = vec![0.0; self.network.packed];
            self.lanes.push(Lane { sum, tally: Tally::default() });
        }
        let (network, weights, isa) = (&self.network, &self.weights, self.isa);
        let model = Model { isa, network, weights, parameters };
        let pixels = goal.copies() * network.input;
        let queue = Mutex::new(self.lanes[..lanes].iter_mut().enumerate());
        self.pool.scope(|scope| {
            for workspace in &mut self.workspaces {
                let queue = &queue;
                scope.spawn(move |_| {
                    loop {
                        let next = queue.lock().ok().and_then(|mut queue| queue.next());
                        let Some((index, lane)) = next else { break };
                        let (first, end) =
                            (index * examples / lanes, (index + 1) * examples / lanes);
                        lane.sum.fill(0.0);
                        lane.tally = Tally::default();
                        for at in (first..end).step_by(block) {
                            let to = end.min(at + block);
                            let images = &images[at * pixels..to * pixels];
                            let labels = &labels[at..to];
                            let sum = &mut lane.sum;
                            lane.tally += workspace.add_gradients(model, images, labels, goal, sum);
                        }
                    }
                });
            }
        });
        let lanes = &self.lanes[..lanes];
        let total = &mut self.total;
        self.pool.install(|| {
            total.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, total)| {
                for lane in lanes {
                    let part = &lane.sum[chunk * CHUNK..][..total.len()];
                    total.iter_mut().zip(part).for_each(|(t, p)| *t += f64::from(*p));
                }
            });
        });
        let mut tally = Tally::default();
        lanes.iter().for_each(|lane| tally += lane.tally);
        tally
    }
}
