//! Grouped convolutions: one small convolution per group of channels.
//!
//! ```text
//! y[g] = w[g] * x[g] + b[g]        g = 1..groups, every g with its own channels
//! ```
//!
//! The channels of a group are copied out, go through the direct convolution of that geometry, and
//! are copied back. So the mathematics stays in one place, and ungrouped layers do not pay for this
//! one. Few channels per group fill few of a tile's 16 columns: it is correct, not fast.

use std::ops::Range;

use crate::engine::cpu::kernels::direct::Direct;
use crate::engine::cpu::kernels::geometry::Geometry;
use crate::engine::cpu::kernels::packing::{Weights, unpack};
use crate::engine::cpu::kernels::plane::{Plane, Planes};
use crate::engine::cpu::kernels::reduce::Target;
use crate::engine::cpu::kernels::vector::Isa;

/// A grouped convolution.
#[derive(Debug)]
pub(crate) struct Grouped {
    pub(crate) groups: usize,
    /// The layouts of all channels.
    pub(crate) planes: Planes,
    /// The convolution of one group.
    pub(crate) one: Direct,
    /// In the flat vector of parameters, all groups together.
    pub(crate) weight: Range<usize>,
    pub(crate) bias: Range<usize>,
    /// In the packed gradient: group by group, weights and bias.
    pub(crate) packed: Range<usize>,
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
    /// Floats of the packed gradient.
    pub(crate) fn packed_len(&self) -> usize {
        self.groups * self.one.geometry.packed()
    }

    /// Buffers for one example of one group.
    pub(crate) fn channels(&self) -> Channels {
        let Geometry { planes, .. } = &self.one.geometry;
        Channels {
            input: vec![0.0; planes.input.len()],
            output: vec![0.0; planes.output.len()],
            input_gradient: vec![0.0; planes.input_gradient.map_or(0, |plane| plane.len())],
            output_gradient: vec![0.0; planes.output_gradient.len()],
            patches: vec![0.0; self.one.scratch()],
        }
    }

    /// The parameters of every group in the order of the products.
    pub(crate) fn pack(&self, parameters: &[f32], weights: &mut Weights) {
        let (weight, bias) = (&parameters[self.weight.clone()], &parameters[self.bias.clone()]);
        weights.groups.resize_with(self.groups, Weights::default);
        let parts = weight.chunks_exact(weight.len() / self.groups);
        let parts = parts.zip(bias.chunks_exact(bias.len() / self.groups));
        for ((weight, bias), target) in parts.zip(&mut weights.groups) {
            target.pack_bias(&self.one.geometry, bias);
            target.pack(&self.one.geometry, weight);
        }
    }

    /// Writes a packed gradient in PyTorch's order into the flat vector.
    pub(crate) fn unpack(&self, packed: &[f64], flat: &mut [f64]) {
        let geometry = &self.one.geometry;
        let (weights, biases) = (self.weight.len() / self.groups, self.bias.len() / self.groups);
        let (head, tail) = flat.split_at_mut(self.bias.start);
        for (g, part) in packed.chunks_exact(geometry.packed()).enumerate() {
            let weight = &mut head[self.weight.start + g * weights..][..weights];
            unpack(geometry, part, weight, &mut tail[g * biases..][..biases]);
        }
    }

    /// As [`Direct::forward`], for all channels.
    pub(crate) fn forward(
        &self,
        isa: Isa,
        samples: usize,
        weights: &Weights,
        x: &[f32],
        y: &mut [f32],
        part: &mut Channels,
    ) {
        let Planes { input, output, .. } = &self.planes;
        let planes = &self.one.geometry.planes;
        let pairs = x.chunks_exact(input.len()).zip(y.chunks_exact_mut(output.len()));
        for (x, y) in pairs.take(samples) {
            for (g, weights) in weights.groups.iter().enumerate() {
                take(g, (input, x), (&planes.input, &mut part.input));
                self.one.forward(isa, 1, weights, &part.input, (&mut part.output, false));
                put(g, (&planes.output, &part.output), (output, y));
            }
        }
    }

    /// As [`Direct::input_gradient`], for all channels.
    pub(crate) fn input_gradient(
        &self,
        isa: Isa,
        samples: usize,
        weights: &Weights,
        dy: &[f32],
        dx: &mut [f32],
        part: &mut Channels,
    ) {
        let planes = &self.one.geometry.planes;
        let (Some(target), Some(input)) = (planes.input_gradient, &self.planes.input_gradient)
        else {
            return;
        };
        let output = &self.planes.output_gradient;
        let pairs = dy.chunks_exact(output.len()).zip(dx.chunks_exact_mut(input.len()));
        for (dy, dx) in pairs.take(samples) {
            for (g, weights) in weights.groups.iter().enumerate() {
                take(g, (output, dy), (&planes.output_gradient, &mut part.output_gradient));
                let Channels { input_gradient, output_gradient, patches, .. } = &mut *part;
                self.one.input_gradient(isa, 1, weights, output_gradient, input_gradient, patches);
                put(g, (&target, &part.input_gradient), (input, dx));
            }
        }
    }

    /// As [`Direct::weight_gradient`], group by group.
    pub(crate) fn weight_gradient(
        &self,
        isa: Isa,
        samples: usize,
        x: &[f32],
        dy: &[f32],
        target: Target<'_>,
        part: &mut Channels,
    ) {
        let Planes { input, output_gradient: output, .. } = &self.planes;
        let Geometry { planes, .. } = &self.one.geometry;
        let examples = x.chunks_exact(input.len()).zip(dy.chunks_exact(output.len()));
        for (sample, (x, dy)) in examples.take(samples).enumerate() {
            let groups = target.values.chunks_exact_mut(self.one.geometry.packed());
            for (g, values) in groups.enumerate() {
                take(g, (input, x), (&planes.input, &mut part.input));
                take(g, (output, dy), (&planes.output_gradient, &mut part.output_gradient));
                let target = Target { values, keep: target.keep || sample > 0 };
                self.one.weight_gradient(isa, 1, &part.input, &part.output_gradient, target);
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
