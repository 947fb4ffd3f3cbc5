//! Examples with several copies: their gradients are averaged first, and the mean is clipped once.
//!
//! The copies of an example are one privacy unit. Clipping each copy would let an example move the sum by
//! `copies` times the clip norm, or spend the budget on differences between copies.
//!
//! The gradients of all copies go into one buffer by the products that plain sums use, so a copy costs
//! what a plain gradient costs; the norm of the held sum and its addition come once per example.

use super::{Model, Tally, Workspace, round_down};
use crate::engine::cpu::ghost;

impl Workspace {
    /// Adds the clipped means over `copies` consecutive images each to a packed sum.
    pub(super) fn add_means(
        &mut self,
        model: Model<'_>,
        (images, labels): (&[f32], &[u32]),
        (copies, clip_norm): (usize, f64),
        sum: &mut [f32],
    ) -> Tally {
        let (input, room) = (model.network.input, self.squared_norms.len());
        let together = (room / copies).max(1);
        let mut tally = Tally::default();
        let mut held = std::mem::take(&mut self.copies);
        held.resize(model.network.packed, 0.0);
        let blocks = images.chunks(together * copies * input).zip(labels.chunks(together));
        for (images, labels) in blocks {
            if copies <= room {
                tally += self.pass(model, images, labels, copies);
                for example in 0..labels.len() {
                    held.fill(0.0);
                    self.add_all(model, (example * copies, copies), &mut held);
                    tally += add_mean(model, &held, (copies, clip_norm), sum);
                }
            } else {
                // One example that does not fit into a block, part by part.
                held.fill(0.0);
                for images in images.chunks(room * input) {
                    let part = images.len() / input;
                    tally += self.pass(model, images, labels, part);
                    self.add_all(model, (0, part), &mut held);
                }
                tally += add_mean(model, &held, (copies, clip_norm), sum);
            }
        }
        self.copies = held;
        tally
    }

    /// Forward and backward for `copies` images of every label.
    fn pass(&mut self, model: Model<'_>, images: &[f32], labels: &[u32], copies: usize) -> Tally {
        let mut repeated = std::mem::take(&mut self.labels);
        repeated.clear();
        repeated.extend(labels.iter().flat_map(|&label| std::iter::repeat_n(label, copies)));
        self.forward(model, repeated.len(), images);
        let tally = self.backward(model, &repeated);
        self.labels = repeated;
        tally
    }

    /// The gradients of some images, all layers, added to `target`.
    fn add_all(&mut self, model: Model<'_>, range: (usize, usize), target: &mut [f32]) {
        for stage in 0..model.network.stages.len() {
            self.weight_gradient(model, stage, range, Some(&mut *target));
        }
    }
}

/// Adds `min(1, clip_norm / |held / copies|) held / copies`, and zero if it is not finite.
fn add_mean(
    model: Model<'_>,
    held: &[f32],
    (copies, clip_norm): (usize, f64),
    sum: &mut [f32],
) -> Tally {
    let mut tally = Tally::default();
    let norm = ghost::squared_norm(model.isa, held).sqrt();
    let mean = 1.0 / copies as f64;
    let scale = if !norm.is_finite() {
        tally.non_finite = 1;
        return tally;
    } else if norm * mean > clip_norm {
        tally.clipped = 1;
        clip_norm / norm
    } else {
        mean
    };
    ghost::add_scaled(model.isa, round_down(scale), held, sum);
    tally
}
