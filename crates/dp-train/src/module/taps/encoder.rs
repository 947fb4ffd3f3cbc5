//! burn's Transformer encoder: attention and two linear layers, each beside a path that leaves them out.

use burn::nn::transformer::{PositionWiseFeedForward, TransformerEncoder, TransformerEncoderLayer};
use burn::tensor::{Bool, Tensor};

use super::{Attend, Tapped};

/// A sequence to encode, and what of it is not to be looked at: burn's `TransformerEncoderInput`, whose fields are its
/// own.
#[derive(Debug, Clone)]
pub struct Encode {
    /// `[n, length, width]`.
    pub sequence: Tensor<3>,
    /// `[n, length]`: places that hold nothing.
    pub mask_pad: Option<Tensor<2, Bool>>,
    /// `[n, length, length]`: what may not be looked at from where.
    pub mask_attn: Option<Tensor<3, Bool>>,
}

impl From<Tensor<3>> for Encode {
    fn from(sequence: Tensor<3>) -> Self {
        Self { sequence, mask_pad: None, mask_attn: None }
    }
}

impl<I: Into<Encode>> Tapped<I> for TransformerEncoder {
    type Output = Tensor<3>;

    fn tapped(&self, input: I) -> Tensor<3> {
        let Encode { mut sequence, mask_pad, mask_attn } = input.into();
        for layer in &self.layers {
            let (mask_pad, mask_attn) = (mask_pad.clone(), mask_attn.clone());
            sequence = layer.tapped(Encode { sequence, mask_pad, mask_attn });
        }
        sequence
    }
}

impl<I: Into<Encode>> Tapped<I> for TransformerEncoderLayer {
    type Output = Tensor<3>;

    fn tapped(&self, input: I) -> Tensor<3> {
        let Encode { sequence: x, mask_pad, mask_attn } = input.into();
        // burn's second norm stands before the attention, or behind all.
        let before = |x: &Tensor<3>| match self.norm_first {
            true => self.norm_2.tapped(x.clone()),
            false => x.clone(),
        };
        let attend = Attend { mask_pad, mask_attn, ..Attend::to_itself(before(&x)) };
        let x = x + self.dropout.forward(self.mha.tapped(attend).context);
        let normal = self.norm_1.tapped(x.clone());
        let x = if self.norm_first { x } else { normal.clone() };
        let x = x + self.dropout.forward(self.pwff.tapped(normal));
        if self.norm_first { x } else { self.norm_2.tapped(x) }
    }
}

impl<const D: usize> Tapped<Tensor<D>> for PositionWiseFeedForward {
    type Output = Tensor<D>;

    fn tapped(&self, input: Tensor<D>) -> Tensor<D> {
        let x = self.activation.forward(self.linear_inner.tapped(input));
        self.linear_outer.tapped(self.dropout.forward(x))
    }
}
