//! The layers over burn's tensors, one file for each kind.

pub(super) mod activation;
pub(super) mod convolution;
pub(super) mod flatten;
pub(super) mod linear;
pub(super) mod normalization;
pub(super) mod pool;
