//! What a run of a plan releases, for who composes it with others.

use super::{PlanRecord, Sampling};
use crate::accounting::tuning::Release;

impl PlanRecord {
    /// What a run of this plan releases of an example. With slots that is what it releases to whoever knows them, which is
    /// more; none on cyclic Poisson batches, whose strategy is not in the record.
    pub fn release(&self) -> Option<Release> {
        let request = &self.request;
        match request.sampling {
            Sampling::FixedOrder | Sampling::BallsInBins => {
                Some(Release::Gaussian { multiplier: self.noise_multiplier })
            }
            Sampling::Poisson => Some(Release::Poisson {
                probability: request.probability()?,
                rounds: request.steps as u64,
                // Fresh noise in every step: every column of the strategy has norm 1.
                multiplier: self.noise_std / (request.clip_norm * (1.0 + self.sum_rounding)),
            }),
            Sampling::CyclicPoisson => None,
        }
    }
}
