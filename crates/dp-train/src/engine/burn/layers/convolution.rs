//! Convolutions with square windows.

use burn::tensor::Tensor;
use burn::tensor::module::{conv_transpose2d, conv2d};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions, PadMode};

use crate::engine::burn::gram::{ghost_pays, squared_norms};
use crate::engine::burn::layer::{Choice, ExampleGradients, Seen, TensorLayer};

/// A weight `[out, in / groups, kernel, kernel]` and a bias `[out]`.
///
/// With the windows `a_p` of one example and the gradients `g_p` of the outputs, over the output
/// pixels `p`, the example's gradient is `sum_p g_p a_p'` and, for the bias, `sum_p g_p`.
#[derive(Debug)]
pub(crate) struct Conv2d {
    pub(crate) in_channels: usize,
    pub(crate) out_channels: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    pub(crate) groups: usize,
}

impl Conv2d {
    /// Inputs that one output sums over.
    fn window(&self) -> usize {
        self.in_channels / self.groups * self.kernel * self.kernel
    }

    fn weight(&self, parameters: &[Tensor<1>]) -> Tensor<4> {
        let inner = self.in_channels / self.groups;
        parameters[0].clone().reshape([self.out_channels, inner, self.kernel, self.kernel])
    }

    /// The windows as columns: `[n, groups, window, positions]`.
    fn windows(&self, x: Tensor<4>) -> Tensor<4> {
        let (kernel, stride, padding) = (self.kernel, self.stride, self.padding);
        let n = x.dims()[0];
        let x = if padding == 0 {
            x
        } else {
            x.pad((padding, padding, padding, padding), PadMode::Constant(0.0))
        };
        let windows = x.unfold::<5, _>(2, kernel, stride).unfold::<6, _>(3, kernel, stride);
        let [_, _, rows, columns, ..] = windows.dims();
        let columns_last = windows.permute([0, 1, 4, 5, 2, 3]);
        columns_last.reshape([n, self.groups, self.window(), rows * columns])
    }

    /// The output gradient `[n, groups, out / groups, positions]`.
    fn grouped(&self, dy: Tensor<4>) -> Tensor<4> {
        let [n, _, rows, columns] = dy.dims();
        dy.reshape([n, self.groups, self.out_channels / self.groups, rows * columns])
    }

    /// The gradient with respect to the bias: `[n, out]`.
    fn bias_gradients(&self, dy: Tensor<4>) -> Tensor<2> {
        let [n, channels, rows, columns] = dy.dims();
        dy.reshape([n, channels, rows * columns]).sum_dim(2).reshape([n, channels])
    }
}

impl TensorLayer for Conv2d {
    fn forward(&self, parameters: &[Tensor<1>], x: Tensor<4>) -> Tensor<4> {
        let options = ConvOptions::new([self.stride; 2], [self.padding; 2], [1, 1], self.groups);
        conv2d(x, self.weight(parameters), Some(parameters[1].clone()), options)
    }

    fn input_gradient(&self, parameters: &[Tensor<1>], seen: Seen) -> Tensor<4> {
        let weight = self.weight(parameters);
        let (kernel, stride, padding, groups) =
            (self.kernel, self.stride, self.padding, self.groups);
        let (inner, outer) = (self.in_channels / groups, self.out_channels / groups);
        if stride == 1 && padding < kernel {
            // A convolution with the kernel turned round: faster than the transposed one.
            let turned = weight
                .reshape([groups, outer, inner, kernel * kernel])
                .swap_dims(1, 2)
                .flip([3])
                .reshape([self.in_channels, outer, kernel, kernel]);
            let options = ConvOptions::new([1, 1], [kernel - 1 - padding; 2], [1, 1], groups);
            return conv2d(seen.dy, turned, None, options);
        }
        let ([_, _, height, width], [_, _, rows, columns]) = (seen.x.dims(), seen.dy.dims());
        // Rows and columns of the image that no window reaches.
        let rest =
            |size: usize, windows: usize| size + 2 * padding - ((windows - 1) * stride + kernel);
        let options = ConvTransposeOptions::new(
            [stride; 2],
            [padding; 2],
            [rest(height, rows), rest(width, columns)],
            [1, 1],
            groups,
        );
        conv_transpose2d(seen.dy, weight, None, options)
    }

    fn example_gradients(&self, _: &[Tensor<1>], seen: &Seen, choice: Choice) -> ExampleGradients {
        let [n, _, rows, columns] = seen.dy.dims();
        let (windows, dy) = (self.windows(seen.x.clone()), self.grouped(seen.dy.clone()));
        let pays = ghost_pays(rows * columns, self.window(), self.out_channels / self.groups);
        if choice == Choice::Cheaper && pays {
            return ExampleGradients::Ghost(squared_norms(windows, dy, true));
        }
        let weight = dy.matmul(windows.swap_dims(2, 3));
        let weight = weight.reshape([n, self.out_channels * self.window()]);
        ExampleGradients::Held(vec![weight, self.bias_gradients(seen.dy.clone())])
    }

    /// One product over the pixels of all examples.
    fn gradient_sum(&self, _: &[Tensor<1>], seen: Seen) -> Vec<Tensor<1>> {
        let bias = self.bias_gradients(seen.dy.clone());
        let bias = bias.sum_dim(0).reshape([self.out_channels]);
        let windows = self.windows(seen.x);
        let [n, groups, window, positions] = windows.dims();
        let outer = self.out_channels / groups;
        let dy = self.grouped(seen.dy).permute([1, 2, 0, 3]);
        let dy = dy.reshape([groups, outer, n * positions]);
        let windows = windows.permute([1, 2, 0, 3]).reshape([groups, window, n * positions]);
        let weight = dy.matmul(windows.swap_dims(1, 2));
        vec![weight.reshape([self.out_channels * window]), bias]
    }
}
