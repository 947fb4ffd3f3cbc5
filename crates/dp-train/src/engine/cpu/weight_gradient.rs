//! The weight gradients of a block, stage by stage, after its backward pass.

use crate::engine::cpu::network::Op;
use crate::engine::cpu::workspace::{Model, Workspace};

impl Workspace {
    /// The weight gradient of one stage and some examples: added to the packed sum, or written to
    /// the row of one example.
    pub(super) fn weight_gradient(
        &mut self,
        model: Model<'_>,
        i: usize,
        (first, samples): (usize, usize),
        sum: Option<&mut [f32]>,
    ) {
        let Model { isa, network, parameters, .. } = model;
        let keep = sum.is_some();
        let target = sum.unwrap_or(&mut self.row);
        let (plane, gradient) = (&network.values[i], &network.gradients[i + 1]);
        let x = &self.values[i][first * plane.len()..];
        let dy = &self.gradients[i + 1][..];
        match &network.stages[i].op {
            Op::Convolution(c) => {
                let target = &mut target[c.packed.clone()];
                let from_first = &dy[first * gradient.len()..];
                let Some(winograd) = &c.winograd else {
                    c.weight_gradient(isa, samples, (x, from_first), (target, keep));
                    return;
                };
                let (weights, bias) = target.split_at_mut(9 * plane.pitch * gradient.pitch);
                c.bias_gradient(isa, samples, from_first, (bias, keep));
                winograd.weight_gradient(
                    isa,
                    (gradient, first, samples),
                    (&self.transformed[i], dy),
                    (weights, keep),
                    (&mut self.left, &mut self.right),
                );
            }
            Op::Grouped(grouped) => grouped.weight_gradient(
                isa,
                samples,
                (plane, gradient),
                (x, &dy[first * gradient.len()..]),
                (&mut target[grouped.one.packed.clone()], keep),
                &mut self.groups[i],
            ),
            Op::GroupNorm(norm) => {
                let target = &mut target[norm.packed.clone()];
                for sample in 0..samples {
                    let x = &x[sample * plane.len()..][..plane.len()];
                    let dy = &dy[(first + sample) * gradient.len()..][..gradient.len()];
                    let planes = (plane, gradient, None);
                    norm.backward(parameters, planes, (x, dy, &mut []), (target, keep));
                }
            }
            Op::Pool(_) | Op::Copy => {}
        }
    }
}
