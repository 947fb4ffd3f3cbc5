//! The numbers of a plan, as they stand in files.

use mf_core::loss::Loss;
use mf_core::sensitivity::Sensitivity;
use mf_core::{Participation, StrategyRecord};
use serde::{Deserialize, Serialize};

use super::{Amplification, PlanRequest, Sampling};
use crate::accounting::tuning::Release;
use crate::fingerprint::Fingerprint;

/// The numbers of a plan, as they stand in files. Anyone can write such a record;
/// only a [`DpPlan`](super::DpPlan) was computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRecord {
    /// What was asked for.
    pub request: PlanRequest,
    /// `n`, `b` and `k` as they are used.
    pub participation: Participation,
    /// `p`, the number of diagonals of `C`.
    pub bands: usize,
    /// SHA-256 of `C`.
    pub strategy_sha256: Fingerprint,
    /// `C` itself, if it is the caller's own: no method gives it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<StrategyRecord>,
    /// `sens_{k,b}(C)` for clip norm 1, exact or a bound, and by which argument.
    pub sensitivity: Sensitivity,
    /// Standard deviation of the noise over the sensitivity of `C X`.
    pub noise_multiplier: f64,
    /// Where the batches are secret: what that is worth. None in a fixed order, where the multiplier is that of one
    /// Gaussian release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amplification: Option<Amplification>,
    /// By how much more than the clip norm one example may move a sum because sums are rounded, relatively. 0 in
    /// plans of the first version, which did not allow for it.
    #[serde(default)]
    pub sum_rounding: f64,
    /// Standard deviation of the entries of `Z`, in the units of a sum of clipped gradients.
    pub noise_std: f64,
    /// The loss at multiplier 1 and clip norm 1, the paper's `E(B, C)` among it.
    pub loss: Loss,
    /// Root mean square, over steps, of the noise on one coordinate of the iterates: for learning
    /// rate 1 if the rate is constant, else for the schedule.
    pub iterate_noise_std: f64,
    /// Standard deviation of the noise on one coordinate of the final iterate, in the same units.
    pub final_iterate_noise_std: f64,
    /// Memory for past rows of noise: four bytes per row and parameter.
    pub history_bytes: u64,
}

impl PlanRecord {
    /// Rows of single-precision floats that the noise keeps from step to step.
    pub fn history_rows(&self) -> u64 {
        self.history_bytes / (4 * self.request.dim as u64).max(1)
    }

    /// The noise `Z` over what one example moves the sum of a step: the multiplier of DP-SGD.
    pub fn step_multiplier(&self) -> f64 {
        self.noise_std / (self.request.clip_norm * (1.0 + self.sum_rounding))
    }

    /// What a run of this plan releases of an example. On cyclic Poisson batches that is a release in every round, as of the
    /// longest column of the strategy, which bounds the others. With slots, and in records that do not state that column, it is
    /// what is released to whoever knows in which batches the example would be, which is more: they are drawn without looking
    /// at the data, given them the run is one Gaussian release of sensitivity `|C u|` for their pattern `u`, at most
    /// `sens_{k,b}(C)`, and divergences are convex.
    pub fn release(&self) -> Option<Release> {
        let request = &self.request;
        let column = self.amplification.and_then(|found| found.largest_column);
        // Fresh noise in every step: every column of the strategy has norm 1.
        let (rounds, column) = match (request.sampling, column) {
            (Sampling::Poisson, _) => (request.steps, 1.0),
            (Sampling::CyclicPoisson, Some(column)) => {
                (self.participation.max_participations(), column)
            }
            (Sampling::FixedOrder | Sampling::BallsInBins | Sampling::CyclicPoisson, _) => {
                return Some(Release::Gaussian { multiplier: self.noise_multiplier });
            }
        };
        Some(Release::Poisson {
            probability: request.probability()?,
            rounds: rounds as u64,
            multiplier: self.step_multiplier() / column,
        })
    }
}
