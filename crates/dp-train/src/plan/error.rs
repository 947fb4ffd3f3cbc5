//! Why there is no plan.

use thiserror::Error;

use crate::accounting::AccountingError;
use crate::calibration::CalibrationError;
use crate::noise::NoiseError;

/// Why a request has no plan.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PlanError {
    /// The factorization refuses its arguments.
    #[error(transparent)]
    Factorization(#[from] mf_core::Error),
    /// There is no noise for this privacy.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// The accountant does not cover the sampling, or finds no noise for it.
    #[error(transparent)]
    Accounting(#[from] AccountingError),
    /// An accountant was chosen where there is only one.
    #[error(
        "the accountant can be chosen for balls-in-bins only: elsewhere there is one, without coins"
    )]
    NoChoice,
    /// Poisson batches of an unknown number of examples.
    #[error("Poisson batches need the number of examples, which is public")]
    Examples,
    /// A number of examples that nothing depends on.
    #[error("the number of examples is for Poisson batches only: leave it out")]
    UnusedExamples,
    /// Poisson batches with noise that is correlated.
    #[error(
        "Poisson batches need fresh noise in every step, method identity, not {method}: take cyclic Poisson batches, or \
         balls-in-bins"
    )]
    FreshNoise {
        /// The name of the method.
        method: &'static str,
    },
    /// A strategy with another number of diagonals than there are groups.
    #[error(
        "cyclic Poisson batches need a strategy with as many diagonals as groups, but it has {bands} and there are \
         {groups} groups: take a banded method such as bsr"
    )]
    Groups {
        /// Diagonals of the strategy.
        bands: usize,
        /// Groups, which is the least separation.
        groups: usize,
    },
    /// Poisson batches may take an example whenever its group comes.
    #[error("Poisson batches may take an example {most} times: say so, or leave it out")]
    Turns {
        /// `ceil(n / p)`.
        most: usize,
    },
    /// `k` was left out, and the steps are not whole epochs.
    #[error(
        "steps = {steps} is not a multiple of separation = {separation}: say how many \
         participations an example has"
    )]
    UnevenSteps {
        /// `n`.
        steps: usize,
        /// `b`.
        separation: usize,
    },
    /// Not one learning rate per step.
    #[error("there must be one learning rate for each of {expected} steps, not {found}")]
    Rates {
        /// `n`.
        expected: usize,
        /// Rates that were given.
        found: usize,
    },
    /// Not one coefficient of the workload per step.
    #[error("the workload must have one coefficient for each of {expected} steps, not {found}")]
    Column {
        /// `n`.
        expected: usize,
        /// Coefficients that were given.
        found: usize,
    },
    /// A workload of one's own and a schedule of learning rates.
    #[error(
        "a workload of one's own has no schedule: give workload_column or learning_rates, not \
         both"
    )]
    TwoWorkloads,
    /// A strategy was given with a request for another method than [`Method::Own`](mf_core::Method::Own).
    #[error(
        "a strategy was given, but the request is for method {method}: it must be for method own"
    )]
    NotOwn {
        /// The name of the method.
        method: &'static str,
    },
    /// The inverse of the strategy is unstable: its noise would be lost in rounding.
    #[error(
        "the noise of this strategy would be lost in rounding: its terms are {growth:e} times as \
         large as the noise itself, and at most 16384 times is allowed"
    )]
    Growth {
        /// [`noise_growth`](mf_core::loss::noise_growth) of the strategy.
        growth: f64,
    },
    /// Rows of noise are far larger or smaller than the noise that they are made of.
    #[error(
        "a row of this strategy's noise is {deviation:e} times as large as the noise it is made of, and 2^-16 to 2^16 \
         times is allowed: divide the strategy, or the workload or rates it is made for, by a constant, which changes \
         nothing else"
    )]
    Scale {
        /// The norm of the row of `C^-1`.
        deviation: f64,
    },
    /// The errors are no finite numbers.
    #[error("the expected error is not a finite number: the entries of the workload are too large")]
    Loss,
    /// More steps or parameters than any machine has room for.
    #[error(
        "{steps} steps of {dim} parameters are more than can be planned: at most 2^30 and 2^36"
    )]
    TooLarge {
        /// `n`.
        steps: usize,
        /// `d`.
        dim: usize,
    },
    /// The clip norm is not in [`CLIP_NORMS`](crate::gradient::CLIP_NORMS).
    #[error("the clip norm must be between 1e-30 and 1e30, but it is {clip_norm}")]
    ClipNorm {
        /// The value given.
        clip_norm: f64,
    },
    /// The entries of the strategy are too small or too large for f64: rates or factors of the optimizer are.
    #[error(
        "the sensitivity must be between 1e-100 and 1e100, but it is {sensitivity:e}: the \
         strategy, or the learning rates or the workload it is made for, are too small or too large"
    )]
    Sensitivity {
        /// The sensitivity that came out.
        sensitivity: f64,
    },
    /// The batch size is above [`MOST_EXAMPLES`](crate::gradient::MOST_EXAMPLES).
    #[error("the batch size must be at most 2^20, but it is {batch_size}")]
    BatchSize {
        /// The value given.
        batch_size: usize,
    },
    /// The batch size or the number of parameters is 0.
    #[error("the batch size and the number of parameters must be at least 1")]
    Empty,
    /// The noise cannot keep this many rows.
    #[error(transparent)]
    Noise(NoiseError),
    /// A factorization was made by another method or for another workload.
    #[error("the factorization is not the one that the request describes")]
    OtherFactorization,
    /// A plan from a file is not what its own request gives.
    #[error("the plan in the file differs from what its own request gives")]
    Altered,
}
