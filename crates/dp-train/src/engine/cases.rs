//! Small models, batches and distances that the tests of both engines share.

use crate::model::{Architecture, Layer, Shape};

pub(crate) fn conv(i: usize, o: usize, kernel: usize, stride: usize, padding: usize) -> Layer {
    grouped(i, o, (kernel, stride, padding), 1)
}

pub(crate) fn grouped(i: usize, o: usize, window: (usize, usize, usize), groups: usize) -> Layer {
    let (kernel, stride, padding) = window;
    Layer::Conv2d { in_channels: i, out_channels: o, kernel, stride, padding, groups }
}

/// The layers on an image, then a linear layer to 5 classes.
pub(crate) fn classifier(input: (usize, usize, usize), mut layers: Vec<Layer>) -> Architecture {
    let (channels, height, width) = input;
    let input = Shape::Image { channels, height, width };
    layers.push(Layer::Flatten);
    let features = Architecture::new(input, layers.clone()).unwrap().output().len();
    layers.push(Layer::linear(features, 5));
    Architecture::new(input, layers).unwrap()
}

/// The paper's ConvNet: 307,498 parameters.
pub(crate) fn convnet() -> Architecture {
    with_convolutions(Layer::Relu, vec![Layer::linear(2048, 10)])
}

/// The ConvNet of the literature: 550,570 parameters.
pub(crate) fn convnet_tanh() -> Architecture {
    let head = vec![Layer::linear(2048, 128), Layer::Tanh, Layer::linear(128, 10)];
    with_convolutions(Layer::Tanh, head)
}

fn with_convolutions(activation: Layer, head: Vec<Layer>) -> Architecture {
    let mut layers = Vec::new();
    for (inner, outer) in [(3, 32), (32, 64), (64, 128)] {
        layers.extend([Layer::conv(inner, outer, 3), activation]);
        layers.extend([Layer::conv(outer, outer, 3), activation, Layer::max_pool(2)]);
    }
    layers.push(Layer::Flatten);
    layers.extend(head);
    Architecture::new(Shape::Image { channels: 3, height: 32, width: 32 }, layers).unwrap()
}

/// Images with varied pixels, and labels.
pub(crate) fn batch(architecture: &Architecture, examples: usize) -> (Vec<f32>, Vec<u32>) {
    let pixels = architecture.input().len();
    let wave = |i: usize| ((i * 7919 % 1009) as f32 / 504.5 - 1.0) * ((i % 13) as f32 / 13.0);
    let images = (0..examples * pixels).map(wave).collect();
    let classes = architecture.output().len() as u32;
    (images, (0..examples as u32).map(|i| i * 3 % classes).collect())
}

pub(crate) fn wide<T: Copy + Into<f64>>(x: &[T]) -> Vec<f64> {
    x.iter().map(|&x| x.into()).collect()
}

pub(crate) fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

pub(crate) fn distance<T: Copy + Into<f64>>(x: &[T], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len());
    norm(&x.iter().zip(y).map(|(&x, y)| x.into() - y).collect::<Vec<_>>())
}
