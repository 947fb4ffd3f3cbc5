//! Taps: forward passes of burn's layers that note what single examples contribute.
//!
//! [`tapped`](Tapped::tapped) is `forward`, word for word, outside of a private step. In one it uses the weights as constants,
//! adds a tap to the output and puts the input on the tape of the pass; the gradient of a tap is the gradient of
//! the output, and input and output gradient make up what every example contributes to the weights.

use super::tape;

mod attention;
mod convolution;
mod embedding;
mod encoder;
mod linear;
mod normalization;
mod parameter;
mod recurrent;

pub use attention::Attend;
pub use encoder::Encode;
pub use parameter::for_each_example;

/// A layer whose forward pass can note what single examples contribute to its weights.
///
/// The first axis of the input counts examples, and of everything that a layer is given it must be the same: an example is
/// one row all through the module.
pub trait Tapped<Input> {
    /// As of the layer's own `forward`.
    type Output;

    /// The layer's `forward`, with taps in a private step.
    fn tapped(&self, input: Input) -> Self::Output;
}
