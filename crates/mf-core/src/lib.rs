//! Matrix factorizations for differentially private training, in f64 and without tensors.
//!
//! Training by SGD releases `theta = A x`: every iterate is a fixed linear combination of the updates
//! `x`. The matrix mechanism factorizes `A = B C`, releases `C x + z` with Gaussian `z`, and trains
//! with `B (C x + z) = A (x + C^-1 z)`: ordinary SGD on updates with *correlated* noise. Privacy
//! depends on `sens(C)`, utility on `||B||`, and the expected error on their product
//!
//! ```text
//! E(B, C) = sens_{k,b}(C) ||B||_F / sqrt(n)
//! ```
//!
//! # Factorizations
//! | method | strategy | when |
//! |---|---|---|
//! | [`Identity`](factorization::Method::Identity) | `C = I` | DP-SGD, the baseline; no memory |
//! | [`Input`](factorization::Method::Input) | `C = A` | the other baseline: noise on the iterates |
//! | [`SquareRoot`](factorization::Method::SquareRoot) | `C = A^{1/2}` | each example is used once |
//! | [`Bsr`](factorization::Method::Bsr) | `p` diagonals of `A^{1/2}` | several epochs, `p <= b` |
//! | [`Bisr`](factorization::Method::Bisr) | `C^-1`: `p` diagonals of `A^{-1/2}` | little memory; the noise can be drawn again |
//! | [`LambdaCgd`](factorization::Method::LambdaCgd) | `C^-1 = I - lambda shift` | one row of memory, or none |
//! | [`Toeplitz`](factorization::Method::Toeplitz) | the best `p` coefficients of `C` | as BSR, a little better |
//! | [`InverseToeplitz`](factorization::Method::InverseToeplitz) | the best `p` coefficients of `C^-1` | as BISR, better |
//! | [`Blt`](factorization::Method::Blt) | `m` decaying sums | little memory at any `n` |
//! | [`NormalizedSquareRoot`](factorization::Method::NormalizedSquareRoot) | `p` diagonals of `A^{1/2}`, unit columns | close to the optimum without a search |
//! | [`Aof`](factorization::Method::Aof) | the best `C` with `p` diagonals and unit columns | the optimum, with a certificate, in seconds |
//!
//! ```
//! use mf_core::{Factorization, Method, Participation, Sgd, Workload};
//!
//! // 10 epochs of 100 batches with momentum 0.9 and decay 0.999.
//! let workload = Workload::sgd(Sgd::new(0.999, 0.9)?, 1000)?;
//! let participation = Participation::new(1000, 100, 10)?;
//! let bsr = Factorization::new(workload.clone(), Method::Bsr { bands: 100 })?;
//! let dp_sgd = Factorization::new(workload, Method::Identity)?;
//! let ratio = dp_sgd.loss(&participation)?.expected_error / bsr.loss(&participation)?.expected_error;
//! assert!(ratio > 7.0, "BSR needs a seventh of the noise");
//! # Ok::<(), mf_core::Error>(())
//! ```
//!
//! # Workloads and strategies of one's own
//! [`Workload::toeplitz`] takes the first column of any lower-triangular Toeplitz workload, and the methods that need
//! no more of it factorize it; `blt` and `aof`, which need SGD's closed form, refuse. A strategy of one's own is a
//! [`Strategy`] by its coefficients or rows: [`sensitivity::of`] is exact for it or an upper bound, and
//! [`loss::noise_growth`] says whether its noise survives rounding.
//!
//! # Notation
//! Public names are words; bodies use the letters of the paper (arXiv:2405.13763).
//!
//! | symbol | name | meaning |
//! |---|---|---|
//! | `A` | [`Workload`] | row `i` says which combination of updates iterate `i` is |
//! | `C` | [`Strategy`] | what is released with independent noise |
//! | `B = A C^-1` | decoder | [`loss::DecoderNorms`] |
//! | `C^-1` | noising | row `i` of `C^-1 Z` is the noise of step `i` |
//! | `n` | `steps` | updates in the whole training |
//! | `p` | `bands` | diagonals of `C`; `p - 1` rows of noise are kept |
//! | `b` | `min_separation` | least distance between two uses of one example |
//! | `k` | `max_participations` | most uses of one example |
//! | `alpha` | `decay_factor` | the weights are multiplied by it in every step |
//! | `beta` | `momentum` | the momentum buffer is multiplied by it in every step |
//! | `eta` | `learning_rates` | step sizes; constant ones are taken out of `A` |
//! | `E` | `expected_error` | root mean squared error of the iterates, multiplier and clip norm 1 |
//! | `LDToep(m)` | [`series`] | lower-triangular Toeplitz matrix with first column `m` |

pub mod error;
pub mod sealed;
pub mod participation;
pub mod banded;
pub mod triangular;
pub mod series;
pub mod workload;
pub mod strategy;
pub mod factorization;
pub mod sensitivity;
pub mod loss;
pub mod bounds;
pub mod reference;

pub use banded::BandedLower;
pub use error::{Error, Result};
pub use factorization::{Factorization, Method};
pub use loss::Loss;
pub use participation::Participation;
pub use sensitivity::Sensitivity;
pub use strategy::{Buffer, Noising, Strategy, StrategyRecord};
pub use triangular::LowerTriangular;
pub use workload::{Sgd, Workload};
