//! A sequential architecture: layers, the shapes between them, and where their parameters lie.

use std::ops::Range;

use crate::model::error::ArchitectureError;
use crate::model::fitting::{Tensor, checked_len, output_shape, tensors};
use crate::model::layer::Layer;
use crate::model::shape::Shape;

/// One tensor of parameters, row-major inside the flat vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// PyTorch's name inside `nn.Sequential`: index of the layer, then `weight` or `bias`.
    pub name: String,
    /// PyTorch's shape.
    pub shape: Vec<usize>,
    /// Where it lies in the flat vector.
    pub range: Range<usize>,
    /// Inputs that one output of the layer sums over; `None` for normalization.
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
            for Tensor { kind, shape, fan_in } in tensors(layer, shape) {
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

    /// The layers in order.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// What enters layer `i`; one more entry than layers, the last is the output.
    pub fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// What enters the first layer.
    pub fn input(&self) -> Shape {
        self.shapes[0]
    }

    /// What leaves the last layer.
    pub fn output(&self) -> Shape {
        self.shapes[self.layers.len()]
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

    /// The last linear layer, counted from 0: what turns features into classes. None if there is none.
    pub fn head(&self) -> Option<usize> {
        self.layers.iter().rposition(|layer| matches!(layer, Layer::Linear { .. }))
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
