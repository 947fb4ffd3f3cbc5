//! `y = x W + b` at every position.

use burn::nn::Linear;
use burn::tensor::Tensor;

use super::{Tapped, tape};
use crate::module::layer_use::LayerInput;
use crate::module::tape::Role;

impl<const D: usize> Tapped<Tensor<D>> for Linear {
    type Output = Tensor<D>;

    fn tapped(&self, input: Tensor<D>) -> Tensor<D> {
        // A vector has no axis of examples.
        if D == 1 || !tape::is_recording() {
            return self.forward(input);
        }
        let (weight_id, weight) = match tape::role(&self.weight) {
            Role::Trained(id, weight) => (Some(id), weight),
            Role::Frozen(weight) => (None, weight),
            Role::Computed => return self.forward(input),
        };
        let (bias_id, bias) = match self.bias.as_ref().map(tape::role) {
            Some(Role::Trained(id, bias)) => (Some(id), Some(bias)),
            Some(Role::Frozen(bias)) => (None, Some(bias)),
            Some(Role::Computed) => return self.forward(input),
            None => (None, None),
        };
        if weight_id.is_none() && bias_id.is_none() {
            return self.forward(input);
        }
        let mut shape = input.dims();
        let [inner, outer] = weight.dims();
        let n = shape[0];
        let positions = shape[1..D - 1].iter().product();
        let x = input.reshape([n * positions, inner]);
        let seen = x.clone().inner().reshape([n, positions, inner]);
        let y = x.matmul(weight).reshape([n, positions, outer]);
        let layer = LayerInput::Linear { weight: weight_id, bias: bias_id, x: seen };
        let y = tape::tap(y, bias.map(|bias| bias.reshape([1, 1, outer])), layer);
        shape[D - 1] = outer;
        y.reshape(shape)
    }
}
