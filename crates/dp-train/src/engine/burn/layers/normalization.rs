//! Group normalization: within one example, never across a batch.

use burn::tensor::Tensor;

use crate::engine::burn::layer::{Choice, ExampleGradients, Seen, TensorLayer};

/// PyTorch's default.
const EPSILON: f64 = 1e-5;

/// `y = scale (x - mean) / std + shift`.
#[derive(Debug)]
pub(crate) struct GroupNorm {
    pub(crate) groups: usize,
}

impl GroupNorm {
    /// `(x - mean) / std` and `1 / std`, both as `[n, groups, group]` and `[n, groups, 1]`.
    fn normal(&self, x: Tensor<4>) -> (Tensor<3>, Tensor<3>) {
        let [n, channels, height, width] = x.dims();
        let x = x.reshape([n, self.groups, channels / self.groups * height * width]);
        let centred = x.clone() - x.mean_dim(2);
        let variance = centred.clone().square().mean_dim(2);
        let inverse = variance.add_scalar(EPSILON).sqrt().recip();
        (centred * inverse.clone(), inverse)
    }

    /// `dy n` and `dy` summed over pixels: every example's gradient of scale and shift.
    fn gradients(&self, seen: &Seen) -> [Tensor<2>; 2] {
        let [n, channels, height, width] = seen.x.dims();
        let (normal, _) = self.normal(seen.x.clone());
        let dy = seen.dy.clone().reshape([n, channels, height * width]);
        let products = dy.clone() * normal.reshape([n, channels, height * width]);
        [products, dy].map(|terms| terms.sum_dim(2).reshape([n, channels]))
    }
}

impl TensorLayer for GroupNorm {
    fn forward(&self, parameters: &[Tensor<1>], x: Tensor<4>) -> Tensor<4> {
        let [n, channels, height, width] = x.dims();
        let (normal, _) = self.normal(x);
        let [scale, shift] =
            [0, 1].map(|i: usize| parameters[i].clone().reshape([1, channels, 1, 1]));
        normal.reshape([n, channels, height, width]) * scale + shift
    }

    /// With `n = (x - mean) / std` and `e = scale dy`, `dx = (e - mean(e) - n mean(e n)) / std`.
    fn input_gradient(&self, parameters: &[Tensor<1>], seen: Seen) -> Tensor<4> {
        let [n, channels, height, width] = seen.x.dims();
        let (normal, inverse) = self.normal(seen.x);
        let scale = parameters[0].clone().reshape([1, channels, 1, 1]);
        let e =
            (seen.dy * scale).reshape([n, self.groups, channels / self.groups * height * width]);
        let mean = e.clone().mean_dim(2);
        let along = (e.clone() * normal.clone()).mean_dim(2);
        ((e - mean - normal * along) * inverse).reshape([n, channels, height, width])
    }

    fn example_gradients(&self, _: &[Tensor<1>], seen: &Seen, _: Choice) -> ExampleGradients {
        ExampleGradients::Held(self.gradients(seen).into())
    }

    fn gradient_sum(&self, _: &[Tensor<1>], seen: Seen) -> Vec<Tensor<1>> {
        let sum = |rows: Tensor<2>| {
            let channels = rows.dims()[1];
            rows.sum_dim(0).reshape([channels])
        };
        self.gradients(&seen).map(sum).into()
    }
}
