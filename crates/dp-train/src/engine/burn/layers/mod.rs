//! The layers over burn's tensors, one file for each kind.

mod activation;
mod convolution;
mod flatten;
pub(super) mod linear;
mod normalization;
mod pool;

use crate::engine::burn::layer::{TensorLayer, dimensions};
use crate::model::{Layer, Shape};
use activation::{Relu, Tanh};
use convolution::Conv2d;
use flatten::Flatten;
use linear::Linear;
use normalization::GroupNorm;
use pool::{AvgPool2d, MaxPool2d};

/// The layer over burn's tensors, given the shape of what enters it.
pub(crate) fn tensor_layer(layer: Layer, input: Shape) -> Box<dyn TensorLayer> {
    match layer {
        Layer::Conv2d { in_channels, out_channels, kernel, stride, padding, groups } => {
            Box::new(Conv2d { in_channels, out_channels, kernel, stride, padding, groups })
        }
        Layer::Linear { in_features, out_features } => {
            Box::new(Linear { in_features, out_features })
        }
        Layer::Relu => Box::new(Relu),
        Layer::Tanh => Box::new(Tanh),
        Layer::MaxPool2d { kernel, stride } => Box::new(MaxPool2d { kernel, stride }),
        Layer::AvgPool2d { kernel, stride } => Box::new(AvgPool2d { kernel, stride }),
        Layer::GroupNorm { groups } => Box::new(GroupNorm { groups }),
        Layer::Flatten => Box::new(Flatten { input: dimensions(input) }),
    }
}
