//! Sampling: how the batches of a run are made, which decides what the noise has to hide.

use std::fmt;

use mf_core::{Participation, Strategy};
use serde::{Deserialize, Serialize};

use super::{PlanError, PlanRequest};
use crate::accounting::cyclic::CyclicPoisson;
use crate::accounting::deterministic::{self, DeterministicNoise};
use crate::accounting::gram::Gram;
use crate::accounting::verified::{self, USUAL_SAMPLES};
use crate::accounting::{AccountingError, Directions};
use crate::calibration;
use crate::fingerprint::Fingerprint;

/// How the batches of a run are made. The accountant of a plan is that of its sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "config", derive(clap::ValueEnum, schemars::JsonSchema))]
#[cfg_attr(feature = "config", schemars(rename_all = "kebab-case"))]
pub enum Sampling {
    /// One order of the examples, which may be known, cut into batches of one size. The noise alone hides an example.
    #[default]
    #[serde(alias = "fixed-order")]
    FixedOrder,
    /// Every example is in a batch of its own drawing, which is as secret as the noise: where it is hides it further, so
    /// less noise will do. Batches differ in size, and nothing that tells it may be published.
    #[serde(alias = "balls-in-bins")]
    BallsInBins,
    /// Every step takes each example with the same probability, in secret: DP-SGD as it is usually accounted for. For the
    /// identity, whose noise is fresh in every step.
    Poisson,
    /// The same from one of as many groups in turn as the strategy has diagonals, so that its columns at the uses of an
    /// example do not meet.
    #[serde(alias = "cyclic-poisson")]
    CyclicPoisson,
}

impl Sampling {
    /// Whether it is the one of plans from before there was another.
    pub(crate) fn is_fixed_order(&self) -> bool {
        *self == Self::FixedOrder
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FixedOrder => "fixed order",
            Self::BallsInBins => "balls in bins",
            Self::Poisson => "Poisson batches",
            Self::CyclicPoisson => "cyclic Poisson batches",
        })
    }
}

/// How the noise for secret batches is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "config", derive(clap::ValueEnum, schemars::JsonSchema))]
#[cfg_attr(feature = "config", schemars(rename_all = "kebab-case"))]
pub enum Accountant {
    /// By a bound that needs no coins: a second, and the same digits everywhere.
    #[default]
    Deterministic,
    /// By sampling, with less noise: some ten seconds. That the samples deceive has a probability below 1e-4 delta, which
    /// is part of delta.
    Verified,
}

impl Accountant {
    /// Whether it is the one of a fixed order, which has no choice.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

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
        };
        Ok((noise_std / sensitivity, amplification))
    }

    /// The noise of a strategy in slots, over its sensitivity. About a second for 100 slots, or ten if it is to be
    /// verified by sampling.
    ///
    /// # Errors
    /// [`AccountingError`] if it covers something else, or finds none.
    pub(super) fn of_slots(
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
            };
            (found.noise_std / sensitivity, amplification)
        };
        match request.accountant {
            Accountant::Deterministic => {
                Ok(certain(deterministic::noise_std(&gram, epsilon, delta)?))
            }
            Accountant::Verified => {
                let seed = *Fingerprint::of(strategy).bytes();
                let found = verified::noise_std(&gram, epsilon, delta, seed, USUAL_SAMPLES)?;
                let Some(bound) = found.bound else { return Ok(certain(found.deterministic)) };
                let amplification = Self {
                    unamplified_multiplier,
                    delta_remove: bound.remove.upper,
                    delta_add: bound.add.upper,
                    samples: bound.samples,
                    failure: found.failure,
                };
                Ok((found.noise_std / sensitivity, amplification))
            }
        }
    }
}
