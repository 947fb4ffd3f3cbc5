//! `y = W x + b`.

use burn::tensor::Tensor;

use crate::engine::burn::clip::{rounded_up, sum_of_squares};
use crate::engine::burn::layer::{Choice, ExampleGradients, Seen, TensorLayer};

/// A weight `[out, in]` and a bias `[out]`.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(crate) in_features: usize,
    pub(crate) out_features: usize,
}

impl Linear {
    fn weight(&self, parameters: &[Tensor<1>]) -> Tensor<2> {
        parameters[0].clone().reshape([self.out_features, self.in_features])
    }
}

/// The vectors of a value `[n, features, 1, 1]`.
fn vectors(value: Tensor<4>) -> Tensor<2> {
    let [n, features, ..] = value.dims();
    value.reshape([n, features])
}

impl TensorLayer for Linear {
    fn forward(&self, parameters: &[Tensor<1>], x: Tensor<4>) -> Tensor<4> {
        let n = x.dims()[0];
        let bias = parameters[1].clone().reshape([1, self.out_features]);
        let y = vectors(x).matmul(self.weight(parameters).transpose()) + bias;
        y.reshape([n, self.out_features, 1, 1])
    }

    fn input_gradient(&self, parameters: &[Tensor<1>], seen: Seen) -> Tensor<4> {
        let n = seen.dy.dims()[0];
        let dx = vectors(seen.dy).matmul(self.weight(parameters));
        dx.reshape([n, self.in_features, 1, 1])
    }

    /// The gradient is `dy x'` and `dy`: its squared norm is `(1 + |x|^2) |dy|^2`.
    fn example_gradients(&self, _: &[Tensor<1>], seen: &Seen, choice: Choice) -> ExampleGradients {
        let (x, dy) = (vectors(seen.x.clone()), vectors(seen.dy.clone()));
        if choice == Choice::Held {
            let n = dy.dims()[0];
            let columns = dy.clone().reshape([n, self.out_features, 1]);
            let weight = columns * x.reshape([n, 1, self.in_features]);
            let weight = weight.reshape([n, self.out_features * self.in_features]);
            return ExampleGradients::Held(vec![weight, dy]);
        }
        // Squares that vanish in f32 may stand beside huge inputs.
        let vanished = self.out_features as f32 * f32::MIN_POSITIVE;
        let (x, dy) = (sum_of_squares(x), sum_of_squares(dy).add_scalar(vanished));
        ExampleGradients::Ghost(rounded_up(x.add_scalar(1.0) * dy, 4))
    }

    fn gradient_sum(&self, _: &[Tensor<1>], seen: Seen) -> Vec<Tensor<1>> {
        let (x, dy) = (vectors(seen.x), vectors(seen.dy));
        let weight = dy.clone().transpose().matmul(x);
        let bias = dy.sum_dim(0).reshape([self.out_features]);
        vec![weight.reshape([self.out_features * self.in_features]), bias]
    }
}
