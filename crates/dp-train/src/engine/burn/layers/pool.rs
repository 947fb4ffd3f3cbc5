//! Pooling over square windows without padding.

use burn::tensor::module::{avg_pool2d, conv_transpose2d, max_pool2d, max_pool2d_with_indices};
use burn::tensor::ops::{AvgPoolOptions, ConvTransposeOptions, MaxPoolOptions};
use burn::tensor::{IndexingUpdateOp, Tensor};

use crate::engine::burn::layer::{Seen, TensorLayer};

/// The largest entry of each window.
#[derive(Debug)]
pub(crate) struct MaxPool2d {
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
}

impl MaxPool2d {
    fn options(&self) -> MaxPoolOptions<2> {
        MaxPoolOptions::new([self.kernel; 2]).with_stride([self.stride; 2])
    }
}

impl TensorLayer for MaxPool2d {
    fn forward(&self, _: &[Tensor<1>], x: Tensor<4>) -> Tensor<4> {
        max_pool2d(x, self.options())
    }

    fn input_gradient(&self, _: &[Tensor<1>], seen: Seen) -> Tensor<4> {
        let ([n, channels, height, width], [_, _, rows, columns]) = (seen.x.dims(), seen.y.dims());
        let (area, windows) = (height * width, rows * columns);
        let (_, places) = max_pool2d_with_indices(seen.x, self.options());
        // A window of NaN may have no largest entry: its gradient must still stay in its image.
        let places = places.reshape([n, channels, windows]).clamp(0, area as i64 - 1);
        let zeros = Tensor::zeros([n, channels, area], &seen.dy.device());
        let dy = seen.dy.reshape([n, channels, windows]);
        zeros.scatter(2, places, dy, IndexingUpdateOp::Add).reshape([n, channels, height, width])
    }
}

/// The mean of each window.
#[derive(Debug)]
pub(crate) struct AvgPool2d {
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
}

impl TensorLayer for AvgPool2d {
    fn forward(&self, _: &[Tensor<1>], x: Tensor<4>) -> Tensor<4> {
        avg_pool2d(x, AvgPoolOptions::new([self.kernel; 2]).with_stride([self.stride; 2]))
    }

    fn input_gradient(&self, _: &[Tensor<1>], seen: Seen) -> Tensor<4> {
        let [n, channels, height, width] = seen.x.dims();
        let [_, _, rows, columns] = seen.dy.dims();
        let (kernel, stride) = (self.kernel, self.stride);
        // Every output spreads its share over its window: a transposed convolution with one channel.
        let share = 1.0 / (kernel * kernel) as f32;
        let window = Tensor::full([1, 1, kernel, kernel], share, &seen.dy.device());
        let rest = [(height - kernel) % stride, (width - kernel) % stride];
        let options = ConvTransposeOptions::new([stride; 2], [0, 0], rest, [1, 1], 1);
        let dy = seen.dy.reshape([n * channels, 1, rows, columns]);
        conv_transpose2d(dy, window, None, options).reshape([n, channels, height, width])
    }
}
