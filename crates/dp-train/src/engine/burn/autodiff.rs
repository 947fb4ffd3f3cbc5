//! The definition: one example at a time through burn's automatic differentiation.
//!
//! It shares no code with the layers, only the operations that burn differentiates by itself.

use burn::tensor::module::{avg_pool2d, conv2d, max_pool2d};
use burn::tensor::ops::{AvgPoolOptions, ConvOptions, MaxPoolOptions};
use burn::tensor::{Device, Tensor, TensorData, activation};

use crate::engine::burn::layer::dimensions;
use crate::model::{Architecture, Layer};

/// One example: its loss and its gradient with respect to the flat vector of parameters.
pub(crate) fn example(
    architecture: &Architecture,
    parameters: &[f32],
    image: &[f32],
    label: usize,
) -> (f64, Vec<f32>) {
    let device = Device::flex().autodiff();
    let flat = TensorData::new(parameters.to_vec(), [parameters.len()]);
    let flat = Tensor::<1>::from_data(flat, &device).require_grad();
    let [channels, height, width] = dimensions(architecture.shapes()[0]);
    let data = TensorData::new(image.to_vec(), [1, channels, height, width]);
    let mut x = Tensor::<4>::from_data(data, &device);
    for (i, &layer) in architecture.layers().iter().enumerate() {
        let tensors: Vec<Tensor<1>> = architecture
            .parameters_of(i)
            .iter()
            .map(|p| flat.clone().slice([p.range.clone()]))
            .collect();
        x = forward(layer, &tensors, x);
    }
    let classes = x.dims()[1];
    let logarithms = activation::log_softmax(x.reshape([1, classes]), 1);
    let loss = logarithms.slice([0..1, label..label + 1]).sum().neg();
    let gradient = flat.grad(&loss.backward()).expect("the loss depends on the parameters");
    let loss: f32 = loss.into_scalar();
    (f64::from(loss), gradient.into_data().try_to_vec().expect("it is f32"))
}

fn forward(layer: Layer, parameters: &[Tensor<1>], x: Tensor<4>) -> Tensor<4> {
    let [n, channels, height, width] = x.dims();
    match layer {
        Layer::Conv2d { in_channels, out_channels, kernel, stride, padding, groups } => {
            let weight = parameters[0].clone();
            let weight = weight.reshape([out_channels, in_channels / groups, kernel, kernel]);
            let options = ConvOptions::new([stride; 2], [padding; 2], [1, 1], groups);
            conv2d(x, weight, Some(parameters[1].clone()), options)
        }
        Layer::Linear { in_features, out_features } => {
            let weight = parameters[0].clone().reshape([out_features, in_features]);
            let y = x.reshape([n, in_features]).matmul(weight.transpose());
            let y = y + parameters[1].clone().reshape([1, out_features]);
            y.reshape([n, out_features, 1, 1])
        }
        Layer::Relu => activation::relu(x),
        Layer::Tanh => activation::tanh(x),
        Layer::MaxPool2d { kernel, stride } => {
            max_pool2d(x, MaxPoolOptions::new([kernel; 2]).with_stride([stride; 2]))
        }
        Layer::AvgPool2d { kernel, stride } => {
            avg_pool2d(x, AvgPoolOptions::new([kernel; 2]).with_stride([stride; 2]))
        }
        Layer::GroupNorm { groups } => {
            let grouped = x.reshape([n, groups, channels / groups * height * width]);
            let (variance, mean) = grouped.clone().var_mean_bias(2);
            let normal = (grouped - mean) / variance.add_scalar(1e-5).sqrt();
            let [scale, shift] =
                [0, 1].map(|i: usize| parameters[i].clone().reshape([1, channels, 1, 1]));
            normal.reshape([n, channels, height, width]) * scale + shift
        }
        Layer::Flatten => x.reshape([n, channels * height * width, 1, 1]),
    }
}
