//! Grouped convolutions: one small convolution per group of channels.
//!
//! ```text
//! y[g] = w[g] * x[g] + b[g]        g = 1..groups, every g with its own channels
//! ```
//!
//! The channels of a group are copied out, go through the direct convolution of that geometry, and
//! are copied back. So the mathematics stays in one place, and ungrouped layers do not pay for this
//! one. Few channels per group fill few of a tile's 16 columns: it is correct, not fast.

use crate::engine::cpu::kernels::convolution::{Convolution, Weights};
use crate::engine::cpu::kernels::plane::Plane;
use crate::engine::cpu::kernels::vector::Isa;

/// A grouped convolution.
#[derive(Debug)]
pub(crate) struct Grouped {
    pub(crate) groups: usize,
    /// The convolution of one group; its ranges are those of all groups together.
    pub(crate) one: Convolution,
}

/// One example's channels of one group, in the layouts of its convolution.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    input: Vec<f32>,
    output: Vec<f32>,
    input_gradient: Vec<f32>,
    output_gradient: Vec<f32>,
    patches: Vec<f32>,
}

impl Grouped {
    /// Floats of one group's packed gradient.
    fn packed_group(&self) -> usize {
        (self.one.window() + 1) * self.one.output.pitch
    }

    /// Floats of the packed gradient: group by group, weights and bias.
    pub(crate) fn packed_len(&self) -> usize {
        self.groups * self.packed_group()
    }

    /// Buffers for one example of one group.
    pub(crate) fn channels(&self) -> Channels {
        let one = &self.one;
        Channels {
            input: vec![0.0; one.input.len()],
            output: vec![0.0; one.output.len()],
            input_gradient: vec![0.0; one.input_gradient.map_or(0, |plane| plane.len())],
            output_gradient: vec![0.0; one.output_gradient.len()],
            patches: vec![0.0; one.scratch()],
        }
    }

    /// The weights and the bias of every group, cut out of the flat vector.
    fn parts<'a>(&self, parameters: &'a [f32]) -> impl Iterator<Item = (&'a [f32], &'a [f32])> {
        let weights = &parameters[self.one.weight.clone()];
        let bias = &parameters[self.one.bias.clone()];
        let groups = self.groups;
        weights.chunks_exact(weights.len() / groups).zip(bias.chunks_exact(bias.len() / groups))
    }

    /// As [`Convolution::pack`], for every group.
    pub(crate) fn pack(&self, isa: Isa, parameters: &[f32], weights: &mut Weights) {
        weights.groups.resize_with(self.groups, Weights::default);
        for (part, target) in self.parts(parameters).zip(&mut weights.groups) {
            self.one.pack(isa, part, target);
        }
    }

    /// As [`Convolution::unpack`], for every group.
    pub(crate) fn unpack(&self, packed: &[f64], flat: &mut [f64]) {
        let (weight, bias) = (self.one.weight.clone(), self.one.bias.clone());
        let (weights, biases) = (weight.len() / self.groups, bias.len() / self.groups);
        for (g, part) in packed.chunks_exact(self.packed_group()).enumerate() {
            let (head, tail) = flat.split_at_mut(bias.start);
            let target = &mut head[weight.start + g * weights..][..weights];
            self.one.unpack(part, (target, &mut tail[g * biases..][..biases]));
        }
    }

    /// As [`Convolution::forward`]; the planes are those of all channels.
    pub(crate) fn forward(
        &self,
        isa: Isa,
        (samples, weights): (usize, &Weights),
        (input, output): (&Plane, &Plane),
        (x, y): (&[f32], &mut [f32]),
        part: &mut Channels,
    ) {
        let one = &self.one;
        let pairs = x.chunks_exact(input.len()).zip(y.chunks_exact_mut(output.len()));
        for (x, y) in pairs.take(samples) {
            for (g, weights) in weights.groups.iter().enumerate() {
                take(g, (input, x), (&one.input, &mut part.input));
                one.forward(isa, 1, weights, &part.input, &mut part.output);
                put(g, (&one.output, &part.output), (output, y));
            }
        }
    }

    /// As [`Convolution::input_gradient`].
    pub(crate) fn input_gradient(
        &self,
        isa: Isa,
        (samples, weights): (usize, &Weights),
        (output, input): (&Plane, &Plane),
        (dy, dx): (&[f32], &mut [f32]),
        part: &mut Channels,
    ) {
        let Some(target) = self.one.input_gradient else { return };
        let pairs = dy.chunks_exact(output.len()).zip(dx.chunks_exact_mut(input.len()));
        for (dy, dx) in pairs.take(samples) {
            for (g, weights) in weights.groups.iter().enumerate() {
                take(g, (output, dy), (&self.one.output_gradient, &mut part.output_gradient));
                let result = (&mut part.input_gradient[..], &mut part.patches[..]);
                self.one.input_gradient(isa, 1, weights, &part.output_gradient, result);
                put(g, (&target, &part.input_gradient), (input, dx));
            }
        }
    }

    /// As [`Convolution::weight_gradient`], group by group.
    pub(crate) fn weight_gradient(
        &self,
        isa: Isa,
        samples: usize,
        (input, output): (&Plane, &Plane),
        (x, dy): (&[f32], &[f32]),
        (target, keep): (&mut [f32], bool),
        part: &mut Channels,
    ) {
        let one = &self.one;
        let examples = x.chunks_exact(input.len()).zip(dy.chunks_exact(output.len()));
        for (sample, (x, dy)) in examples.take(samples).enumerate() {
            for (g, target) in target.chunks_exact_mut(self.packed_group()).enumerate() {
                take(g, (input, x), (&one.input, &mut part.input));
                take(g, (output, dy), (&one.output_gradient, &mut part.output_gradient));
                let pair = (&part.input[..], &part.output_gradient[..]);
                one.weight_gradient(isa, 1, pair, (target, keep || sample > 0));
            }
        }
    }
}

/// Copies the channels of group `g` out of all channels.
fn take(g: usize, (all, source): (&Plane, &[f32]), (one, target): (&Plane, &mut [f32])) {
    for y in 0..one.height {
        let pixels = source[all.row(y)].chunks_exact(all.pitch);
        for (from, to) in pixels.zip(target[one.row(y)].chunks_exact_mut(one.pitch)) {
            to[..one.channels].copy_from_slice(&from[g * one.channels..][..one.channels]);
        }
    }
}

/// Copies the channels of group `g` to their place among all channels.
fn put(g: usize, (one, source): (&Plane, &[f32]), (all, target): (&Plane, &mut [f32])) {
    for y in 0..one.height {
        let pixels = target[all.row(y)].chunks_exact_mut(all.pitch);
        for (to, from) in pixels.zip(source[one.row(y)].chunks_exact(one.pitch)) {
            to[g * one.channels..][..one.channels].copy_from_slice(&from[..one.channels]);
        }
    }
}
