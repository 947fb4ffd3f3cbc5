//! An architecture compiled to stages with fixed layouts.

use crate::engine::cpu::ghost;
use crate::engine::cpu::kernels::activation::Activation;
use crate::engine::cpu::kernels::convolution::{Convolution, Offsets, Weights};
use crate::engine::cpu::kernels::grouped::Grouped;
use crate::engine::cpu::kernels::normalization::GroupNorm;
use crate::engine::cpu::kernels::plane::Plane;
use crate::engine::cpu::kernels::pool::Pool;
use crate::engine::cpu::kernels::winograd::Winograd;
use crate::engine::{ConvolutionMethod, EngineError};
use crate::model::{Architecture, Layer, Shape};

/// What a stage does to value `i` to make value `i + 1`.
#[derive(Debug)]
pub(crate) enum Op {
    Convolution(Box<Convolution>),
    Grouped(Box<Grouped>),
    Pool(Pool),
    GroupNorm(GroupNorm),
    /// Nothing: an activation that follows no layer it could be joined with.
    Copy,
}

/// An operation and the activation that follows it.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) op: Op,
    pub(crate) activation: Option<Activation>,
    layer: usize,
}

/// A compiled architecture.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) stages: Vec<Stage>,
    /// Layout of the value that enters stage `i`; the last holds the logits.
    pub(crate) values: Vec<Plane>,
    /// Layouts of the gradients with respect to these values.
    pub(crate) gradients: Vec<Plane>,
    /// Floats of a packed gradient, and how many at its beginning are held per example.
    pub(crate) packed: usize,
    pub(crate) instantiated: usize,
    pub(crate) parameters: usize,
    pub(crate) input: usize,
    pub(crate) classes: usize,
}

impl Network {
    /// Chooses layouts and, per layer, how its norm is computed.
    pub(crate) fn new(
        architecture: &Architecture,
        microbatch: usize,
        method: ConvolutionMethod,
    ) -> Result<Self, EngineError> {
        let shapes = architecture.shapes();
        let Some(&Shape::Vector { features: classes }) = shapes.last() else {
            return Err(EngineError::NoLogits);
        };
        let mut stages: Vec<Stage> = Vec::new();
        let mut sizes = vec![image(shapes[0])];
        for (layer, &kind) in architecture.layers().iter().enumerate() {
            let size = sizes[sizes.len() - 1];
            let (op, size) = match kind {
                Layer::Flatten => continue,
                Layer::Relu | Layer::Tanh => {
                    let activation =
                        if kind == Layer::Relu { Activation::Relu } else { Activation::Tanh };
                    // Max pooling compares its result with its input: it must stay as it is.
                    let joins = |stage: &&mut Stage| {
                        stage.activation.is_none() && !matches!(stage.op, Op::Pool(_))
                    };
                    match stages.last_mut().filter(joins) {
                        Some(stage) => stage.activation = Some(activation),
                        None => {
                            let activation = Some(activation);
                            stages.push(Stage { op: Op::Copy, activation, layer });
                            sizes.push(size);
                        }
                    }
                    continue;
                }
                Layer::MaxPool2d { kernel, stride } => {
                    let pool = Pool { kernel, stride, max: true };
                    (Op::Pool(pool), image(shapes[layer + 1]))
                }
                Layer::AvgPool2d { kernel, stride } => {
                    let pool = Pool { kernel, stride, max: false };
                    (Op::Pool(pool), image(shapes[layer + 1]))
                }
                Layer::GroupNorm { groups } => {
                    let [scale, shift] = architecture.parameters_of(layer) else {
                        return Err(EngineError::NoLogits);
                    };
                    let (scale, shift) = (scale.range.clone(), shift.range.clone());
                    (Op::GroupNorm(GroupNorm { groups, scale, shift, packed: 0..0 }), size)
                }
                // Their layouts depend on their neighbours: filled in below.
                Layer::Conv2d { .. } | Layer::Linear { .. } => (Op::Copy, image(shapes[layer + 1])),
            };
            stages.push(Stage { op, activation: None, layer });
            sizes.push(size);
        }
        let (input, parameters) = (shapes[0].len(), architecture.parameter_count());
        let mut network = Self {
            stages,
            values: sizes.iter().map(|&size| Plane::new(size, 0)).collect(),
            gradients: sizes.iter().map(|&size| Plane::new(size, 0)).collect(),
            packed: 0,
            instantiated: 0,
            parameters,
            input,
            classes,
        };
        let logits = network.values[network.values.len() - 1];
        if logits.height * logits.width != 1 {
            return Err(EngineError::NoLogits);
        }
        network.lay_out(architecture, microbatch, method);
        network.place_gradients();
        Ok(network)
    }

    /// Borders for convolutions, then the convolutions themselves.
    fn lay_out(
        &mut self,
        architecture: &Architecture,
        microbatch: usize,
        method: ConvolutionMethod,
    ) {
        let windows = |stage: &Stage, value: &Plane| match architecture.layers()[stage.layer] {
            Layer::Conv2d { kernel, stride, padding, groups: 1, .. } => {
                Some(((kernel, kernel), stride, padding))
            }
            // A grouped convolution brings its own layouts.
            Layer::Linear { .. } => Some(((value.height, value.width), 1, 0)),
            _ => None,
        };
        let mut fast = vec![false; self.stages.len()];
        for i in 0..self.stages.len() {
            let (value, next) = (self.values[i], self.values[i + 1]);
            let Some((kernel, stride, padding)) = windows(&self.stages[i], &value) else {
                continue;
            };
            let size = (value.height, value.width);
            let channels = value.channels.min(next.channels);
            // The first layer has few channels, and nothing needs its input gradient.
            fast[i] = method == ConvolutionMethod::Winograd
                && (kernel, stride, padding) == ((3, 3), 1, 1)
                && (i > 0 && channels >= 16 && size.0.min(size.1) >= 4);
            let mut plane = Plane::new((value.channels, size.0, size.1), padding);
            if i == 0 {
                plane.pitch = plane.channels;
            }
            let linear = kernel.0 != kernel.1 || next.height * next.width == 1;
            let border =
                if linear { 0 } else { Convolution::gradient_border(kernel.0, stride, padding) };
            let mut gradient = Plane::new((next.channels, next.height, next.width), border);
            if fast[i] {
                let (rows, columns) = Winograd::extent(size);
                plane = plane.at_least(rows, columns);
                gradient = gradient.at_least(rows, columns);
            }
            self.values[i] = plane;
            self.gradients[i + 1] = gradient;
        }
        for i in 0..self.stages.len() {
            let layer = self.stages[i].layer;
            if let Layer::Conv2d { groups: 2.., .. } = architecture.layers()[layer] {
                self.stages[i].op = Op::Grouped(Box::new(grouped(architecture, layer, i > 0)));
                continue;
            }
            let (input, output) = (self.values[i], self.values[i + 1]);
            let Some((kernel, stride, padding)) = windows(&self.stages[i], &input) else {
                continue;
            };
            let [weight, bias] = architecture.parameters_of(layer) else {
                continue;
            };
            let size = (input.height, input.width);
            let pitches = (input.pitch, output.pitch);
            let mut convolution = Convolution {
                input,
                output,
                input_gradient: (i > 0).then_some(self.gradients[i]),
                output_gradient: self.gradients[i + 1],
                kernel,
                stride,
                padding,
                weight: weight.range.clone(),
                bias: bias.range.clone(),
                packed: 0..0,
                ghost: false,
                winograd: fast[i].then(|| Winograd::new(microbatch, size, pitches)),
                offsets: Offsets::default(),
            };
            convolution.ghost = ghost::pays(&convolution);
            convolution.prepare();
            self.stages[i].op = Op::Convolution(Box::new(convolution));
        }
    }

    /// Layers whose gradients are held per example come first in the packed gradient.
    fn place_gradients(&mut self) {
        let mut at = 0;
        for ghost in [false, true] {
            for (i, stage) in self.stages.iter_mut().enumerate() {
                match &mut stage.op {
                    Op::Convolution(c) if c.ghost == ghost => {
                        let window = c.kernel.0 * c.kernel.1 * c.input.pitch;
                        c.packed = at..at + (window + 1) * c.output.pitch;
                        at = c.packed.end;
                    }
                    Op::Grouped(grouped) if !ghost => {
                        grouped.one.packed = at..at + grouped.packed_len();
                        at = grouped.one.packed.end;
                    }
                    Op::GroupNorm(norm) if !ghost => {
                        norm.packed = at..at + 2 * self.values[i].pitch;
                        at = norm.packed.end;
                    }
                    _ => {}
                }
            }
            if !ghost {
                self.instantiated = at;
            }
        }
        self.packed = at;
    }

    /// Brings a packed gradient into PyTorch's order. O(parameters).
    pub(crate) fn unpack(&self, packed: &[f64], flat: &mut [f64]) {
        for stage in &self.stages {
            match &stage.op {
                Op::Convolution(c) => {
                    let (head, tail) = flat.split_at_mut(c.bias.start);
                    let target = (&mut head[c.weight.clone()], &mut tail[..c.bias.len()]);
                    c.unpack(&packed[c.packed.clone()], target);
                }
                Op::Grouped(grouped) => {
                    grouped.unpack(&packed[grouped.one.packed.clone()], flat);
                }
                Op::GroupNorm(norm) => norm.unpack(&packed[norm.packed.clone()], flat),
                Op::Pool(_) | Op::Copy => {}
            }
        }
    }

    /// One set of packed weights per stage, empty where there are none.
    pub(crate) fn weights(&self) -> Vec<Weights> {
        self.stages.iter().map(|_| Weights::default()).collect()
    }
}

/// A grouped convolution: the layouts are those of one group.
fn grouped(architecture: &Architecture, layer: usize, needs_input_gradient: bool) -> Grouped {
    let Layer::Conv2d { kernel, stride, padding, groups, .. } = architecture.layers()[layer] else {
        unreachable!("only called for convolutions");
    };
    let [weight, bias] = architecture.parameters_of(layer) else {
        unreachable!("a convolution has a weight and a bias");
    };
    let of_group = |shape| {
        let (channels, height, width) = image(shape);
        (channels / groups, height, width)
    };
    let input = of_group(architecture.shapes()[layer]);
    let output = of_group(architecture.shapes()[layer + 1]);
    let dense = output.1 * output.2 == 1;
    let border = if dense { 0 } else { Convolution::gradient_border(kernel, stride, padding) };
    let mut one = Convolution {
        input: Plane::new(input, padding),
        output: Plane::new(output, 0),
        input_gradient: needs_input_gradient.then(|| Plane::new(input, 0)),
        output_gradient: Plane::new(output, border),
        kernel: (kernel, kernel),
        stride,
        padding,
        weight: weight.range.clone(),
        bias: bias.range.clone(),
        packed: 0..0,
        ghost: false,
        winograd: None,
        offsets: Offsets::default(),
    };
    one.prepare();
    Grouped { groups, one }
}

fn image(shape: Shape) -> (usize, usize, usize) {
    match shape {
        Shape::Image { channels, height, width } => (channels, height, width),
        Shape::Vector { features } => (features, 1, 1),
    }
}
