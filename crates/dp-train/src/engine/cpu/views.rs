//! Examples with several views: their gradients are averaged first, and the mean is clipped once.
//!
//! The views of an example are one privacy unit. Clipping each view would let an example move the sum
//! by `views` times the clip norm, or spend the budget on differences between views.
//!
//! The gradients of all views go into one buffer by the products that plain sums use, so a view costs
//! what a plain gradient costs; the norm of the held sum and its addition come once per example.

use std::ops::Range;

use crate::engine::batch::Batch;
use crate::engine::cpu::kernels::reduce::{add_scaled, squared_norm};
use crate::engine::cpu::workspace::{Model, Tally, Workspace};
use crate::engine::rounding::round_down;

impl Workspace {
    /// Adds the clipped means over every example's views to a packed sum.
    pub(super) fn add_clipped_means(
        &mut self,
        model: Model<'_>,
        batch: Batch<'_>,
        clip_norm: f64,
        sum: &mut [f32],
    ) -> Tally {
        let (views, pixels) = (batch.views, model.sizes.pixels);
        let room = self.squared_norms.len();
        let together = (room / views).max(1);
        let mut tally = Tally::default();
        let mut held = std::mem::take(&mut self.views);
        held.resize(model.network.packed, 0.0);
        for block in batch.chunks(together, pixels) {
            if views <= room {
                tally += self.pass(model, block);
                for example in 0..block.labels.len() {
                    held.fill(0.0);
                    self.add_all(model, example * views..(example + 1) * views, &mut held);
                    tally += add_mean(model, &held, views, clip_norm, sum);
                }
            } else {
                // One example that does not fit into a block, part by part.
                held.fill(0.0);
                for images in block.images.chunks(room * pixels) {
                    let part = images.len() / pixels;
                    tally += self.pass(model, Batch { images, views: part, ..block });
                    self.add_all(model, 0..part, &mut held);
                }
                tally += add_mean(model, &held, views, clip_norm, sum);
            }
        }
        self.views = held;
        tally
    }

    /// Forward and backward for all views.
    fn pass(&mut self, model: Model<'_>, batch: Batch<'_>) -> Tally {
        let mut repeated = std::mem::take(&mut self.labels);
        repeated.clear();
        let labels = batch.labels.iter();
        repeated.extend(labels.flat_map(|&label| std::iter::repeat_n(label, batch.views)));
        self.forward(model, repeated.len(), batch.images);
        let tally = self.backward(model, &repeated);
        self.labels = repeated;
        tally
    }

    /// The gradients of some images, all layers, added to `target`.
    fn add_all(&mut self, model: Model<'_>, images: Range<usize>, target: &mut [f32]) {
        for stage in 0..model.network.stages.len() {
            self.weight_gradient(model, stage, images.clone(), Some(&mut *target));
        }
    }
}

/// Adds `min(1, clip_norm / |held / views|) held / views`, and zero if it is not finite.
fn add_mean(
    model: Model<'_>,
    held: &[f32],
    views: usize,
    clip_norm: f64,
    sum: &mut [f32],
) -> Tally {
    let mut tally = Tally::default();
    let norm = squared_norm(model.isa, held).sqrt();
    let mean = 1.0 / views as f64;
    let scale = if !norm.is_finite() {
        tally.non_finite = 1;
        return tally;
    } else if norm * mean > clip_norm {
        tally.clipped = 1;
        clip_norm / norm
    } else {
        mean
    };
    add_scaled(model.isa, round_down(scale), held, sum);
    tally
}
