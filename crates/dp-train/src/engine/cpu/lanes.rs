//! Parts of a batch that are summed at once, so that the bits do not depend on the threads.
//!
//! A lane sums at most 16 examples in f32; lanes are added up in f64. So an example that is zeroed
//! changes the rounding of its own lane and of nothing else, however large the batch is: that is what
//! [`SUM_ROUNDING`](crate::gradient::SUM_ROUNDING) rests on.

use rayon::prelude::*;

use crate::engine::batch::Batch;
use crate::engine::cpu::workers::Workers;
use crate::engine::cpu::workspace::{Model, Tally};

/// Most partial sums that are held at once, whatever the number of threads.
const MOST_LANES: usize = 32;
/// Most examples that one lane sums in f32.
pub(super) const EXAMPLES_PER_LANE: usize = 16;
/// Floats of the final sum that one thread adds up at a time.
const CHUNK: usize = 16 * 1024;

/// A part of a batch and its partial sum.
#[derive(Debug, Default)]
struct Lane {
    sum: Vec<f32>,
    tally: Tally,
}

/// The partial sums of a batch, and their total.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    total: Vec<f64>,
}

impl Lanes {
    /// For packed gradients of so many floats.
    pub(super) fn new(packed: usize) -> Self {
        Self { lanes: Vec::new(), total: vec![0.0; packed] }
    }

    /// The packed sum over a batch, round by round, in blocks of at most `microbatch` images if the
    /// views of one example are not more.
    pub(super) fn sum(
        &mut self,
        workers: &mut Workers,
        model: Model<'_>,
        batch: Batch<'_>,
        clip_norm: Option<f64>,
        microbatch: usize,
    ) -> (&[f64], Tally) {
        self.total.fill(0.0);
        let block = (microbatch / batch.views).max(1);
        let round = MOST_LANES * (EXAMPLES_PER_LANE / block) * block;
        let mut tally = Tally::default();
        for batch in batch.chunks(round, model.sizes.pixels) {
            tally += self.add_round(workers, model, batch, clip_norm, block);
        }
        (&self.total, tally)
    }

    /// Adds the sum over one round to the total, its examples dealt to lanes that are added in their
    /// order.
    fn add_round(
        &mut self,
        workers: &mut Workers,
        model: Model<'_>,
        batch: Batch<'_>,
        clip_norm: Option<f64>,
        block: usize,
    ) -> Tally {
        let examples = batch.labels.len();
        let count = examples.div_ceil(block).min(MOST_LANES);
        while self.lanes.len() < count {
            let sum = vec![0.0; self.total.len()];
            self.lanes.push(Lane { sum, tally: Tally::default() });
        }
        let lanes = &mut self.lanes[..count];
        workers.share(lanes.iter_mut().enumerate(), |workspace, (index, lane)| {
            lane.sum.fill(0.0);
            lane.tally = Tally::default();
            let range = index * examples / count..(index + 1) * examples / count;
            let part = batch.examples(range, model.sizes.pixels);
            for part in part.chunks(block, model.sizes.pixels) {
                lane.tally += workspace.add_gradients(model, part, clip_norm, &mut lane.sum);
            }
        });
        let (lanes, total) = (&self.lanes[..count], &mut self.total);
        workers.install(|| {
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
