//! Amplification: how much less noise secret batches need, by the accountant of their sampling.

use mf_core::{Participation, Strategy};
use serde::{Deserialize, Serialize};

use super::sampling::{Accountant, Sampling};
use super::{PlanError, PlanRequest};
use crate::accounting::cyclic::CyclicPoisson;
use crate::accounting::deterministic::{self, DeterministicNoise};
use crate::accounting::gram::Gram;
use crate::accounting::verified::{self, USUAL_SAMPLES};
use crate::accounting::{AccountingError, Directions};
use crate::calibration;
use crate::fingerprint::Fingerprint;

/// What the accountant of a sampling found: how far it hides an example beyond the noise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amplification {
    /// The noise multiplier that a fixed order would need.
    pub unamplified_multiplier: f64,
    /// Upper bound of `delta` where the release was made with the example and is explained without it.
    pub delta_remove: f64,
    /// The same the other way round.
    pub delta_add: f64,
    /// Samples behind these two; 0 if they need none.
    pub samples: u64,
    /// The probability that the samples deceive, which is part of `delta`.
    pub failure: f64,
    /// On cyclic Poisson batches `max_i |C e_i|`, rounded up: what one example moves a round by at clip norm 1. None in plans
    /// from before it was stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_column: Option<f64>,
}

/// What noise is verified for by sampling. Different uses have independent coins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CoinsFor {
    /// The plan itself.
    Plan,
    /// To choose among plans.
    Choice,
}

impl Amplification {
    /// The noise of a strategy on Poisson batches, over its sensitivity. Below a second.
    ///
    /// # Errors
    /// [`PlanError`] unless the strategy has as many diagonals as there are groups, or if there is no such noise.
    pub(super) fn of_poisson(
        request: &PlanRequest,
        strategy: &Strategy,
        sensitivity: f64,
    ) -> Result<(f64, Self), PlanError> {
        let PlanRequest { epsilon, delta, neighbouring, min_separation: groups, .. } = *request;
        let (bands, batch_size) = (strategy.bands(), request.batch_size as u64);
        if bands != groups {
            return Err(PlanError::Groups { bands, groups });
        }
        let examples = request.examples.ok_or(PlanError::Examples)?;
        let account = CyclicPoisson::new(neighbouring, strategy, batch_size, examples)?;
        let noise_std = account.noise_std(epsilon, delta)?;
        let Directions { remove, add } = account.delta(noise_std, epsilon)?;
        let amplification = Self {
            unamplified_multiplier: calibration::multiplier(epsilon, delta)?,
            delta_remove: remove,
            delta_add: add,
            samples: 0,
            failure: 0.0,
            largest_column: (request.sampling == Sampling::CyclicPoisson)
                .then(|| account.column_norm()),
        };
        Ok((noise_std / sensitivity, amplification))
    }

    /// The noise of a strategy in slots, over its sensitivity. About a second for 100 slots, or ten if it is to be
    /// verified by sampling.
    ///
    /// # Errors
    /// [`AccountingError`] if it covers something else, or finds none.
    pub(super) fn of_slots(
        coins: CoinsFor,
        request: &PlanRequest,
        participation: &Participation,
        strategy: &Strategy,
        sensitivity: f64,
    ) -> Result<(f64, Self), AccountingError> {
        let PlanRequest { epsilon, delta, neighbouring, .. } = *request;
        let gram = Gram::of(neighbouring, strategy, participation)?;
        let unamplified_multiplier = calibration::multiplier(epsilon, delta)?;
        let certain = |found: DeterministicNoise| {
            let Directions { remove, add } = found.bound.delta;
            let amplification = Self {
                unamplified_multiplier,
                delta_remove: remove,
                delta_add: add,
                samples: 0,
                failure: 0.0,
                largest_column: None,
            };
            (found.noise_std / sensitivity, amplification)
        };
        match request.accountant {
            Accountant::Deterministic => {
                Ok(certain(deterministic::noise_std(&gram, epsilon, delta)?))
            }
            Accountant::Verified => {
                let strategy = *Fingerprint::of(strategy).bytes();
                let seed = match coins {
                    CoinsFor::Plan => strategy,
                    CoinsFor::Choice => {
                        let named =
                            [b"bandroot/1/accounting/choice".as_slice(), &strategy].concat();
                        *Fingerprint::of_bytes(&named).bytes()
                    }
                };
                let found = verified::noise_std(&gram, epsilon, delta, seed, USUAL_SAMPLES)?;
                let Some(bound) = found.bound else { return Ok(certain(found.deterministic)) };
                let amplification = Self {
                    unamplified_multiplier,
                    delta_remove: bound.remove.upper,
                    delta_add: bound.add.upper,
                    samples: bound.samples,
                    failure: found.failure,
                    largest_column: None,
                };
                Ok((found.noise_std / sensitivity, amplification))
            }
        }
    }
}
