//! The arithmetic of the CPU engine: layouts, products of tiles, and the passes of each kind of layer.

pub(super) mod activation;
pub(super) mod convolution;
pub(super) mod grouped;
pub(super) mod normalization;
pub(super) mod plane;
pub(super) mod pool;
pub(super) mod tile;
pub(super) mod transform;
pub(super) mod vector;
pub(super) mod winograd;
