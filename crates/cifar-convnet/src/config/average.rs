//! `[training.average]`: which average of the iterates is the result of a run.

use dp_train::training::average;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::ConfigError;

/// An average of the iterates: `{ kind = "ema", decay = 0.99 }` or `{ kind = "tail", from = 0.75 }`. Its formulas are
/// those of [`dp_train::training::average`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Average {
    /// Which average.
    pub kind: AverageKind,
    /// For ema: every iterate weighs this times as much as the one after it, in [0, 1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decay: Option<f64>,
    /// For tail: share of the steps that are left out at the beginning, in [0, 1); 0.75 is the mean of the iterates of
    /// the last quarter. Before that the last iterate stands for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<f64>,
}

/// Which average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AverageKind {
    /// Exponential, of all iterates.
    Ema,
    /// The plain mean of the last iterates.
    Tail,
}

impl Average {
    /// What a training is asked to keep.
    ///
    /// # Errors
    /// The key that is missing, of no use or not in [0, 1).
    pub fn rule(&self) -> Result<average::Average, ConfigError> {
        let (kind, needed, unused) = match self.kind {
            AverageKind::Ema => ("ema", ("decay", self.decay), ("from", self.from)),
            AverageKind::Tail => ("tail", ("from", self.from), ("decay", self.decay)),
        };
        if unused.1.is_some() {
            return Err(ConfigError::UnusedAverage { key: unused.0, kind });
        }
        let (key, number) = needed;
        let number = number.ok_or(ConfigError::MissingAverage { key, kind })?;
        let rule = match self.kind {
            AverageKind::Ema => average::Average::Ema { decay: number },
            AverageKind::Tail => average::Average::Tail { from: number },
        };
        rule.check().map_err(|_| ConfigError::Average { key, number })?;
        Ok(rule)
    }
}
