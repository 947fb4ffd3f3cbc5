//! A convolution or linear layer: its parameters, and the kernels that compute it.

use std::ops::Range;

use crate::engine::cpu::kernels::direct::Direct;
use crate::engine::cpu::kernels::geometry::Geometry;
use crate::engine::cpu::kernels::gram;
use crate::engine::cpu::kernels::packing::{Weights, unpack};
use crate::engine::cpu::kernels::reduce::{Target, add_pixels};
use crate::engine::cpu::kernels::scratch::Scratch;
use crate::engine::cpu::kernels::vector::Isa;
use crate::engine::cpu::kernels::winograd::Winograd;

/// One layer with weights and bias.
#[derive(Debug)]
pub(crate) struct Convolution {
    pub(crate) geometry: Geometry,
    /// In the flat vector of parameters.
    pub(crate) weight: Range<usize>,
    pub(crate) bias: Range<usize>,
    /// In the packed gradient: `[kh][kw][in pitch][out pitch]`, then the bias.
    pub(crate) packed: Range<usize>,
    /// The norm comes from Gram matrices; gradients are summed over examples at once.
    pub(crate) ghost: bool,
    pub(crate) method: Method,
    /// Whether the input gradient goes on to what ReLU made the input from.
    pub(crate) through_relu: bool,
}

/// How a convolution is computed.
#[derive(Debug)]
pub(crate) enum Method {
    Direct(Direct),
    Winograd(Winograd),
}

impl Convolution {
    /// Chooses how the norm is computed; its place in the packed gradient is not known yet.
    pub(crate) fn new(
        method: Method,
        after_relu: bool,
        weight: Range<usize>,
        bias: Range<usize>,
    ) -> Self {
        let (geometry, is_winograd) = match &method {
            Method::Direct(direct) => (direct.geometry, false),
            Method::Winograd(winograd) => (winograd.geometry, true),
        };
        let ghost = gram::pays(&geometry, is_winograd);
        let through_relu = after_relu && is_winograd;
        Self { geometry, weight, bias, packed: 0..0, ghost, method, through_relu }
    }

    /// Brings weights and bias into the order of the products. O(weights).
    pub(crate) fn pack(&self, isa: Isa, parameters: &[f32], weights: &mut Weights) {
        weights.pack_bias(&self.geometry, &parameters[self.bias.clone()]);
        let source = &parameters[self.weight.clone()];
        match &self.method {
            Method::Direct(_) => weights.pack(&self.geometry, source),
            Method::Winograd(winograd) => winograd.pack(isa, source, weights),
        }
    }

    /// Writes a packed gradient in PyTorch's order into the flat vector.
    pub(crate) fn unpack(&self, packed: &[f64], flat: &mut [f64]) {
        let (head, tail) = flat.split_at_mut(self.bias.start);
        let bias = &mut tail[..self.bias.len()];
        unpack(&self.geometry, packed, &mut head[self.weight.clone()], bias);
    }

    /// `y = w * x + b` for `samples` examples, with ReLU if asked for.
    pub(crate) fn forward(
        &self,
        isa: Isa,
        samples: usize,
        weights: &Weights,
        x: &[f32],
        (y, relu): (&mut [f32], bool),
        scratch: Scratch<'_>,
    ) {
        match &self.method {
            Method::Direct(direct) => direct.forward(isa, samples, weights, x, (y, relu)),
            Method::Winograd(winograd) => {
                winograd.forward(isa, samples, weights, x, (y, relu), scratch);
            }
        }
    }

    /// The gradient with respect to the input `x`, or [through](Self::through_relu) the ReLU that made it, from that
    /// with respect to the output.
    pub(crate) fn input_gradient(
        &self,
        isa: Isa,
        samples: usize,
        weights: &Weights,
        (x, dy): (&[f32], &[f32]),
        dx: &mut [f32],
        scratch: Scratch<'_>,
    ) {
        match &self.method {
            Method::Direct(direct) => {
                direct.input_gradient(isa, samples, weights, dy, dx, scratch.patches);
            }
            Method::Winograd(winograd) => {
                let x = self.through_relu.then_some(x);
                winograd.input_gradient(isa, samples, weights, (x, dy), dx, scratch);
            }
        }
    }

    /// The gradient of weights and bias, summed over some examples of a block, in the packed order.
    pub(crate) fn weight_gradient(
        &self,
        isa: Isa,
        samples: Range<usize>,
        x: &[f32],
        dy: &[f32],
        target: Target<'_>,
        scratch: Scratch<'_>,
    ) {
        let planes = &self.geometry.planes;
        let (input, gradient) = (&planes.input, &planes.output_gradient);
        let first_dy = &dy[samples.start * gradient.len()..];
        match &self.method {
            Method::Direct(direct) => {
                let x = &x[samples.start * input.len()..];
                direct.weight_gradient(isa, samples.len(), x, first_dy, target);
            }
            Method::Winograd(winograd) => {
                let Target { values, keep } = target;
                let (values, bias) = values.split_at_mut(self.geometry.window() * gradient.pitch);
                let bias = Target { values: bias, keep };
                add_pixels(isa, gradient, samples.len(), first_dy, bias);
                winograd.weight_gradient(isa, samples, dy, Target { values, keep }, scratch);
            }
        }
    }
}
