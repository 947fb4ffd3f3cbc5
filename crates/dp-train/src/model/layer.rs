//! A layer: what it takes, what it gives, and the tensors of its parameters.

use serde::{Deserialize, Serialize};

use crate::model::ArchitectureError;

/// One layer. No layer lets one example see another: there is no batch normalisation.
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

fn one() -> usize {
    1
}

fn is_one(groups: &usize) -> bool {
    *groups == 1
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

/// The product of some sizes, if so many doubles can be addressed.
pub(super) fn checked_len(layer: usize, sizes: &[usize]) -> Result<usize, ArchitectureError> {
    let product = sizes.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
    let len = product.filter(|&len| len <= isize::MAX as usize / 8);
    len.ok_or(ArchitectureError::TooLarge { layer })
}

/// Name, shape and fan-in of a layer's tensors.
pub(super) fn tensors(
    layer: Layer,
    input: Shape,
) -> Vec<(&'static str, Vec<usize>, Option<usize>)> {
    match (layer, input) {
        (Layer::Conv2d { in_channels, out_channels, kernel, groups, .. }, _) => {
            // Too large a product is refused with that of the weight.
            let fan_in = (in_channels / groups).saturating_mul(kernel).saturating_mul(kernel);
            let fan_in = Some(fan_in);
            let weight = vec![out_channels, in_channels / groups, kernel, kernel];
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

pub(super) fn output_shape(
    layer: usize,
    kind: Layer,
    input: Shape,
) -> Result<Shape, ArchitectureError> {
    use ArchitectureError as Error;
    let image = || match input {
        Shape::Image { channels, height, width } => Ok((channels, height, width)),
        Shape::Vector { .. } => Err(Error::NeedsImage { layer }),
    };
    let windows = |size: usize, kernel: usize, stride: usize, padding: usize| {
        let padded = padding.checked_mul(2).and_then(|both| both.checked_add(size));
        let padded = padded.ok_or(Error::TooLarge { layer })?;
        if kernel == 0 || stride == 0 {
            Err(Error::Empty { layer })
        } else if padded < kernel {
            Err(Error::KernelTooLarge { layer, kernel, size: padded })
        } else {
            Ok((padded - kernel) / stride + 1)
        }
    };
    match kind {
        Layer::Conv2d { in_channels, out_channels, kernel, stride, padding, groups } => {
            let (found, height, width) = image()?;
            if in_channels != found {
                return Err(Error::Channels { layer, expected: in_channels, found });
            }
            if out_channels == 0 {
                return Err(Error::Empty { layer });
            }
            for channels in [in_channels, out_channels] {
                if groups == 0 || channels % groups != 0 {
                    return Err(Error::Groups { layer, groups, channels });
                }
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
