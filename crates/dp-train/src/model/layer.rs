//! The kinds of layer that a model is made of.

use serde::{Deserialize, Serialize};

/// One layer. No layer lets one example see another: there is no batch normalization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "layer", deny_unknown_fields)]
pub enum Layer {
    /// A square convolution (cross-correlation) with bias. Weight `[out, in / groups, kernel,
    /// kernel]`.
    Conv2d {
        /// Channels that come in.
        in_channels: usize,
        /// Channels that go out.
        out_channels: usize,
        /// Height and width of the window.
        kernel: usize,
        /// Pixels between windows.
        stride: usize,
        /// Zeros around the image.
        padding: usize,
        /// Groups that both channels are split into; each output sees its own group of inputs
        /// only. 1 is the ordinary convolution, as many as there are channels the depthwise one.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        groups: usize,
    },
    /// `y = W x + b`. Weight `[out, in]`.
    Linear {
        /// Entries that come in.
        in_features: usize,
        /// Entries that go out.
        out_features: usize,
    },
    /// `max(0, x)`.
    Relu,
    /// The hyperbolic tangent.
    Tanh,
    /// The largest entry of each window; of equal ones the first gets the gradient.
    MaxPool2d {
        /// Height and width of the window.
        kernel: usize,
        /// Pixels between windows.
        stride: usize,
    },
    /// The mean of each window.
    AvgPool2d {
        /// Height and width of the window.
        kernel: usize,
        /// Pixels between windows.
        stride: usize,
    },
    /// Mean 0 and variance 1 within each group of channels of one example, then a learned scale
    /// and shift per channel; `1e-5` is added to the variance.
    GroupNorm {
        /// Groups that the channels are split into.
        groups: usize,
    },
    /// An image read as a vector, channel by channel.
    Flatten,
}

impl Layer {
    /// A convolution of stride 1 with padding `kernel / 2`: for odd kernels, images keep their size.
    pub fn conv(in_channels: usize, out_channels: usize, kernel: usize) -> Self {
        let padding = kernel / 2;
        Self::Conv2d { in_channels, out_channels, kernel, stride: 1, padding, groups: 1 }
    }

    /// A linear layer.
    pub fn linear(in_features: usize, out_features: usize) -> Self {
        Self::Linear { in_features, out_features }
    }

    /// Max pooling over windows that do not overlap.
    pub fn max_pool(kernel: usize) -> Self {
        Self::MaxPool2d { kernel, stride: kernel }
    }

    /// Average pooling over windows that do not overlap.
    pub fn avg_pool(kernel: usize) -> Self {
        Self::AvgPool2d { kernel, stride: kernel }
    }
}

fn one() -> usize {
    1
}

fn is_one(groups: &usize) -> bool {
    *groups == 1
}
