//! Clipped sums over a block: per-example norms first, then the scaled gradients.
//!
//! The gradients of most layers are held for one example at a time. Layers with ghost norms are
//! summed over the whole block at once, from output gradients that were scaled.

use crate::engine::cpu::convolution::Method;
use crate::engine::cpu::kernels::reduce::{add_scaled, squared_norm};
use crate::engine::cpu::network::{Network, Op};
use crate::engine::cpu::workspace::{Model, Tally, Workspace};
use crate::engine::rounding::round_down;

impl Workspace {
    /// Adds the clipped gradients of a block to a packed sum, one forward and one backward pass.
    pub(super) fn add_clipped(
        &mut self,
        model: Model<'_>,
        images: &[f32],
        labels: &[u32],
        clip_norm: f64,
        sum: &mut [f32],
    ) -> Tally {
        let samples = labels.len();
        self.forward(model, samples, images);
        let mut tally = self.backward(model, labels);
        self.ghost_norms(model, samples);
        for sample in 0..samples {
            for stage in 0..model.network.stages.len() {
                if !is_ghost(&model.network.stages[stage].op) {
                    self.weight_gradient(model, stage, sample..sample + 1, None);
                }
            }
            let held = squared_norm(model.isa, &self.row);
            let norm = (self.squared_norms[sample] + held).sqrt();
            let scale = if !norm.is_finite() {
                tally.non_finite += 1;
                self.erase(model.network, sample);
                self.scales[sample] = 0.0;
                continue;
            } else if norm > clip_norm {
                tally.clipped += 1;
                round_down(clip_norm / norm)
            } else {
                1.0
            };
            self.scales[sample] = scale;
            let held = &mut sum[..model.network.instantiated];
            add_scaled(model.isa, scale, &self.row, held);
        }
        self.scale_gradients(model.network, samples);
        for stage in 0..model.network.stages.len() {
            if is_ghost(&model.network.stages[stage].op) {
                self.weight_gradient(model, stage, 0..samples, Some(sum));
            }
        }
        tally
    }

    /// Squared norms of the layers that are not instantiated.
    fn ghost_norms(&mut self, model: Model<'_>, samples: usize) {
        self.squared_norms.fill(0.0);
        for (i, stage) in model.network.stages.iter().enumerate() {
            let Op::Convolution(c) = &stage.op else { continue };
            if !c.ghost {
                continue;
            }
            let (x, dy) = (&self.values[i], &self.gradients[i + 1]);
            let planes = &c.geometry.planes;
            let (x_len, dy_len) = (planes.input.len(), planes.output_gradient.len());
            for sample in 0..samples {
                let x = &x[sample * x_len..][..x_len];
                let dy = &dy[sample * dy_len..][..dy_len];
                let squared_norm = self.grams.squared_norm(model.isa, &c.geometry, x, dy);
                self.squared_norms[sample] += squared_norm;
            }
        }
    }

    /// Scales the output gradients of layers that are summed over examples at once.
    fn scale_gradients(&mut self, network: &Network, samples: usize) {
        for (i, stage) in network.stages.iter().enumerate() {
            if !is_ghost(&stage.op) {
                continue;
            }
            let length = network.gradients[i + 1].len();
            let examples = self.gradients[i + 1].chunks_exact_mut(length).zip(&self.scales);
            for (example, &scale) in examples.take(samples) {
                if scale != 1.0 {
                    example.iter_mut().for_each(|d| *d *= scale);
                }
            }
        }
    }

    /// Zeros in place of an example whose gradient is not finite: zero times NaN would be NaN.
    fn erase(&mut self, network: &Network, sample: usize) {
        for (i, stage) in network.stages.iter().enumerate() {
            let Op::Convolution(c) = &stage.op else { continue };
            if !c.ghost {
                continue;
            }
            let planes = &c.geometry.planes;
            let (x, dy) = (planes.input.len(), planes.output_gradient.len());
            self.values[i][sample * x..][..x].fill(0.0);
            self.gradients[i + 1][sample * dy..][..dy].fill(0.0);
            if let Method::Winograd(winograd) = &c.method {
                winograd.erase(sample, &mut self.transformed[i]);
            }
        }
    }
}

fn is_ghost(op: &Op) -> bool {
    matches!(op, Op::Convolution(c) if c.ghost)
}
