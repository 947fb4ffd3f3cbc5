//! Convolutions over images and sequences.

use burn::module::{Param, ParamId};
use burn::nn::conv::{Conv1d, Conv2d};
use burn::nn::{PaddingConfig1d, PaddingConfig2d};
use burn::tensor::Tensor;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;

use super::{Tapped, tape};
use crate::module::layer_use::LayerInput;
use crate::module::tape::Role;
use crate::module::window::Window;

impl Tapped<Tensor<4>> for Conv2d {
    type Output = Tensor<4>;

    fn tapped(&self, input: Tensor<4>) -> Tensor<4> {
        let [_, channels, height, width] = input.dims();
        let same =
            |size, axis: usize| same_padding(self.kernel_size[axis], self.stride[axis], size);
        let padding = match self.padding {
            PaddingConfig2d::Valid => [(0, 0); 2],
            PaddingConfig2d::Same => [same(height, 0), same(width, 1)],
            PaddingConfig2d::Explicit(top, left, bottom, right) => [(top, bottom), (left, right)],
        };
        let window = Window {
            channels,
            kernel: self.kernel_size,
            stride: self.stride,
            dilation: self.dilation,
            padding,
            groups: self.groups,
        };
        let weight = tape::is_recording().then(|| tape::role(&self.weight));
        let output = weight.and_then(|weight| convolve(input.clone(), weight, &self.bias, window));
        output.unwrap_or_else(|| self.forward(input))
    }
}

impl Tapped<Tensor<3>> for Conv1d {
    type Output = Tensor<3>;

    /// As over an image of one row.
    fn tapped(&self, input: Tensor<3>) -> Tensor<3> {
        let [n, channels, length] = input.dims();
        let padding = match self.padding {
            PaddingConfig1d::Valid => (0, 0),
            PaddingConfig1d::Same => same_padding(self.kernel_size, self.stride, length),
            PaddingConfig1d::Explicit(left, right) => (left, right),
        };
        let window = Window {
            channels,
            kernel: [1, self.kernel_size],
            stride: [1, self.stride],
            dilation: [1, self.dilation],
            padding: [(0, 0), padding],
            groups: self.groups,
        };
        let weight = tape::is_recording().then(|| match tape::role(&self.weight) {
            Role::Trained(id, weight) => Role::Trained(id, weight.unsqueeze_dim::<4>(2)),
            Role::Frozen(weight) => Role::Frozen(weight.unsqueeze_dim(2)),
            Role::Computed => Role::Computed,
        });
        let image = input.clone().reshape([n, channels, 1, length]);
        match weight.and_then(|weight| convolve(image, weight, &self.bias, window)) {
            Some(output) => {
                let [n, channels, _, length] = output.dims();
                output.reshape([n, channels, length])
            }
            None => self.forward(input),
        }
    }
}

/// The tapped convolution; none if there is nothing to tap, or if a tap does not reach what is trained.
fn convolve(
    input: Tensor<4>,
    weight: Role<4>,
    bias: &Option<Param<Tensor<1>>>,
    window: Window,
) -> Option<Tensor<4>> {
    let (weight_id, weight) = match weight {
        Role::Trained(id, weight) => (Some(id), weight),
        Role::Frozen(weight) => (None, weight),
        Role::Computed => return None,
    };
    let (bias_id, bias): (Option<ParamId>, _) = match bias.as_ref().map(tape::role) {
        Some(Role::Trained(id, bias)) => (Some(id), Some(bias)),
        Some(Role::Frozen(bias)) => (None, Some(bias)),
        Some(Role::Computed) => return None,
        None => (None, None),
    };
    if weight_id.is_none() && bias_id.is_none() {
        return None;
    }
    let seen = input.clone().inner();
    let options = ConvOptions::new_with_padding(
        window.stride,
        window.padding,
        window.dilation,
        window.groups,
    );
    // The bias goes in as in burn's own pass: on a GPU a sum that begins with it has other last bits, and two passes compare them.
    let y = conv2d(input, weight, bias, options);
    let [n, out, rows, columns] = y.dims();
    let layer = LayerInput::Convolution { weight: weight_id, bias: bias_id, x: seen, window };
    let y = tape::tap(y.reshape([n, out, rows * columns]), None, layer);
    Some(y.reshape([n, out, rows, columns]))
}

/// What burn pads in front and behind so that a stride of 1 keeps the size.
fn same_padding(kernel: usize, stride: usize, size: usize) -> (usize, usize) {
    let needed = (size.div_ceil(stride).max(1) - 1) * stride + kernel;
    let all = needed.saturating_sub(size);
    (all / 2, all - all / 2)
}
