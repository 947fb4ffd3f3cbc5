//! The GPU engine: kernels of its own, in Rust, on any GPU that wgpu can use.
//!
//! ```text
//! images -> forward -> losses -> back: norms of held gradients, Gram norms -> factors -> sums of parts
//! ```
//!
//! A pass over a whole batch is about 35 kernels, whatever its size ([`pass`]). The gradients of early layers are held for every example
//! and summed with their factors; those of deep layers, which have most weights, never exist: their norms come
//! from Gram matrices, and their sums from output gradients that are scaled while they are loaded. Activations are applied by
//! the kernel that makes a value.
//!
//! Examples are added up in f32 in parts of 16; sums of parts are added exactly. So an example changes the rounding of
//! no part but its own, which is what the noise allows for.

mod adapter;
mod back;
mod buffers;
mod comparison;
mod engine;
mod images;
mod kernels;
mod ledger;
mod limits;
mod network;
mod pass;
mod rehearsal;
mod resident;
mod shown;
mod sums;
mod traffic;
mod work;

#[cfg(test)]
mod tests;

pub use engine::GpuEngine;
pub use images::{ByteImages, ViewPlace};
pub(crate) use kernels::update::FINER;
pub use limits::DeviceLimits;
pub use resident::StepSeen;
pub(crate) use resident::{FixedNoise, Resident, ResidentGradient, ResidentSum};
pub use shown::Shown;
pub use traffic::Traffic;
pub use work::Work;
