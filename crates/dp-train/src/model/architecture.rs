//! A sequential architecture: layers, the shapes between them, and where their parameters lie.

use std::ops::Range;

use crate::model::ArchitectureError;
use crate::model::layer::{Layer, Shape, checked_len, output_shape, tensors};

/// One tensor of parameters, row-major inside the flat vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// PyTorch's name inside `nn.Sequential`: index of the layer, then `weight` or `bias`.
    pub name: String,
    /// PyTorch's shape.
    pub shape: Vec<usize>,
    /// Where it lies in the flat vector.
    pub range: Range<usize>,
    /// Inputs that one output of the layer sums over; `None` for normalisation.
    pub fan_in: Option<usize>,
}

/// Floating-point operations for one example: two per multiplication and addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flops {
    /// From the image to the logits.
    pub forward: u64,
    /// From the logits to the gradient of every parameter.
    pub backward: u64,
}

impl Flops {
    /// What one gradient takes.
    pub fn gradient(self) -> u64 {
        self.forward + self.backward
    }
}

/// A sequence of layers whose shapes fit, with parameters in PyTorch's order and layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Architecture {
    layers: Vec<Layer>,
    /// `shapes[i]` enters layer `i`; the last is the output.
    shapes: Vec<Shape>,
    parameters: Vec<Parameter>,
    /// Indices into `parameters` per layer.
    of_layer: Vec<Range<usize>>,
}

impl Architecture {
    /// Checks that every layer fits the one before it.
    ///
    /// # Errors
    /// [`ArchitectureError`], which names the layer that does not fit.
    pub fn new(input: Shape, layers: Vec<Layer>) -> Result<Self, ArchitectureError> {
        if input.is_empty() {
            return Err(ArchitectureError::Empty { layer: 0 });
        }
        let mut shapes = vec![input];
        let mut parameters = Vec::new();
        let mut of_layer = Vec::new();
        let mut at = 0;
        for (index, &layer) in layers.iter().enumerate() {
            let shape = *shapes.last().unwrap_or(&input);
            let output = output_shape(index, layer, shape)?;
            let sizes = match output {
                Shape::Image { channels, height, width } => [channels, height, width],
                Shape::Vector { features } => [features, 1, 1],
            };
            checked_len(index, &sizes)?;
            shapes.push(output);
            let first = parameters.len();
            for (kind, shape, fan_in) in tensors(layer, shape) {
                let len = checked_len(index, &shape)?;
                // Both are below a quarter of the address space: the sum is a number.
                let end = checked_len(index, &[at + len])?;
                let name = format!("{index}.{kind}");
                parameters.push(Parameter { name, shape, range: at..end, fan_in });
                at = end;
            }
            of_layer.push(first..parameters.len());
        }
        Ok(Self { layers, shapes, parameters, of_layer })
    }

    /// The ConvNet of the paper: six 3 x 3 convolutions with ReLU, 32, 64 and 128 channels, each
    /// pair followed by 2 x 2 max pooling, then a linear layer. 307,498 parameters for 10 classes
    /// of 3 x 32 x 32 images.
    pub fn convnet() -> Self {
        Self::convnet_for(CIFAR, 10).expect("a preset fits")
    }

    /// The same layers for other images and classes.
    ///
    /// # Errors
    /// [`ArchitectureError`] if the input is no image of at least 8 x 8, or without classes.
    pub fn convnet_for(input: Shape, classes: usize) -> Result<Self, ArchitectureError> {
        Self::with_head(input, Layer::Relu, &[classes])
    }

    /// The ConvNet of the literature: the same convolutions with tanh, then linear layers of 128
    /// (tanh) and 10. 550,570 parameters.
    pub fn convnet_tanh() -> Self {
        Self::convnet_tanh_for(CIFAR, 10).expect("a preset fits")
    }

    /// The same layers for other images and classes.
    ///
    /// # Errors
    /// As [`convnet_for`](Self::convnet_for).
    pub fn convnet_tanh_for(input: Shape, classes: usize) -> Result<Self, ArchitectureError> {
        Self::with_head(input, Layer::Tanh, &[128, classes])
    }

    /// The six convolutions, then linear layers of these sizes with activations between them.
    fn with_head(
        input: Shape,
        activation: Layer,
        sizes: &[usize],
    ) -> Result<Self, ArchitectureError> {
        let Shape::Image { channels, .. } = input else {
            return Err(ArchitectureError::NeedsImage { layer: 0 });
        };
        let mut layers = convolutions(channels, activation);
        let body = Self::new(input, layers.clone())?;
        let mut in_features = body.shapes.last().map_or(0, |shape| shape.len());
        for (index, &out_features) in sizes.iter().enumerate() {
            if index > 0 {
                layers.push(activation);
            }
            layers.push(Layer::Linear { in_features, out_features });
            in_features = out_features;
        }
        Self::new(input, layers)
    }

    /// The layers in order.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// What enters layer `i`; one more entry than layers, the last is the output.
    pub fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// All tensors of parameters, in the order of the flat vector.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The tensors of one layer: weight, then bias; empty without parameters.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn parameters_of(&self, layer: usize) -> &[Parameter] {
        &self.parameters[self.of_layer[layer].clone()]
    }

    /// Length of the flat vector of parameters.
    pub fn parameter_count(&self) -> usize {
        self.parameters.last().map_or(0, |last| last.range.end)
    }

    /// The work of convolutions and linear layers as they are written, products with padding
    /// included; everything else is left out.
    ///
    /// Forward, every weight meets every output pixel of its layer once. Backward the same work
    /// comes twice, for the gradients of the weights and of the input; nothing needs the latter
    /// before the first of these layers. This is the usual measure: a method that saves
    /// multiplications, such as Winograd's, then shows as more operations per second. O(layers).
    pub fn flops(&self) -> Flops {
        let (mut forward, mut first) = (0, None);
        for (index, output) in self.shapes[1..].iter().enumerate() {
            let pixels = match (self.layers[index], *output) {
                (Layer::Conv2d { .. }, Shape::Image { height, width, .. }) => height * width,
                (Layer::Linear { .. }, _) => 1,
                _ => continue,
            };
            let weight = &self.parameters_of(index)[0].range;
            let work = 2 * (weight.len() * pixels) as u64;
            first.get_or_insert(work);
            forward += work;
        }
        Flops { forward, backward: 2 * forward - first.unwrap_or(0) }
    }
}

const CIFAR: Shape = Shape::Image { channels: 3, height: 32, width: 32 };

fn convolutions(channels: usize, activation: Layer) -> Vec<Layer> {
    let mut layers = Vec::new();
    for (inner, outer) in [(channels, 32), (32, 64), (64, 128)] {
        for in_channels in [inner, outer] {
            layers.push(Layer::Conv2d {
                in_channels,
                out_channels: outer,
                kernel: 3,
                stride: 1,
                padding: 1,
                groups: 1,
            });
            layers.push(activation);
        }
        layers.push(Layer::MaxPool2d { kernel: 2, stride: 2 });
    }
    layers.push(Layer::Flatten);
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_have_the_known_numbers_of_parameters() {
        assert_eq!(Architecture::convnet().parameter_count(), 307_498);
        assert_eq!(Architecture::convnet_tanh().parameter_count(), 550_570);
        let convnet = Architecture::convnet();
        let names: Vec<_> = convnet.parameters().iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names[..4], ["0.weight", "0.bias", "2.weight", "2.bias"]);
        assert_eq!(convnet.parameters()[0].shape, [32, 3, 3, 3]);
        assert_eq!(convnet.shapes().last(), Some(&Shape::Vector { features: 10 }));
    }

    #[test]
    fn sizes_beyond_memory_are_refused_and_do_not_wrap_round() {
        let input = Shape::Image { channels: 1, height: 4, width: 4 };
        let convolution = |out_channels, kernel, padding| Layer::Conv2d {
            in_channels: 1,
            out_channels,
            kernel,
            stride: 1,
            padding,
            groups: 1,
        };
        let refused = |layer: Layer| {
            let made = Architecture::new(input, vec![Layer::Relu, layer]);
            assert_eq!(made, Err(ArchitectureError::TooLarge { layer: 1 }), "{layer:?}");
        };
        refused(convolution(1 << 62, 1, 0));
        refused(convolution(1, 1, usize::MAX / 2 + 1));
        refused(convolution(1, 1 << 33, 1 << 32));
        refused(convolution(1, 1, 1 << 32));
        let layers = vec![
            Layer::Flatten,
            Layer::Linear { in_features: 16, out_features: 1 << 60 },
            Layer::Linear { in_features: 1 << 60, out_features: 16 },
        ];
        let made = Architecture::new(input, layers);
        assert_eq!(made, Err(ArchitectureError::TooLarge { layer: 1 }));
    }

    #[test]
    fn the_presets_fit_other_images_and_classes() {
        let clothes = Shape::Image { channels: 1, height: 28, width: 28 };
        let convnet = Architecture::convnet_for(clothes, 10).unwrap();
        // 28 -> 14 -> 7 -> 3: the last linear layer takes 128 x 3 x 3.
        assert_eq!(convnet.parameters()[12].shape, [10, 1152]);
        assert_eq!(convnet.parameter_count(), 307_498 - 2 * 9 * 32 - 10 * (2048 - 1152));
        let tanh = Architecture::convnet_tanh_for(clothes, 26).unwrap();
        assert_eq!(tanh.shapes().last(), Some(&Shape::Vector { features: 26 }));
        let tiny = Shape::Image { channels: 3, height: 7, width: 9 };
        let error = Architecture::convnet_for(tiny, 10).unwrap_err();
        assert!(matches!(error, ArchitectureError::KernelTooLarge { .. }), "{error}");
        assert!(Architecture::convnet_for(Shape::Vector { features: 9 }, 10).is_err());
        assert!(Architecture::convnet_for(clothes, 0).is_err());
    }

    #[test]
    fn layers_that_do_not_fit_are_named() {
        let conv = |in_channels, kernel, stride| Layer::Conv2d {
            in_channels,
            out_channels: 4,
            kernel,
            stride,
            padding: 0,
            groups: 1,
        };
        let error = |layers| Architecture::new(CIFAR, layers).unwrap_err();
        use ArchitectureError as Error;
        assert_eq!(
            error(vec![Layer::Relu, conv(4, 3, 1)]),
            Error::Channels { layer: 1, expected: 4, found: 3 }
        );
        assert_eq!(
            error(vec![conv(3, 33, 1)]),
            Error::KernelTooLarge { layer: 0, kernel: 33, size: 32 }
        );
        assert_eq!(error(vec![conv(3, 3, 0)]), Error::Empty { layer: 0 });
        assert_eq!(error(vec![Layer::Flatten, conv(3, 3, 1)]), Error::NeedsImage { layer: 1 });
        let linear = Layer::Linear { in_features: 5, out_features: 2 };
        assert_eq!(error(vec![linear]), Error::NeedsVector { layer: 0 });
        assert_eq!(
            error(vec![Layer::Flatten, linear]),
            Error::Features { layer: 1, expected: 5, found: 3072 }
        );
        assert_eq!(
            error(vec![Layer::GroupNorm { groups: 2 }]),
            Error::Groups { layer: 0, groups: 2, channels: 3 }
        );
        let grouped = |out_channels, groups| Layer::Conv2d {
            in_channels: 3,
            out_channels,
            kernel: 3,
            stride: 1,
            padding: 0,
            groups,
        };
        for (out_channels, groups, channels) in [(4, 2, 3), (4, 3, 4), (3, 0, 3)] {
            let refused = error(vec![grouped(out_channels, groups)]);
            assert_eq!(refused, Error::Groups { layer: 0, groups, channels });
        }
        assert_eq!(
            error(vec![grouped(4, 3)]).to_string(),
            "layer 0 cannot split 4 channels into 3 groups"
        );
    }

    #[test]
    fn groups_cut_the_weights_and_are_one_unless_said() {
        let text = r#"{"layer": "conv2d", "in_channels": 6, "out_channels": 12, "kernel": 3,
            "stride": 1, "padding": 1"#;
        let plain: Layer = serde_json::from_str(&format!("{text}}}")).unwrap();
        let grouped: Layer = serde_json::from_str(&format!("{text}, \"groups\": 3}}")).unwrap();
        let input = Shape::Image { channels: 6, height: 5, width: 5 };
        let weight = |layer| Architecture::new(input, vec![layer]).unwrap().parameters()[0].clone();
        assert_eq!((weight(plain).shape, weight(plain).fan_in), (vec![12, 6, 3, 3], Some(54)));
        assert_eq!((weight(grouped).shape, weight(grouped).fan_in), (vec![12, 2, 3, 3], Some(18)));
        for layer in [plain, grouped] {
            let text = serde_json::to_string(&layer).unwrap();
            assert_eq!(serde_json::from_str::<Layer>(&text).unwrap(), layer);
            assert_eq!(text.contains("groups"), layer == grouped);
        }
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
        let forward = 2 * (convolutions.iter().sum::<u64>() + 20_480);
        let backward = 2 * forward - 2 * convolutions[0];
        assert_eq!(Architecture::convnet().flops(), Flops { forward, backward });
        assert_eq!((Architecture::convnet().flops().gradient() as f64 / 1e5).round(), 2302.0);
        // Groups divide the work; a layer without weights takes none.
        let layer = |groups| Layer::Conv2d {
            in_channels: 4,
            out_channels: 8,
            kernel: 3,
            stride: 2,
            padding: 0,
            groups,
        };
        let input = Shape::Image { channels: 4, height: 9, width: 7 };
        let flops = |layers| Architecture::new(input, layers).unwrap().flops();
        let whole = 2 * 4 * 3 * 8 * 4 * 9;
        assert_eq!(flops(vec![layer(1)]), Flops { forward: whole, backward: whole });
        assert_eq!(flops(vec![Layer::Tanh, layer(4)]).forward, whole / 4);
        assert_eq!(flops(vec![Layer::Relu]), Flops { forward: 0, backward: 0 });
    }
}
