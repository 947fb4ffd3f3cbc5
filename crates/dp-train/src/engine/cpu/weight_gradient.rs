//! The weight gradients of a block, stage by stage, after its backward pass.

use std::ops::Range;

use crate::engine::cpu::kernels::reduce::{Target, add_scaled};
use crate::engine::cpu::network::Op;
use crate::engine::cpu::workspace::{Model, Workspace};

impl Workspace {
    /// The weight gradient of one stage and some examples: added to the packed sum, or written to
    /// the row of one example.
    pub(super) fn weight_gradient(
        &mut self,
        model: Model<'_>,
        i: usize,
        samples: Range<usize>,
        sum: Option<&mut [f32]>,
    ) {
        let Model { isa, network, .. } = model;
        let keep = sum.is_some();
        let target = sum.unwrap_or(&mut self.row);
        let (plane, gradient) = (&network.values[i], &network.gradients[i + 1]);
        let (x, dy) = (&self.values[i], &self.gradients[i + 1]);
        match &network.stages[i].op {
            Op::Convolution(convolution) => {
                let target = Target { values: &mut target[convolution.packed.clone()], keep };
                let scratch = self.shared.lend(&mut self.transformed[i]);
                convolution.weight_gradient(isa, samples, x, dy, target, scratch);
            }
            Op::Grouped(grouped) => {
                let target = Target { values: &mut target[grouped.packed.clone()], keep };
                let x = &x[samples.start * plane.len()..];
                let dy = &dy[samples.start * gradient.len()..];
                grouped.weight_gradient(isa, samples.len(), x, dy, target, &mut self.groups[i]);
            }
            Op::GroupNorm(norm) => {
                let target = &mut target[norm.packed.clone()];
                if !keep {
                    target.fill(0.0);
                }
                for sample in samples {
                    add_scaled(isa, 1.0, norm.gradient(&self.moments[i], sample), target);
                }
            }
            Op::Pool(_) | Op::Copy => {}
        }
    }
}
