//! Rows of a table.

use burn::nn::Embedding;
use burn::tensor::module::embedding;
use burn::tensor::{Int, Tensor};

use super::{Tapped, tape};
use crate::module::layer_use::LayerInput;
use crate::module::tape::Role;

impl Tapped<Tensor<2, Int>> for Embedding {
    type Output = Tensor<3>;

    fn tapped(&self, input: Tensor<2, Int>) -> Tensor<3> {
        if !tape::is_recording() {
            return self.forward(input);
        }
        let Role::Trained(id, weight) = tape::role(&self.weight) else {
            return self.forward(input);
        };
        let indices = input.inner();
        let rows = weight.dims()[0];
        let y = embedding(weight, indices.clone());
        tape::tap(y, None, LayerInput::Lookup { weight: id, rows, indices })
    }
}
