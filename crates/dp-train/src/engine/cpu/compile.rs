//! From an architecture to stages: which layers are joined, which layouts lie between them, and how each
//! is computed.

use crate::engine::cpu::convolution::{Convolution, Method};
use crate::engine::cpu::kernels::activation::Activation;
use crate::engine::cpu::kernels::direct::Direct;
use crate::engine::cpu::kernels::geometry::Geometry;
use crate::engine::cpu::kernels::grouped::Grouped;
use crate::engine::cpu::kernels::normalization::GroupNorm;
use crate::engine::cpu::kernels::plane::{Plane, Planes, Size};
use crate::engine::cpu::kernels::pool::Pool;
use crate::engine::cpu::kernels::winograd::Winograd;
use crate::engine::cpu::network::{Network, Op, Stage};
use crate::engine::error::EngineError;
use crate::engine::options::ConvolutionMethod;
use crate::model::{Architecture, Layer, Shape};

/// A layer with the activation that follows it, before its layouts are known.
struct Draft {
    /// Number of the layer in the architecture.
    index: usize,
    layer: Layer,
    activation: Option<Activation>,
    output: Volume,
}

/// Channels and size of an image; a vector is an image of one pixel.
#[derive(Clone, Copy)]
struct Volume {
    channels: usize,
    size: Size,
}

impl Volume {
    fn of(shape: Shape) -> Self {
        match shape {
            Shape::Image { channels, height, width } => {
                Self { channels, size: Size { height, width } }
            }
            Shape::Vector { features } => Self { channels: features, size: Size::square(1) },
        }
    }

    /// Its layout.
    fn plane(self, border: usize) -> Plane {
        Plane::new(self.channels, self.size, border)
    }
}

/// Window, stride and padding of a convolution or linear layer.
#[derive(Clone, Copy)]
struct Window {
    kernel: Size,
    stride: usize,
    padding: usize,
}

impl Window {
    /// That of a layer without groups. A linear layer's is the whole of its input.
    fn of(layer: Layer, input: Size) -> Option<Self> {
        match layer {
            Layer::Conv2d { kernel, stride, padding, groups: 1, .. } => {
                Some(Self { kernel: Size::square(kernel), stride, padding })
            }
            Layer::Linear { .. } => Some(Self { kernel: input, stride: 1, padding: 0 }),
            _ => None,
        }
    }
}

/// Compiles an architecture for blocks of up to `microbatch` examples.
///
/// # Errors
/// [`EngineError::NoLogits`] unless it ends with a vector that a linear layer made.
pub(crate) fn compile(
    architecture: &Architecture,
    microbatch: usize,
    method: ConvolutionMethod,
) -> Result<Network, EngineError> {
    let drafts = drafts(architecture);
    let input = Volume::of(architecture.input());
    let volumes: Vec<Volume> =
        std::iter::once(input).chain(drafts.iter().map(|draft| draft.output)).collect();
    let is_vector = matches!(architecture.output(), Shape::Vector { .. });
    if !is_vector || volumes[drafts.len()].size.area() != 1 {
        return Err(EngineError::NoLogits);
    }
    // Borders that windows reach into come first; all stages then see the final layouts.
    let mut values: Vec<Plane> = volumes.iter().map(|volume| volume.plane(0)).collect();
    let mut gradients = values.clone();
    let mut fast = vec![false; drafts.len()];
    for (i, draft) in drafts.iter().enumerate() {
        let (input, output) = (volumes[i], volumes[i + 1]);
        let Some(Window { kernel, stride, padding }) = Window::of(draft.layer, input.size) else {
            continue;
        };
        let channels = input.channels.min(output.channels);
        fast[i] = method == ConvolutionMethod::Winograd
            && Winograd::pays(kernel, stride, padding, input.size, channels);
        values[i] = input.plane(padding);
        // Images have few channels: the direct convolution reads them without any to fill up.
        if i == 0 && !fast[i] {
            values[i].pitch = values[i].channels;
        }
        let linear = kernel.height != kernel.width || output.size.area() == 1;
        let border =
            if linear { 0 } else { Geometry::gradient_border(kernel.height, stride, padding) };
        gradients[i + 1] = output.plane(border);
        if fast[i] {
            values[i] = Winograd::extended(values[i]);
            gradients[i + 1] = Winograd::extended(gradients[i + 1]);
        }
    }
    let stage = |(i, draft): (usize, &Draft)| {
        let planes = Planes {
            input: values[i],
            output: values[i + 1],
            input_gradient: (i > 0).then_some(gradients[i]),
            output_gradient: gradients[i + 1],
        };
        let after_relu = i > 0 && drafts[i - 1].activation == Some(Activation::Relu);
        let op = op(architecture, draft, (planes, after_relu), fast[i].then_some(microbatch));
        Stage { op, activation: draft.activation }
    };
    let stages = drafts.iter().enumerate().map(stage).collect();
    Ok(Network::new(stages, values, gradients))
}

/// The layers with activations joined to the layer before them, where there is one.
fn drafts(architecture: &Architecture) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    let mut last = Volume::of(architecture.input());
    for (index, &layer) in architecture.layers().iter().enumerate() {
        let mut draft = Draft { index, layer, activation: None, output: last };
        match layer {
            // A linear layer reads the image where it lies.
            Layer::Flatten => continue,
            Layer::Relu | Layer::Tanh => {
                let relu = layer == Layer::Relu;
                let activation = Some(if relu { Activation::Relu } else { Activation::Tanh });
                if let Some(before) = drafts.last_mut().filter(|before| joins(before)) {
                    before.activation = activation;
                    continue;
                }
                draft.activation = activation;
            }
            Layer::GroupNorm { .. } => {}
            Layer::Conv2d { .. }
            | Layer::Linear { .. }
            | Layer::MaxPool2d { .. }
            | Layer::AvgPool2d { .. } => {
                draft.output = Volume::of(architecture.shapes()[index + 1]);
            }
        }
        last = draft.output;
        drafts.push(draft);
    }
    drafts
}

/// Whether an activation can be applied in place to what the stage makes.
fn joins(draft: &Draft) -> bool {
    // Max pooling compares its result with its input: it must stay as it is.
    let is_pool = matches!(draft.layer, Layer::MaxPool2d { .. } | Layer::AvgPool2d { .. });
    draft.activation.is_none() && !is_pool
}

/// The operation of one stage; `winograd` has the examples of a block if it goes through Winograd.
fn op(
    architecture: &Architecture,
    draft: &Draft,
    (planes, after_relu): (Planes, bool),
    winograd: Option<usize>,
) -> Op {
    let tensors = architecture.parameters_of(draft.index);
    let range = |tensor: usize| tensors[tensor].range.clone();
    let through_relu = after_relu;
    let pool = |kernel, stride, max| {
        Op::Pool(Box::new(Pool { kernel, stride, max, through_relu, planes }))
    };
    match draft.layer {
        Layer::Conv2d { kernel, stride, padding, groups: groups @ 2.., .. } => {
            let one = Direct::new(of_one_group(planes, groups, kernel, stride, padding));
            let (weight, bias) = (range(0), range(1));
            Op::Grouped(Box::new(Grouped { groups, planes, one, weight, bias, packed: 0..0 }))
        }
        layer @ (Layer::Conv2d { .. } | Layer::Linear { .. }) => {
            let Some(Window { kernel, stride, padding }) = Window::of(layer, planes.input.size())
            else {
                unreachable!("convolutions without groups and linear layers have a window");
            };
            let geometry = Geometry { planes, kernel, stride, padding };
            let method = match winograd {
                Some(samples) => Method::Winograd(Winograd::new(geometry, samples)),
                None => Method::Direct(Direct::new(geometry)),
            };
            let (weight, bias) = (range(0), range(1));
            Op::Convolution(Box::new(Convolution::new(method, through_relu, weight, bias)))
        }
        Layer::MaxPool2d { kernel, stride } => pool(kernel, stride, true),
        Layer::AvgPool2d { kernel, stride } => pool(kernel, stride, false),
        Layer::GroupNorm { groups } => {
            let (scale, shift) = (range(0), range(1));
            let packed = 0..0;
            let norm = GroupNorm { groups, through_relu, scale, shift, packed, planes };
            Op::GroupNorm(Box::new(norm))
        }
        Layer::Relu | Layer::Tanh | Layer::Flatten => Op::Copy,
    }
}

/// The geometry of one group of a grouped convolution, which brings its own layouts.
fn of_one_group(
    all: Planes,
    groups: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Geometry {
    let part = |plane: Plane, border| Plane::new(plane.channels / groups, plane.size(), border);
    let dense = all.output.size().area() == 1;
    let border = if dense { 0 } else { Geometry::gradient_border(kernel, stride, padding) };
    let planes = Planes {
        input: part(all.input, padding),
        output: part(all.output, 0),
        input_gradient: all.input_gradient.map(|_| part(all.input, 0)),
        output_gradient: part(all.output, border),
    };
    Geometry { planes, kernel: Size::square(kernel), stride, padding }
}
