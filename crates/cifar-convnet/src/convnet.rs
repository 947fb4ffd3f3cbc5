//! The ConvNets of the paper and of the literature it compares with, and a small one that learns more under noise.

use dp_train::model::{Architecture, ArchitectureError, Layer, Shape};

/// Images of CIFAR-10.
const CIFAR: Shape = Shape::Image { channels: 3, height: 32, width: 32 };

/// The ConvNet of the paper: six 3 x 3 convolutions with ReLU, 32, 64 and 128 channels, each pair
/// followed by 2 x 2 max pooling, then a linear layer. 307,498 parameters for 10 classes of
/// 3 x 32 x 32 images.
pub fn convnet() -> Architecture {
    convnet_for(CIFAR, 10).expect("the layers fit CIFAR-10")
}

/// The layers of [`convnet`] for other images and classes.
///
/// # Errors
/// [`ArchitectureError`] if the input is no image of at least 8 x 8, or without classes.
pub fn convnet_for(input: Shape, classes: usize) -> Result<Architecture, ArchitectureError> {
    with_head(input, Layer::Relu, &[classes])
}

/// The ConvNet of the literature: the same convolutions with tanh, then linear layers of 128 (tanh)
/// and 10. 550,570 parameters.
pub fn convnet_tanh() -> Architecture {
    convnet_tanh_for(CIFAR, 10).expect("the layers fit CIFAR-10")
}

/// The layers of [`convnet_tanh`] for other images and classes.
///
/// # Errors
/// As [`convnet_for`].
pub fn convnet_tanh_for(input: Shape, classes: usize) -> Result<Architecture, ArchitectureError> {
    with_head(input, Layer::Tanh, &[128, classes])
}

/// A small ConvNet for training with noise: three 3 x 3 convolutions of 32, 64 and 64 channels, each with ReLU and
/// then group normalization, pooled to 2 x 2 pixels before one linear layer. 59,210 parameters for 10 classes of
/// 3 x 32 x 32 images. Normalization comes after the activation: before it, four points are lost in `results/best/ablation`.
///
/// # Errors
/// As [`convnet_for`].
pub fn convnet_small_for(input: Shape, classes: usize) -> Result<Architecture, ArchitectureError> {
    let Shape::Image { channels, height, width } = input else {
        return Err(ArchitectureError::NeedsImage { layer: 0 });
    };
    let mut layers = Vec::new();
    for (inner, outer, groups) in [(channels, 32, 8), (32, 64, 16), (64, 64, 16)] {
        if !layers.is_empty() {
            layers.push(Layer::max_pool(2));
        }
        layers.extend([Layer::conv(inner, outer, 3), Layer::Relu, Layer::GroupNorm { groups }]);
    }
    let kernel = (height.min(width) / 8).max(1);
    layers.extend([Layer::AvgPool2d { kernel, stride: kernel }, Layer::Flatten]);
    let features = Architecture::new(input, layers.clone())?.output().len();
    layers.push(Layer::linear(features, classes));
    Architecture::new(input, layers)
}

/// The six convolutions, then linear layers of these sizes with activations between them.
fn with_head(
    input: Shape,
    activation: Layer,
    sizes: &[usize],
) -> Result<Architecture, ArchitectureError> {
    let Shape::Image { channels, .. } = input else {
        return Err(ArchitectureError::NeedsImage { layer: 0 });
    };
    let mut layers = Vec::new();
    for (inner, outer) in [(channels, 32), (32, 64), (64, 128)] {
        layers.extend([Layer::conv(inner, outer, 3), activation]);
        layers.extend([Layer::conv(outer, outer, 3), activation, Layer::max_pool(2)]);
    }
    layers.push(Layer::Flatten);
    let mut in_features = Architecture::new(input, layers.clone())?.output().len();
    for (index, &out_features) in sizes.iter().enumerate() {
        if index > 0 {
            layers.push(activation);
        }
        layers.push(Layer::linear(in_features, out_features));
        in_features = out_features;
    }
    Architecture::new(input, layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nets_have_the_known_numbers_of_parameters() {
        assert_eq!(convnet().parameter_count(), 307_498);
        assert_eq!(convnet_tanh().parameter_count(), 550_570);
        assert_eq!(convnet_small_for(CIFAR, 10).unwrap().parameter_count(), 59_210);
        let convnet = convnet();
        let names: Vec<_> = convnet.parameters().iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names[..4], ["0.weight", "0.bias", "2.weight", "2.bias"]);
        assert_eq!(convnet.parameters()[0].shape, [32, 3, 3, 3]);
        assert_eq!(convnet.output(), Shape::Vector { features: 10 });
    }

    #[test]
    fn the_nets_fit_other_images_and_classes() {
        let clothes = Shape::Image { channels: 1, height: 28, width: 28 };
        let convnet = convnet_for(clothes, 10).unwrap();
        // 28 -> 14 -> 7 -> 3: the last linear layer takes 128 x 3 x 3.
        assert_eq!(convnet.parameters()[12].shape, [10, 1152]);
        assert_eq!(convnet.parameter_count(), 307_498 - 2 * 9 * 32 - 10 * (2048 - 1152));
        let tanh = convnet_tanh_for(clothes, 26).unwrap();
        assert_eq!(tanh.output(), Shape::Vector { features: 26 });
        let small = convnet_small_for(clothes, 26).unwrap();
        // 28 -> 14 -> 7, and 3 x 3 windows of that.
        assert_eq!(small.parameters()[12].shape, [26, 256]);
        let tiny = Shape::Image { channels: 3, height: 7, width: 9 };
        let error = convnet_for(tiny, 10).unwrap_err();
        assert!(matches!(error, ArchitectureError::KernelTooLarge { .. }), "{error}");
        assert!(convnet_for(Shape::Vector { features: 9 }, 10).is_err());
        assert!(convnet_for(clothes, 0).is_err());
    }

    #[test]
    fn the_convnet_takes_230_million_operations() {
        // By hand: pixels x out x in x 9 of the six convolutions, and the linear layer.
        let convolutions = [
            1024 * 32 * 3 * 9,
            1024 * 32 * 32 * 9,
            256 * 64 * 32 * 9,
            256 * 64 * 64 * 9,
            64 * 128 * 64 * 9,
            64 * 128 * 128 * 9,
        ];
        let flops = convnet().flops();
        assert_eq!(flops.forward, 2 * (convolutions.iter().sum::<u64>() + 20_480));
        assert_eq!(flops.backward, 2 * flops.forward - 2 * convolutions[0]);
        assert_eq!((flops.gradient() as f64 / 1e5).round(), 2302.0);
    }
}
