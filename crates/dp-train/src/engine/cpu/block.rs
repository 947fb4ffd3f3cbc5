//! One block of examples through the network and back, in buffers that are never freed.

use std::ops::AddAssign;

use crate::engine::cpu::ghost::{self, Grams};
use crate::engine::cpu::kernels::convolution::Weights;
use crate::engine::cpu::kernels::grouped::Channels;
use crate::engine::cpu::kernels::plane::Plane;
use crate::engine::cpu::kernels::vector::Isa;
use crate::engine::cpu::network::{Network, Op};

mod passes;
mod views;

/// What is summed over examples.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// The gradients as they are.
    Plain,
    /// The gradients scaled down to this norm.
    Clipped(f64),
    /// The mean gradients of so many copies of an example, scaled down to this norm.
    ClippedMeans { copies: usize, clip_norm: f64 },
}

impl Goal {
    /// Images per example.
    pub(crate) fn copies(self) -> usize {
        match self {
            Goal::Plain | Goal::Clipped(_) => 1,
            Goal::ClippedMeans { copies, .. } => copies,
        }
    }
}

/// Counts of the examples that went into a sum.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) loss: f64,
    pub(crate) correct: usize,
    pub(crate) clipped: usize,
    pub(crate) non_finite: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.loss += other.loss;
        self.correct += other.correct;
        self.clipped += other.clipped;
        self.non_finite += other.non_finite;
    }
}

/// What all blocks share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model<'a> {
    pub(crate) isa: Isa,
    pub(crate) network: &'a Network,
    pub(crate) weights: &'a [Weights],
    pub(crate) parameters: &'a [f32],
}

/// The buffers of one thread.
#[derive(Debug)]
pub(crate) struct Workspace {
    values: Vec<Vec<f32>>,
    gradients: Vec<Vec<f32>>,
    /// Winograd's transformed inputs, per stage.
    transformed: Vec<Vec<f32>>,
    /// One group's channels, per stage.
    groups: Vec<Channels>,
    left: Vec<f32>,
    right: Vec<f32>,
    patches: Vec<f32>,
    /// One example's gradient of the layers that are instantiated.
    row: Vec<f32>,
    squared_norms: Vec<f64>,
    scales: Vec<f32>,
    grams: Grams,
    /// The gradients of all copies of one example, whole; empty until copies are asked for.
    copies: Vec<f32>,
    /// The label of every copy in the block.
    labels: Vec<u32>,
}

impl Workspace {
    /// Buffers for blocks of `samples` examples.
    pub(crate) fn new(network: &Network, samples: usize) -> Self {
        let buffers = |planes: &[Plane]| {
            planes.iter().map(|plane| vec![0.0; samples * plane.len()]).collect::<Vec<_>>()
        };
        let (mut transformed, mut groups) = (Vec::new(), Vec::new());
        let (mut scratch, mut patches) = (0, 0);
        for stage in &network.stages {
            let mut floats = 0;
            if let Op::Convolution(c) = &stage.op {
                let count = if c.positions() == 1 { samples } else { 1 };
                patches = patches.max(count * c.scratch());
                if let Some(winograd) = &c.winograd {
                    floats = winograd.transformed(c.input.pitch);
                    scratch = scratch.max(winograd.scratch(c));
                }
            }
            transformed.push(vec![0.0; floats]);
            groups.push(match &stage.op {
                Op::Grouped(grouped) => grouped.channels(),
                _ => Channels::default(),
            });
        }
        Self {
            values: buffers(&network.values),
            gradients: buffers(&network.gradients),
            transformed,
            groups,
            left: vec![0.0; scratch],
            right: vec![0.0; scratch],
            patches: vec![0.0; patches],
            row: vec![0.0; network.instantiated],
            squared_norms: vec![0.0; samples],
            scales: vec![0.0; samples],
            grams: Grams::default(),
            copies: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Adds the gradients of a block to a packed sum, one forward and one backward pass.
    pub(crate) fn add_gradients(
        &mut self,
        model: Model<'_>,
        images: &[f32],
        labels: &[u32],
        goal: Goal,
        sum: &mut [f32],
    ) -> Tally {
        if let Goal::ClippedMeans { copies, clip_norm } = goal {
            return self.add_means(model, (images, labels), (copies, clip_norm), sum);
        }
        let samples = labels.len();
        self.forward(model, samples, images);
        let mut tally = self.backward(model, labels);
        let Goal::Clipped(clip_norm) = goal else {
            for stage in 0..model.network.stages.len() {
                self.weight_gradient(model, stage, (0, samples), Some(sum));
            }
            return tally;
        };
        self.ghost_norms(model, samples);
        for sample in 0..samples {
            for stage in 0..model.network.stages.len() {
                if !is_ghost(&model.network.stages[stage].op) {
                    self.weight_gradient(model, stage, (sample, 1), None);
                }
            }
            let held = ghost::squared_norm(model.isa, &self.row);
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
            ghost::add_scaled(model.isa, scale, &self.row, held);
        }
        self.scale_gradients(model.network, samples);
        for stage in 0..model.network.stages.len() {
            if is_ghost(&model.network.stages[stage].op) {
                self.weight_gradient(model, stage, (0, samples), Some(sum));
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
            let (x_len, dy_len) = (c.input.len(), c.output_gradient.len());
            for sample in 0..samples {
                let x = &x[sample * x_len..][..x_len];
                let dy = &dy[sample * dy_len..][..dy_len];
                self.squared_norms[sample] += self.grams.squared_norm(model.isa, c, x, dy);
            }
        }
    }

    /// The weight gradient of one stage and some examples: added to the packed sum, or written to
    /// the row of one example.
    fn weight_gradient(
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
            let (x, dy) = (c.input.len(), c.output_gradient.len());
            self.values[i][sample * x..][..x].fill(0.0);
            self.gradients[i + 1][sample * dy..][..dy].fill(0.0);
            if let Some(winograd) = &c.winograd {
                winograd.erase(sample, &mut self.transformed[i]);
            }
        }
    }
}

fn is_ghost(op: &Op) -> bool {
    matches!(op, Op::Convolution(c) if c.ghost)
}

/// The nearest f32 that is not above `x`.
fn round_down(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) > x { nearest.next_down() } else { nearest }
}
