//! A block forward through the network, and back to the gradients of all values.

use crate::engine::cpu::kernels::activation::{activate, differentiate};
use crate::engine::cpu::kernels::plane::Plane;
use crate::engine::cpu::kernels::pool;
use crate::engine::cpu::loss::cross_entropy;
use crate::engine::cpu::network::{Op, Stage};
use crate::engine::cpu::workspace::{Model, Tally, Workspace};
use crate::engine::sizes::Sizes;

impl Workspace {
    /// The logits of a block of images.
    pub(crate) fn forward(&mut self, model: Model<'_>, samples: usize, images: &[f32]) {
        let Model { isa, network, weights, parameters, .. } = model;
        load(&network.values[0], samples, images, &mut self.values[0]);
        for (i, stage) in network.stages.iter().enumerate() {
            let (before, after) = self.values.split_at_mut(i + 1);
            let (x, y) = (&before[i][..], &mut after[0][..]);
            let (input, output) = (&network.values[i], &network.values[i + 1]);
            let weights = &weights[i];
            match &stage.op {
                Op::Convolution(convolution) => {
                    let scratch = self.shared.lend(&mut self.transformed[i]);
                    convolution.forward(isa, samples, weights, x, (y, stage.is_fused()), scratch);
                }
                Op::Grouped(grouped) => {
                    grouped.forward(isa, samples, weights, x, y, &mut self.groups[i]);
                }
                Op::Pool(pool) => pool::forward(isa, pool, samples, x, y),
                Op::GroupNorm(norm) => {
                    norm.forward(isa, samples, parameters, (x, y), &mut self.moments[i]);
                }
                Op::Copy => copy((input, output), samples, x, y),
            }
            if let Some(f) = stage.activation.filter(|_| !stage.is_fused()) {
                activate(isa, f, output, samples, y);
            }
        }
    }

    /// The logits of one example of the block.
    pub(crate) fn logits(&self, model: Model<'_>, sample: usize) -> &[f32] {
        let last = model.network.stages.len();
        let plane = &model.network.values[last];
        &self.values[last][sample * plane.len() + plane.pixel(0, 0)..][..model.sizes.classes]
    }

    /// The gradients with respect to all values, and the losses.
    pub(super) fn backward(&mut self, model: Model<'_>, labels: &[u32]) -> Tally {
        let Model { isa, sizes: Sizes { classes, .. }, network, weights, parameters } = model;
        let (samples, last) = (labels.len(), network.stages.len());
        let (value, gradient) = (network.values[last], network.gradients[last]);
        let mut tally = Tally::default();
        for (sample, &label) in labels.iter().enumerate() {
            let from = sample * value.len() + value.pixel(0, 0);
            let to = sample * gradient.len() + gradient.pixel(0, 0);
            let logits = &self.values[last][from..from + classes];
            let d = &mut self.gradients[last][to..to + classes];
            let verdict = cross_entropy(logits, label as usize, Some(d));
            tally.loss += verdict.loss;
            tally.correct += usize::from(verdict.correct);
        }
        for (i, stage) in network.stages.iter().enumerate().rev() {
            let (before, after) = self.gradients.split_at_mut(i + 1);
            let (dx, dy) = (&mut before[i][..], &mut after[0][..]);
            let (x, y) = (&self.values[i], &self.values[i + 1]);
            let (output, gradient) = (&network.values[i + 1], &network.gradients[i + 1]);
            let is_done = network.stages.get(i + 1).is_some_and(Stage::through_relu);
            if let Some(f) = stage.activation.filter(|_| !is_done) {
                differentiate(isa, f, output, gradient, samples, y, dy);
            }
            let (target, weights) = (&network.gradients[i], &weights[i]);
            if let Op::GroupNorm(norm) = &stage.op {
                // The gradients of its parameters come with that of its input.
                let dx = (i > 0).then_some(&mut *dx);
                norm.backward(isa, samples, parameters, (x, dy), dx, &mut self.moments[i]);
            }
            if i == 0 {
                break;
            }
            match &stage.op {
                Op::Convolution(convolution) => {
                    let scratch = self.shared.lend(&mut self.transformed[i]);
                    convolution.input_gradient(isa, samples, weights, (x, dy), dx, scratch);
                }
                Op::Grouped(grouped) => {
                    grouped.input_gradient(isa, samples, weights, dy, dx, &mut self.groups[i]);
                }
                Op::Pool(pool) => pool::backward(isa, pool, samples, x, y, dy, dx),
                Op::GroupNorm(_) => {}
                Op::Copy => copy((gradient, target), samples, dy, dx),
            }
        }
        tally
    }
}

/// Images `[channels][height][width]` into their layout.
fn load(plane: &Plane, samples: usize, images: &[f32], target: &mut [f32]) {
    let area = plane.height * plane.width;
    let examples = images.chunks_exact(plane.channels * area);
    for (image, target) in examples.zip(target.chunks_exact_mut(plane.len())).take(samples) {
        for (channel, pixels) in image.chunks_exact(area).enumerate() {
            for (y, line) in pixels.chunks_exact(plane.width).enumerate() {
                let at = plane.pixel(y, 0) + channel;
                for (x, &value) in line.iter().enumerate() {
                    target[at + x * plane.pitch] = value;
                }
            }
        }
    }
}

/// An image from one layout to another with the same pitch.
fn copy((from, to): (&Plane, &Plane), samples: usize, source: &[f32], target: &mut [f32]) {
    let pairs = source.chunks_exact(from.len()).zip(target.chunks_exact_mut(to.len()));
    for (source, target) in pairs.take(samples) {
        for y in 0..from.height {
            target[to.row(y)].copy_from_slice(&source[from.row(y)]);
        }
    }
}
