//! What an audit says, and why there may be none.

use std::fmt;

use serde::{Deserialize, Serialize};

use thiserror::Error;

use crate::batches::NoBatch;
use crate::engine::EngineError;
use crate::gradient::GradientError;
use crate::mechanism::MechanismError;
use crate::plan::{PlanError, Sampling};

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditReport {
    /// `epsilon` of the plan.
    pub epsilon_claimed: f64,
    /// `delta` of the plan, and of the bounds.
    pub delta: f64,
    /// No mechanism with a smaller epsilon behaves like this one, at the stated confidence.
    pub epsilon_lower_bound: f64,
    /// The same under the assumption that the release is Gaussian; closer to the claim. None where batches are secret: it
    /// is a mixture then.
    pub epsilon_lower_bound_if_gaussian: Option<f64>,
    /// Trials in each of the two worlds, those for choosing the test included.
    pub trials: u64,
    /// Probability with which each bound holds.
    pub confidence: f64,
    /// Largest deviation of mean or variance of the noise from the plan, in standard deviations.
    pub noise_deviation: f64,
    /// Whether that is within what chance explains, with a false-alarm rate below 1e-6.
    pub noise_as_planned: bool,
    /// Where batches are secret: whether they are drawn as the plan says, with a false-alarm rate of about 1e-6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches_as_planned: Option<bool>,
    /// The other parts of what is shipped that were attacked; the numbers above are those of the
    /// mechanism at 64 coordinates.
    #[serde(default)]
    pub parts: Vec<PartReport>,
}

/// What the attack on one part found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartReport {
    /// One word.
    pub name: String,
    /// What was attacked, in one line.
    pub attacked: String,
    /// Norm of the longest contribution of a canary, measured without noise, over the clip norm.
    pub longest_contribution: f64,
    /// Whether that is at most 1, up to rounding (1e-6).
    pub contributions_within_clip_norm: bool,
    /// As in [`AuditReport`].
    pub epsilon_lower_bound: f64,
    /// As in [`AuditReport`].
    pub epsilon_lower_bound_if_gaussian: f64,
    /// Trials in each of the two worlds, those for choosing the test included.
    pub trials: u64,
    /// Probability with which each bound holds.
    pub confidence: f64,
    /// Largest deviation of mean or variance of the noise from the plan in both worlds, all
    /// canaries together and each alone, in standard deviations.
    pub noise_deviation: f64,
    /// Whether that is within what chance explains, with a false-alarm rate below 1e-6.
    pub noise_as_planned: bool,
}

impl PartReport {
    /// Whether nothing speaks against the claim: no canary is longer than the clip norm, the bound
    /// is not above the claim, and the noise is as planned. A correct mechanism fails with
    /// probability below 0.11 %.
    pub fn passed(&self, epsilon_claimed: f64) -> bool {
        self.contributions_within_clip_norm
            && self.epsilon_lower_bound <= epsilon_claimed
            && self.noise_as_planned
    }
}

impl AuditReport {
    /// Whether nothing speaks against the plan, in the main attack and in all parts: no bound is
    /// above the claim, and the noise is as planned.
    ///
    /// A correct mechanism fails with probability below 5 % for the main attack and 0.11 % for each
    /// part, below 5.4 % for three parts together; with the margin that `delta` leaves between the
    /// bounds and the claim, far below.
    pub fn passed(&self) -> bool {
        self.epsilon_lower_bound <= self.epsilon_claimed
            && self.noise_as_planned
            && self.batches_as_planned != Some(false)
            && self.parts.iter().all(|part| part.passed(self.epsilon_claimed))
    }
}

impl fmt::Display for PartReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noise = if self.noise_as_planned { "noise as planned" } else { "noise NOT as planned" };
        writeln!(f, "{:<13} {}", self.name, self.attacked)?;
        writeln!(
            f,
            "              epsilon {:.3} ({:.1} %, {} trials per world), if Gaussian {:.3}",
            self.epsilon_lower_bound,
            100.0 * self.confidence,
            self.trials,
            self.epsilon_lower_bound_if_gaussian
        )?;
        if !self.contributions_within_clip_norm {
            writeln!(
                f,
                "              a contribution is TOO LONG: {:.4} clip norms",
                self.longest_contribution
            )?;
        }
        write!(f, "              {noise} (largest deviation {:.1} sigma)", self.noise_deviation)
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
        if let Some(bound) = self.epsilon_lower_bound_if_gaussian {
            writeln!(f, "if Gaussian   epsilon {bound:.3} ({percent} %)")?;
        }
        let noise = if self.noise_as_planned { "as planned" } else { "NOT as planned" };
        writeln!(f, "noise         {noise} (largest deviation {:.1} sigma)", self.noise_deviation)?;
        if let Some(as_planned) = self.batches_as_planned {
            let word = if as_planned { "drawn as planned" } else { "NOT drawn as planned" };
            writeln!(f, "batches       {word}")?;
        }
        for part in &self.parts {
            writeln!(f, "{part}")?;
        }
        write!(f, "verdict       {}", if self.passed() { "nothing found" } else { "FAILED" })
    }
}

/// Why there is no audit.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AuditError {
    /// Too few trials to choose a test and to count with it.
    #[error("an audit needs at least 640 trials, but it is to make {trials}")]
    Trials {
        /// The number given.
        trials: u64,
    },
    /// A mechanism of one's own is attacked in steps that are known; where these are secret that would prove too much.
    #[error("the plan is for {sampling}, but the attack is on a fixed order")]
    Sampling {
        /// That of the plan.
        sampling: Sampling,
    },
    /// There are no batches to draw.
    #[error(transparent)]
    Batches(#[from] NoBatch),
    /// The plan cannot be made for the audit's number of coordinates.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The mechanism refused a step.
    #[error(transparent)]
    Mechanism(#[from] MechanismError),
    /// The canary's gradients were refused.
    #[error(transparent)]
    Gradient(#[from] GradientError),
    /// The engine refused the canaries.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// What canaries contribute is not independent of one another.
    #[error("the contributions of the canaries depend on one another")]
    DependentCanaries,
    /// The mechanism could not be saved or loaded, for this reason.
    #[error("the audited run could not go on: {0}")]
    Resume(String),
}
