//! A sequential architecture: layers, the shapes between them, and where their parameters lie.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::model::ArchitectureError;

/// One layer. No layer lets one example see another: there is no batch normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "layer", deny_unknown_fields)]
pub enum Layer {
    /// A square convolution (cross-correlation) with bias. Weight `[out, in, kernel, kernel]`.
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

/// What flows between two layers, for one example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Planes of pixels.
    Image {
        /// Planes.
        channels: usize,
        /// Rows of a plane.
        height: usize,
        /// Columns of a plane.
        width: usize,
    },
    /// A plain vector.
    Vector {
        /// Entries.
        features: usize,
    },
}

impl Shape {
    /// Numbers in it.
    pub fn len(self) -> usize {
        match self {
            Shape::Image { channels, height, width } => channels * height * width,
            Shape::Vector { features } => features,
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

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
            shapes.push(output_shape(index, layer, shape)?);
            let first = parameters.len();
            for (kind, shape, fan_in) in tensors(layer, shape) {
                let len: usize = shape.iter().product();
                let name = format!("{index}.{kind}");
                parameters.push(Parameter { name, shape, range: at..at + len, fan_in });
                at += len;
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
}

const CIFAR: Shape = Shape::Image { channels: 3, height: 32, width: 32 };

fn convolutions(channels: usize, activation: Layer) -> Vec<Layer> {
    let mut layers = Vec::new();
    for (inner, outer) in [(channels, 32), (32, 64), (64, 128)] {
        for in_channels in [inner, outer] {
            let (out_channels, kernel, stride, padding) = (outer, 3, 1, 1);
            layers.push(Layer::Conv2d { in_channels, out_channels, kernel, stride, padding });
            layers.push(activation);
        }
        layers.push(Layer::MaxPool2d { kernel: 2, stride: 2 });
    }
    layers.push(Layer::Flatten);
    layers
}

/// Name, shape and fan-in of a layer's tensors.
fn tensors(layer: Layer, input: Shape) -> Vec<(&'static str, Vec<usize>, Option<usize>)> {
    match (layer, input) {
        (Layer::Conv2d { in_channels, out_channels, kernel, .. }, _) => {
            let fan_in = Some(in_channels * kernel * kernel);
            let weight = vec![out_channels, in_channels, kernel, kernel];
            vec![("weight", weight, fan_in), ("bias", vec![out_channels], fan_in)]
        }
        (Layer::Linear { in_features, out_features }, _) => {
            let fan_in = Some(in_features);
            let weight = vec![out_features, in_features];
            vec![("weight", weight, fan_in), ("bias", vec![out_features], fan_in)]
        }
        (Layer::GroupNorm { .. }, Shape::Image { channels, .. }) => {
            vec![("weight", vec![channels], None), ("bias", vec![channels], None)]
        }
        _ => Vec::new(),
    }
}

fn output_shape(layer: usize, kind: Layer, input: Shape) -> Result<Shape, ArchitectureError> {
    use ArchitectureError as Error;
    let image = || match input {
        Shape::Image { channels, height, width } => Ok((channels, height, width)),
        Shape::Vector { .. } => Err(Error::NeedsImage { layer }),
    };
    let windows = |size: usize, kernel: usize, stride: usize, padding: usize| {
        if kernel == 0 || stride == 0 {
            Err(Error::Empty { layer })
        } else if size + 2 * padding < kernel {
            Err(Error::KernelTooLarge { layer, kernel, size: size + 2 * padding })
        } else {
            Ok((size + 2 * padding - kernel) / stride + 1)
        }
    };
    match kind {
        Layer::Conv2d { in_channels, out_channels, kernel, stride, padding } => {
            let (found, height, width) = image()?;
            if in_channels != found {
                return Err(Error::Channels { layer, expected: in_channels, found });
            }
            if out_channels == 0 {
                return Err(Error::Empty { layer });
            }
            let height = windows(height, kernel, stride, padding)?;
            let width = windows(width, kernel, stride, padding)?;
            Ok(Shape::Image { channels: out_channels, height, width })
        }
        Layer::Linear { in_features, out_features } => match input {
            Shape::Image { .. } => Err(Error::NeedsVector { layer }),
            Shape::Vector { features } if features != in_features => {
                Err(Error::Features { layer, expected: in_features, found: features })
            }
            Shape::Vector { .. } if out_features == 0 => Err(Error::Empty { layer }),
            Shape::Vector { .. } => Ok(Shape::Vector { features: out_features }),
        },
        Layer::MaxPool2d { kernel, stride } | Layer::AvgPool2d { kernel, stride } => {
            let (channels, height, width) = image()?;
            let height = windows(height, kernel, stride, 0)?;
            let width = windows(width, kernel, stride, 0)?;
            Ok(Shape::Image { channels, height, width })
        }
        Layer::GroupNorm { groups } => {
            let (channels, ..) = image()?;
            if groups == 0 || channels % groups != 0 {
                return Err(Error::Groups { layer, groups, channels });
            }
            Ok(input)
        }
        Layer::Flatten => Ok(Shape::Vector { features: input.len() }),
        Layer::Relu | Layer::Tanh => Ok(input),
    }
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
    }
}
