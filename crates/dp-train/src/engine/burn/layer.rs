//! What the burn engine asks of a layer.

use std::fmt;

use burn::tensor::Tensor;

use crate::model::Shape;

/// What a layer saw in one pass over `n` examples: what came in, what went out, and the gradient
/// of the losses' sum with respect to what went out. All are `[n, channels, height, width]`; a
/// vector is an image of one pixel.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) x: Tensor<4>,
    pub(crate) y: Tensor<4>,
    pub(crate) dy: Tensor<4>,
}

/// How a layer is to answer for single examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// With whatever is cheaper.
    Cheaper,
    /// With the gradients themselves.
    Held,
}

/// A layer's gradients of single examples.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per layer, and a tensor is a handle")]
pub(crate) enum ExampleGradients {
    /// It has no parameters.
    None,
    /// The gradients themselves: `[n, weights]` for each tensor of parameters.
    Held(Vec<Tensor<2>>),
    /// Only their squared norms `[n]`, rounded up; the clipped sum comes from
    /// [`TensorLayer::gradient_sum`] with scaled examples, so it must be linear in `dy`.
    Ghost(Tensor<1>),
}

/// A layer over burn's tensors with its backward pass written out.
///
/// Examples must not see one another: row `j` of a result depends on row `j` of the arguments and
/// on the parameters alone. `parameters` are the layer's tensors, flat, in their order in
/// [`Architecture::parameters_of`](crate::model::Architecture::parameters_of).
pub(crate) trait TensorLayer: fmt::Debug + Send + Sync {
    /// The output.
    fn forward(&self, parameters: &[Tensor<1>], x: Tensor<4>) -> Tensor<4>;

    /// The gradient with respect to the input.
    fn input_gradient(&self, parameters: &[Tensor<1>], seen: Seen) -> Tensor<4>;

    /// The gradient of every example with respect to the parameters, or its squared norm.
    fn example_gradients(&self, _: &[Tensor<1>], _: &Seen, _: Choice) -> ExampleGradients {
        ExampleGradients::None
    }

    /// The sum of the examples' gradients, one flat tensor per tensor of parameters.
    fn gradient_sum(&self, _: &[Tensor<1>], _: Seen) -> Vec<Tensor<1>> {
        Vec::new()
    }
}

/// Channels, height and width; a vector is an image of one pixel.
pub(crate) fn dimensions(shape: Shape) -> [usize; 3] {
    match shape {
        Shape::Image { channels, height, width } => [channels, height, width],
        Shape::Vector { features } => [features, 1, 1],
    }
}
