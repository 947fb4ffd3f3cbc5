//! The windows of a convolution.

use burn::tensor::Tensor;
use burn::tensor::ops::PadMode;

/// How a convolution cuts windows out of an image.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Channels of the input.
    pub(super) channels: usize,
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
    /// Rows above and below, columns left and right.
    pub(super) padding: [(usize, usize); 2],
    pub(super) groups: usize,
}

impl Window {
    /// Inputs that one output sums over.
    pub(super) fn inputs(&self) -> usize {
        self.channels / self.groups * self.kernel[0] * self.kernel[1]
    }

    /// The windows of `[n, channels, height, width]` as columns: `[n, groups, inputs, positions]`.
    pub(super) fn columns(&self, x: Tensor<4>) -> Tensor<4> {
        let n = x.dims()[0];
        let [(top, bottom), (left, right)] = self.padding;
        let x = if [top, bottom, left, right] == [0; 4] {
            x
        } else {
            x.pad((left, right, top, bottom), PadMode::Constant(0.0))
        };
        // The places from the first to the last that a window reaches, of which every `dilation`-th is used.
        let reach = |axis: usize| (self.kernel[axis] - 1) * self.dilation[axis] + 1;
        let windows = x.unfold::<5, _>(2, reach(0), self.stride[0]);
        let windows = windows.unfold::<6, _>(3, reach(1), self.stride[1]);
        let [_, _, rows, columns, ..] = windows.dims();
        let mut windows = windows.permute([0, 1, 4, 5, 2, 3]);
        for axis in [0, 1] {
            if self.dilation[axis] > 1 {
                let device = windows.device();
                let every = (0..self.kernel[axis]).map(|i| (i * self.dilation[axis]) as i64);
                let every: Vec<i64> = every.collect();
                windows = windows.select(2 + axis, Tensor::from_data(&every[..], &device));
            }
        }
        windows.reshape([n, self.groups, self.inputs(), rows * columns])
    }

    /// The output gradient `[n, out, positions]` by group: `[n, groups, out / groups, positions]`.
    pub(super) fn grouped(&self, dy: Tensor<3>) -> Tensor<4> {
        let [n, out, positions] = dy.dims();
        dy.reshape([n, self.groups, out / self.groups, positions])
    }
}
