//! The burn engine: the same clipped sums over burn's tensors, and so on any device of burn.
//!
//! ```text
//! upload -> forward -> backward, layer by layer -> norms -> scales -> clipped sum -> read back
//! ```
//!
//! One forward and one backward pass per microbatch; nothing is read back before the sum of about 128
//! images is complete, and these sums are added in f64 (`sum.rs` says why). A layer either holds the
//! gradients of a microbatch, or gives their squared norms (ghost norms) and sums scaled examples,
//! whichever is cheaper; never more than one microbatch of gradients exists. Norms are f32 and rounded up by what f32 can have lost (`clip.rs`), so that
//! no example moves the sum by more than the clip norm, up to the rounding of the sum itself.
//! Examples whose squared norm is not finite in f32 contribute zero and are counted, as are those whose
//! clipped gradient is not finite in spite of it.
//!
//! # A layer of your own
//! 1. Add a variant to [`Layer`](crate::model::Layer), with its shapes and parameters.
//! 2. Write one file in `layers` with a type that implements `TensorLayer` (`layer.rs`): `forward` and
//!    `input_gradient`; with parameters also `example_gradients` and `gradient_sum`. `linear.rs` is
//!    a short one. Name it in `tensor_layer`.
//! 3. Add it to `autodiff.rs` and a case to `tests`, where burn's automatic differentiation checks it.
//!
//! The CPU engine needs its own kernel for it, or refuses the architecture.

mod clip;
mod device;
mod engine;
mod gram;
mod layer;
mod layers;
mod loss;
mod pass;
mod placed;
mod sum;

#[cfg(all(test, feature = "flex"))]
mod autodiff;
#[cfg(all(test, feature = "flex"))]
mod tests;

pub(crate) use clip::{Scales, rounded_up, sum_of_squares};
#[cfg(all(test, feature = "gpu"))]
pub(crate) use device::open_software_gpu;
#[cfg(feature = "gpu")]
pub(crate) use device::{gpu::kind as device_kind, open as open_device};
pub use engine::BurnEngine;
pub(crate) use gram::{ghost_pays, squared_norms};
