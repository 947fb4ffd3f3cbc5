//! What an audit says, and why there may be none.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::gradient::GradientError;
use crate::mechanism::MechanismError;
use crate::plan::PlanError;

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditReport {
    /// `epsilon` of the plan.
    pub epsilon_claimed: f64,
    /// `delta` of the plan, and of the bounds.
    pub delta: f64,
    /// No mechanism with a smaller epsilon behaves like this one, at the stated confidence.
    pub epsilon_lower_bound: f64,
    /// The same under the assumption that the release is Gaussian; closer to the claim.
    pub epsilon_lower_bound_if_gaussian: f64,
    /// Trials in each of the two worlds, those for choosing the test included.
    pub trials: u64,
    /// Probability with which each bound holds.
    pub confidence: f64,
    /// Largest deviation of mean or variance of the noise from the plan, in standard deviations.
    pub noise_deviation: f64,
    /// Whether that is within what chance explains, with a false-alarm rate below 1e-6.
    pub noise_as_planned: bool,
}

impl AuditReport {
    /// Whether nothing speaks against the plan: no bound is above the claim, and the noise is as
    /// planned.
    ///
    /// A correct mechanism fails with probability below 5 %; with the margin that
    /// `delta` leaves between the bounds and the claim, far below.
    pub fn passed(&self) -> bool {
        self.epsilon_lower_bound <= self.epsilon_claimed && self.noise_as_planned
    }
}

impl fmt::Display for AuditReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.confidence;
        writeln!(f, "claimed       epsilon {} at delta {:e}", self.epsilon_claimed, self.delta)?;
        writeln!(
            f,
            "lower bound   epsilon {:.3} ({percent} %, {} trials per world)",
            self.epsilon_lower_bound, self.trials
        )?;
        writeln!(
            f,
            "if Gaussian   epsilon {:.3} ({percent} %)",
            self.epsilon_lower_bound_if_gaussian
        )?;
        let noise = if self.noise_as_planned { "as planned" } else { "NOT as planned" };
        writeln!(f, "noise         {noise} (largest deviation {:.1} sigma)", self.noise_deviation)?;
        write!(f, "verdict       {}", if self.passed() { "nothing found" } else { "FAILED" })
    }
}

/// Why there is no audit.
#[derive(Debug, Clone, PartialEq)]
pub enum AuditError {
    /// Too few trials to choose a test and to count with it.
    Trials {
        /// The number given.
        trials: u64,
    },
    /// The plan cannot be made for the audit's number of coordinates.
    Plan(PlanError),
    /// The mechanism refused a step.
    Mechanism(MechanismError),
    /// The canary's gradients were refused.
    Gradient(GradientError),
}

impl From<PlanError> for AuditError {
    fn from(error: PlanError) -> Self {
        AuditError::Plan(error)
    }
}

impl From<MechanismError> for AuditError {
    fn from(error: MechanismError) -> Self {
        AuditError::Mechanism(error)
    }
}

impl From<GradientError> for AuditError {
    fn from(error: GradientError) -> Self {
        AuditError::Gradient(error)
    }
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuditError::Trials { trials } => {
                write!(f, "an audit needs at least 640 trials, but it is to make {trials}")
            }
            AuditError::Plan(error) => error.fmt(f),
            AuditError::Mechanism(error) => error.fmt(f),
            AuditError::Gradient(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AuditError {}
