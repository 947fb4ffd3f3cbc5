//! Functions of single numbers.

use burn::tensor::{Tensor, activation};

use crate::engine::burn::layer::{Seen, TensorLayer};

/// `max(0, x)`, with derivative 0 at 0.
#[derive(Debug)]
pub(crate) struct Relu;

impl TensorLayer for Relu {
    fn forward(&self, _: &[Tensor<1>], x: Tensor<4>) -> Tensor<4> {
        activation::relu(x)
    }

    fn input_gradient(&self, _: &[Tensor<1>], seen: Seen) -> Tensor<4> {
        seen.dy.mask_fill(seen.y.lower_equal_scalar(0.0), 0.0)
    }
}

/// The hyperbolic tangent, with derivative `1 - y^2`.
#[derive(Debug)]
pub(crate) struct Tanh;

impl TensorLayer for Tanh {
    fn forward(&self, _: &[Tensor<1>], x: Tensor<4>) -> Tensor<4> {
        x.tanh()
    }

    fn input_gradient(&self, _: &[Tensor<1>], seen: Seen) -> Tensor<4> {
        seen.dy * seen.y.square().neg().add_scalar(1.0)
    }
}
