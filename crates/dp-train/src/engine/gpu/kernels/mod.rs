//! The kernels, in Rust, compiled for the device when they are first started.
//!
//! # Layout
//! Values are `[image][channel][row][column]`, a vector is an image of one pixel, and a linear layer is a convolution over
//! it. So neighbouring units, which handle neighbouring pixels, read and write neighbouring numbers, and no tensor is
//! ever turned.
//!
//! # Tiles
//! Products of matrices are made by cubes of 64 units. Each makes a tile of `8 tall x 64` numbers, every unit `tall x 8`
//! of them in registers, from strips of both factors in shared memory that are [`DEEP`] deep: for `tall = 8`, 16 loads make
//! 64 multiplications, and two strips are 4 kB, so that many cubes fit on a processor. The factor that a convolution needs
//! (its windows) exists in shared memory only: each unit computes where its numbers lie (implicit GEMM).
//!
//! Software that stands in for a GPU has no memory that is faster than its caches; there [`lanes`] make the same products.
//!
//! # Numbers
//! f32 everywhere, and never TF32 or half precision, which cubecl's own matrix products would choose on some devices: the bounds on
//! norms need a relative error of 2^-24 per operation. Tests for what is not finite are made on bits, since shading languages let
//! compilers assume that nothing is NaN.

#![allow(clippy::manual_is_multiple_of, reason = "the language of kernels has no such method")]

pub(super) mod activation;
pub(super) mod arrival;
pub(super) mod convolution;
pub(super) mod elementwise;
pub(super) mod gather;
pub(super) mod geometry;
pub(super) mod gram;
pub(super) mod lanes;
pub(super) mod ledger;
pub(super) mod loss;
pub(super) mod normalization;
pub(super) mod order;
pub(super) mod pool;
mod position;
pub(super) mod product;
pub(super) mod reduction;
pub(super) mod scale;
pub(super) mod sum;
pub(super) mod tally;
pub(super) mod tile;
pub(super) mod update;
pub(super) mod weight_gradient;
pub(super) mod window;

/// Units of a cube.
pub(super) const UNITS: usize = 64;
/// Units along a side of a tile.
pub(super) const SIDE: usize = 8;
/// How many terms of a product are in shared memory at a time.
pub(super) const DEEP: usize = 8;
/// The most cubes along one axis of a grid, of the 65,535 that every device has.
pub(super) const SPAN: usize = 32_768;
