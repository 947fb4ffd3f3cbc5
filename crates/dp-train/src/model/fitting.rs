//! What a layer makes of a shape: that of its output, and those of its parameters.

use crate::model::error::ArchitectureError;
use crate::model::layer::Layer;
use crate::model::shape::Shape;

/// The product of some sizes, if so many doubles can be addressed.
pub(super) fn checked_len(layer: usize, sizes: &[usize]) -> Result<usize, ArchitectureError> {
    let product = sizes.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
    let len = product.filter(|&len| len <= isize::MAX as usize / 8);
    len.ok_or(ArchitectureError::TooLarge { layer })
}

/// One tensor of a layer's parameters.
pub(super) struct Tensor {
    /// `weight` or `bias`.
    pub(super) kind: &'static str,
    pub(super) shape: Vec<usize>,
    /// Inputs that one output sums over; `None` for normalization.
    pub(super) fan_in: Option<usize>,
}

/// The tensors of a layer: weight, then bias; none without parameters.
pub(super) fn tensors(layer: Layer, input: Shape) -> Vec<Tensor> {
    let pair = |weight: Vec<usize>, fan_in| {
        let bias = vec![weight[0]];
        vec![
            Tensor { kind: "weight", shape: weight, fan_in },
            Tensor { kind: "bias", shape: bias, fan_in },
        ]
    };
    match (layer, input) {
        (Layer::Conv2d { in_channels, out_channels, kernel, groups, .. }, _) => {
            // Too large a product is refused with that of the weight.
            let fan_in = (in_channels / groups).saturating_mul(kernel).saturating_mul(kernel);
            pair(vec![out_channels, in_channels / groups, kernel, kernel], Some(fan_in))
        }
        (Layer::Linear { in_features, out_features }, _) => {
            pair(vec![out_features, in_features], Some(in_features))
        }
        (Layer::GroupNorm { .. }, Shape::Image { channels, .. }) => pair(vec![channels], None),
        _ => Vec::new(),
    }
}

/// The shape that leaves layer number `layer`.
///
/// # Errors
/// [`ArchitectureError`] if the layer does not fit what enters it.
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
