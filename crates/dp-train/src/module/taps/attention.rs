//! Attention: four linear layers, and a softmax without parameters between them.

use burn::nn::attention::{MhaOutput, MultiHeadAttention};
use burn::tensor::activation::{quiet_softmax, softmax};
use burn::tensor::{Bool, Tensor};

use super::Tapped;

/// What is attended to, and by what: burn's `MhaInput`, whose fields are its own.
#[derive(Debug, Clone)]
pub struct Attend {
    /// `[n, length, width]`: what asks.
    pub query: Tensor<3>,
    /// `[n, other length, width]`: what is asked.
    pub key: Tensor<3>,
    /// `[n, other length, width]`: what is answered.
    pub value: Tensor<3>,
    /// `[n, other length]`: places that hold nothing.
    pub mask_pad: Option<Tensor<2, Bool>>,
    /// `[n, length, other length]`: what may not be looked at from where.
    pub mask_attn: Option<Tensor<3, Bool>>,
}

impl Attend {
    /// A sequence that attends to itself.
    pub fn to_itself(sequence: Tensor<3>) -> Self {
        let (query, key, value) = (sequence.clone(), sequence.clone(), sequence);
        Self { query, key, value, mask_pad: None, mask_attn: None }
    }
}

impl Tapped<Attend> for MultiHeadAttention {
    type Output = MhaOutput;

    fn tapped(&self, input: Attend) -> MhaOutput {
        let [n, length, width] = input.query.dims();
        let heads = |projected: Tensor<3>| {
            let length = projected.dims()[1];
            projected.reshape([n, length, self.n_heads, self.d_k]).swap_dims(1, 2)
        };
        let query = heads(self.query.tapped(input.query));
        let key = heads(self.key.tapped(input.key));
        let value = heads(self.value.tapped(input.value));
        let mut scores = query.matmul(key.transpose()).div_scalar((self.d_k as f32).sqrt());
        if let Some(mask) = input.mask_pad {
            let other = mask.dims()[1];
            scores = scores.mask_fill(mask.reshape([n, 1, 1, other]), self.min_float);
        }
        if let Some(mask) = input.mask_attn {
            scores = scores.mask_fill(mask.unsqueeze_dim::<4>(1), self.min_float);
        }
        let weights =
            if self.quiet_softmax { quiet_softmax(scores, 3) } else { softmax(scores, 3) };
        let weights = self.dropout.forward(weights);
        let context = weights.clone().matmul(value).swap_dims(1, 2).reshape([n, length, width]);
        MhaOutput { weights, context: self.output.tapped(context) }
    }
}
