//! Parts of a batch that are summed at once, so that the bits do not depend on the threads.

use std::sync::Mutex;

use rayon::prelude::*;

use super::block::{Goal, Model, Tally};
use super::{Batch, BatchMetrics, Engine, EngineError};

/// Most partial sums that are held at once, whatever the number of threads.
const MOST_LANES: usize = 32;
/// Floats of the final sum that one thread adds up at a time.
const CHUNK: usize = 16 * 1024;

/// A part of a batch and its partial sum.
#[derive(Debug, Default)]
pub(super) struct Lane {
    sum: Vec<f32>,
    tally: Tally,
}

impl Engine {
    /// The sum over a batch, its examples dealt to lanes that are added in their order.
    pub(super) fn sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        goal: Goal,
    ) -> Result<(Vec<f32>, BatchMetrics, Tally), EngineError> {
        let Batch { images, labels } = batch;
        let copies = goal.copies();
        self.sizes.check(parameters, images, labels.len() * copies)?;
        self.sizes.check_labels(labels)?;
        self.pack(parameters);
        let examples = labels.len();
        let block = (self.microbatch / copies).max(1);
        let lanes = examples.div_ceil(block).min(MOST_LANES);
        while self.lanes.len() < lanes {
            let sum = vec![0.0; self.network.packed];
            self.lanes.push(Lane { sum, tally: Tally::default() });
        }
        let (network, weights, isa) = (&self.network, &self.weights, self.isa);
        let model = Model { isa, network, weights, parameters };
        let pixels = copies * network.input;
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
                total.fill(0.0);
                for lane in lanes {
                    let part = &lane.sum[chunk * CHUNK..][..total.len()];
                    total.iter_mut().zip(part).for_each(|(t, p)| *t += p);
                }
            });
        });
        let mut flat = vec![0.0; self.network.parameters];
        self.network.unpack(total, &mut flat);
        let mut tally = Tally::default();
        lanes.iter().for_each(|lane| tally += lane.tally);
        let (examples, loss_sum) = (examples * copies, tally.loss);
        let metrics = BatchMetrics { examples, loss_sum, correct: tally.correct };
        Ok((flat, metrics, tally))
    }
}
