//! Private SGD with matrix-factorization noise.
//!
//! A plan settles everything that privacy depends on before any data is read; [`Training`] runs it, with gradients
//! from anywhere; the certificate says what can be claimed, and anyone can [`verify`] it.
//!
//! ```
//! use dp_train::{Budget, Clipping, NoiseKey, PlanRequest, RunSeed, Training, TrainingError};
//! use mf_core::{Method, Participation, Sgd};
//!
//! // The mean of 1,000 numbers: 4 epochs of 10 batches of 100 examples, one parameter.
//! let data: Vec<f32> = (0..1000).map(|i| i as f32 / 1000.0).collect();
//! let (sgd, participation) = (Sgd::new(1.0, 0.9)?, Participation::epochs(4, 10)?);
//! let budget = Budget { epsilon: 4.0, delta: 1e-5 };
//! let clipping = Clipping { batch_size: 100, clip_norm: 1.0 };
//! let plan = PlanRequest::new(Method::Bsr { bands: 10 }, sgd, participation, budget, clipping, 1).plan()?;
//! let mut training = Training::new(plan, vec![0.0], 1000, 0.05, RunSeed(1), NoiseKey::from_os()?)?;
//! while !training.is_finished() {
//!     training.step(|parameters, batch, sum| -> Result<(), TrainingError> {
//!         batch.iter().try_for_each(|&i| Ok(sum.add(&[parameters[0] - data[i as usize]])?))
//!     })?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//! PlanRequest -> DpPlan -> Training                        before any data is read
//! PerSampleGradients -> ClippedSum -> PrivateGradient      in every step
//! Ledger -> Certificate -> Verdict                         for anyone to check afterwards
//! ```
//!
//! The whole training is one Gaussian release of `C X`: [`calibration`] says how much noise it
//! needs, [`accounting`] how much less if batches are sampled in secret; [`noise`] streams it as rows of
//! `C^-1 Z`, and the types in [`gradient`] see to it that
//! each step gets its row exactly once. DP-SGD is the strategy `C = I`. A strategy of one's own enters by
//! [`DpPlan::with_strategy`], a workload of one's own by [`PlanRequest::with_workload`], an optimizer of one's own by
//! using the [`mechanism`] without [`Training`].

pub mod calibration;
pub mod accounting;
pub mod fingerprint;
pub mod seeds;
pub mod plan;
pub mod comparison;
pub mod batches;
pub mod parting;
pub mod ledger;
pub mod continuations;
pub mod model;
pub mod engine;
pub mod gradient;
pub mod clip;
pub mod noise;
pub mod mechanism;
pub mod update;
pub mod seal;
pub mod training;
#[cfg(feature = "burn")]
pub mod module;
pub mod provenance;
pub mod score;
pub mod certificate;
pub mod verification;
pub mod audit;

pub use mf_core;

pub use calibration::Neighbouring;
pub use certificate::{Certificate, Disclosure};
pub use gradient::{ClippedSum, PrivateGradient};
pub use plan::{Budget, Clipping, DpPlan, PlanError, PlanRequest, StrategyFor};
pub use seeds::{NoiseKey, RunSeed};
pub use training::average::Average;
pub use training::non_private::{NonPrivateRequest, NonPrivateTraining};
pub use training::{Training, TrainingError};
pub use verification::{Verdict, verify};

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../mf-core/README.md")]
struct Readme;
