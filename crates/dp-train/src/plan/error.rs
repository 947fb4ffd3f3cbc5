//! Why there is no plan.

use std::fmt;

use crate::calibration::CalibrationError;
use crate::noise::NoiseError;

/// Why a request has no plan.
#[derive(Debug, Clone, PartialEq)]
pub enum PlanError {
    /// The factorization refuses its arguments.
    Factorization(mf_core::Error),
    /// There is no noise for this privacy.
    Calibration(CalibrationError),
    /// `k` was left out, and the steps are not whole epochs.
    UnevenSteps {
        /// `n`.
        steps: usize,
        /// `b`.
        separation: usize,
    },
    /// Not one learning rate per step.
    Rates {
        /// `n`.
        expected: usize,
        /// Rates that were given.
        found: usize,
    },
    /// The clip norm is not in [`CLIP_NORMS`](crate::gradient::CLIP_NORMS).
    ClipNorm {
        /// The value given.
        clip_norm: f64,
    },
    /// The entries of the strategy are too small or too large for f64: rates or factors of the optimizer are.
    Sensitivity {
        /// The sensitivity that came out.
        sensitivity: f64,
    },
    /// The batch size or the number of parameters is 0.
    Empty,
    /// The noise cannot keep this many rows.
    Noise(NoiseError),
    /// A factorization was made by another method or for another workload.
    OtherFactorization,
    /// A plan from a file is not what its own request gives.
    Altered,
}

impl From<mf_core::Error> for PlanError {
    fn from(error: mf_core::Error) -> Self {
        PlanError::Factorization(error)
    }
}

impl From<CalibrationError> for PlanError {
    fn from(error: CalibrationError) -> Self {
        PlanError::Calibration(error)
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Factorization(error) => error.fmt(f),
            PlanError::Calibration(error) => error.fmt(f),
            PlanError::UnevenSteps { steps, separation } => write!(
                f,
                "steps = {steps} is not a multiple of separation = {separation}: \
                 say how many participations an example has"
            ),
            PlanError::Rates { expected, found } => {
                write!(
                    f,
                    "there must be one learning rate for each of {expected} steps, not {found}"
                )
            }
            PlanError::ClipNorm { clip_norm } => {
                write!(f, "the clip norm must be between 1e-30 and 1e30, but it is {clip_norm}")
            }
            PlanError::Sensitivity { sensitivity } => write!(
                f,
                "the sensitivity must be between 1e-100 and 1e100, but it is {sensitivity:e}: the learning rates of the \
                 schedule are too small or too large"
            ),
            PlanError::Empty => {
                write!(f, "the batch size and the number of parameters must be at least 1")
            }
            PlanError::Noise(error) => error.fmt(f),
            PlanError::OtherFactorization => {
                write!(f, "the factorization is not the one that the request describes")
            }
            PlanError::Altered => {
                write!(f, "the plan in the file differs from what its own request gives")
            }
        }
    }
}

impl std::error::Error for PlanError {}
