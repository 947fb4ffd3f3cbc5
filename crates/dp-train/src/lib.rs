//! Private SGD with matrix-factorization noise.
//!
//! ```text
//! PlanRequest -> DpPlan -> Mechanism                       before any data is read
//! PerSampleGradients -> ClippedSum -> PrivateGradient      in every step
//! Ledger -> Certificate -> Verdict                         for anyone to check afterwards
//! ```
//!
//! The whole training is one Gaussian release of `C X`: [`calibration`] says how much noise it
//! needs, [`noise`] streams it as rows of `C^-1 Z`, and the types in [`gradient`] see to it that
//! each step gets its row exactly once. DP-SGD is the strategy `C = I`.
//!
//! ```
//! use dp_train::gradient::PerSampleGradients;
//! use dp_train::mechanism::Mechanism;
//! use dp_train::plan::{DpPlan, PlanRequest, StrategyFor};
//! use dp_train::seeds::NoiseKey;
//! use dp_train::update::Momentum;
//! use mf_core::{Method, Sgd};
//!
//! // 10 epochs of 100 batches of 500 examples, three parameters.
//! let plan = DpPlan::new(PlanRequest {
//!     sgd: Sgd::new(0.999, 0.9)?,
//!     learning_rates: None,
//!     strategy_for: StrategyFor::ConstantRate,
//!     method: Method::Bsr { bands: 100 },
//!     steps: 1000,
//!     min_separation: 100,
//!     max_participations: None,
//!     clip_norm: 1.0,
//!     batch_size: 500,
//!     epsilon: 4.0,
//!     delta: 1e-5,
//!     neighbouring: Default::default(),
//!     dim: 3,
//!     keep_rows: None,
//! })?;
//! let mut mechanism = Mechanism::new(&plan, NoiseKey::from_os()?)?;
//! let mut momentum = Momentum::new(plan.request().sgd, 3);
//! let mut parameters = [0.0_f32; 3];
//!
//! let mut gradients = PerSampleGradients::new(3);
//! gradients.push(&[0.3, -2.0, 0.5])?;
//! let gradient = mechanism.privatize(gradients.clip(1.0)?)?;
//! momentum.step(&mut parameters, gradient, 0.1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod calibration;

pub mod fingerprint;

pub mod seeds;

pub mod plan;

pub mod comparison;

pub mod batches;

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

pub mod certificate;

pub mod verification;

pub mod audit;
