//! Private SGD with matrix-factorization noise.
//!
//! Here so far: [`update`], the step of SGD that the workload of `mf-core` unrolls.

pub mod update;
