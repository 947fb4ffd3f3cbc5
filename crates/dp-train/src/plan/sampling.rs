//! Sampling: how the batches of a run are made, which decides what the noise has to hide.

use std::fmt;

use serde::{Deserialize, Serialize};

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
