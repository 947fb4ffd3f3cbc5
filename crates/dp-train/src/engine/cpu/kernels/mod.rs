//! The arithmetic of the CPU engine: layouts, products of tiles, and the passes of each kind of layer.
//!
//! ```text
//! vector                       some floats at once, and the choice of instruction set
//! plane, tile                  layouts of images, and the one hot loop
//! geometry, offsets, packing   what a convolution multiplies, and where it lies
//! direct, winograd             convolutions; transform, transform_1d: Winograd's
//! grouped                      convolutions group by group
//! gram                         norms of gradients without the gradients
//! activation, normalization, pool, reduce
//! ```

pub(super) mod activation;
pub(super) mod direct;
pub(super) mod geometry;
pub(super) mod gram;
pub(super) mod grouped;
pub(super) mod normalization;
mod offsets;
pub(super) mod packing;
pub(super) mod plane;
pub(super) mod pool;
pub(super) mod reduce;
pub(super) mod scratch;
pub(super) mod tile;
mod transform;
mod transform_1d;
pub(super) mod vector;
pub(super) mod winograd;
