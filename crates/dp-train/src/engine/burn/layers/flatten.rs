//! An image read as a vector, channel by channel.

use burn::tensor::Tensor;

use crate::engine::burn::layer::{Seen, TensorLayer};

/// `[n, c, h, w]` becomes `[n, c h w, 1, 1]`.
#[derive(Debug)]
pub(crate) struct Flatten {
    pub(crate) input: [usize; 3],
}

impl TensorLayer for Flatten {
    fn forward(&self, _: &[Tensor<1>], x: Tensor<4>) -> Tensor<4> {
        let n = x.dims()[0];
        x.reshape([n, self.input.iter().product(), 1, 1])
    }

    fn input_gradient(&self, _: &[Tensor<1>], seen: Seen) -> Tensor<4> {
        let (n, [channels, height, width]) = (seen.dy.dims()[0], self.input);
        seen.dy.reshape([n, channels, height, width])
    }
}
