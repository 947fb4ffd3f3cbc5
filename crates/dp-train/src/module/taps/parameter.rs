//! Parameters of a module's own.

use burn::module::Param;
use burn::tensor::Tensor;

use super::tape;
use crate::module::layer_use::LayerInput;
use crate::module::tape::Role;

/// A parameter as one copy for every example, `[examples, ..]`: what a module uses a parameter of its own by (a class token,
/// positions, a scale), so that it need not be in a layer.
///
/// In a private step the gradient of a copy is what its example contributes: it is held, which takes as much memory as
/// the parameter for every example of a microbatch.
///
/// # Panics
/// If `E` is not `D + 1`.
pub fn for_each_example<const D: usize, const E: usize>(
    parameter: &Param<Tensor<D>>,
    examples: usize,
) -> Tensor<E> {
    assert_eq!(E, D + 1, "a parameter of {D} axes has {} with one for the examples", D + 1);
    let mut shape = [examples; E];
    shape[1..].copy_from_slice(&parameter.val().dims());
    match tape::is_recording().then(|| tape::role(parameter)) {
        Some(Role::Trained(id, value)) => {
            let weights = value.dims().iter().product();
            let zeros = Tensor::zeros([examples, 1, weights], &value.device());
            let layer = LayerInput::Whole { parameter: id };
            let value = value.reshape([1, 1, weights]);
            tape::tap(zeros, Some(value), layer).reshape(shape)
        }
        _ => {
            let mut one = shape;
            one[0] = 1;
            parameter.val().reshape(one).expand(shape)
        }
    }
}
