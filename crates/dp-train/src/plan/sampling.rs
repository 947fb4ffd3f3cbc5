//! Sampling: how the batches of a run are made, which decides what the noise has to hide.

use std::fmt;

use mf_core::{Participation, Strategy};
use serde::{Deserialize, Serialize};

use super::PlanRequest;
use crate::accounting::AccountingError;
use crate::accounting::deterministic::{self, DeterministicBound};
use crate::accounting::gram::Gram;
use crate::calibration;

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
        })
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
    /// Classes of slots that the bound looks at one by one ([`deterministic`]).
    pub classes: usize,
    /// Slots of a class.
    pub slots_per_class: usize,
}

impl Amplification {
    /// The noise of a strategy in slots, over its sensitivity, by the bound without sampling. About a second for 100
    /// slots.
    ///
    /// # Errors
    /// [`AccountingError`] if it covers something else, or finds none.
    pub(super) fn of(
        request: &PlanRequest,
        participation: &Participation,
        strategy: &Strategy,
        sensitivity: f64,
    ) -> Result<(f64, Self), AccountingError> {
        let PlanRequest { epsilon, delta, neighbouring, .. } = *request;
        let gram = Gram::of(neighbouring, strategy, participation)?;
        let found = deterministic::noise_std(&gram, epsilon, delta)?;
        let DeterministicBound { delta, classes, slots_per_class } = found.bound;
        let amplification = Self {
            unamplified_multiplier: calibration::multiplier(epsilon, request.delta)?,
            delta_remove: delta.remove,
            delta_add: delta.add,
            classes,
            slots_per_class,
        };
        Ok((found.noise_std / sensitivity, amplification))
    }
}
