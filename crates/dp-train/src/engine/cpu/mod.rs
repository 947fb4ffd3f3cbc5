//! The CPU engine: clipped sums of per-example gradients at the price of ordinary gradients.
//!
//! One forward and one backward pass per block of examples. Activations lie channels last in
//! buffers that are made once; 3 x 3 convolutions go through Winograd's F(4x4, 3x3)
//! ([`ConvolutionMethod`](crate::engine::ConvolutionMethod)), all others through products of 6 x 16
//! tiles, grouped ones group by group. A layer's per-example gradient is either held for one example at a
//! time, or its norm comes from Gram matrices (ghost norms) and the scaled examples of a block are summed
//! in one product, whichever is cheaper.
//!
//! # Guarantees
//! * The same bits for any number of threads: examples are dealt to lanes by the size of the batch
//!   alone, and lanes are added in their order.
//! * An example with a non-finite gradient contributes exactly zero and is counted.
//! * After the first call no buffer is allocated but the result.

mod block;
mod clipping;
mod compile;
mod convolution;
mod engine;
mod kernels;
mod lanes;
mod loss;
mod network;
#[cfg(feature = "burn")]
mod outer_products;
mod passes;
mod peak;
mod views;
mod weight_gradient;
mod workers;
mod workspace;

#[cfg(test)]
mod tests;

pub use engine::Engine;
#[cfg(feature = "burn")]
pub(crate) use outer_products::add_outer_products;
pub use peak::sgemm_seconds;
