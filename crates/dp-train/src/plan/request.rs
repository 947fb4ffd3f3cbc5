//! The request: what a plan is to be made for, as it stands in a config.

use mf_core::{Method, Participation, Sgd, Workload};
use serde::{Deserialize, Serialize};

use super::PlanError;
use crate::calibration::{self, Neighbouring};
use crate::gradient::CLIP_NORMS;

/// Which workload the strategy is made for when the learning rate changes during training.
///
/// Privacy does not depend on it; the loss in the plan is that of the true schedule either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StrategyFor {
    /// SGD with a constant rate: the strategy has a closed form.
    #[default]
    ConstantRate,
    /// SGD with the schedule: a numeric root, O(n p^2).
    Schedule,
}

/// What is asked for, before anything is computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// `alpha` and `beta` of the optimizer.
    pub sgd: Sgd,
    /// The learning rate of every step; none means a constant one, which is taken out as a factor.
    pub learning_rates: Option<Vec<f64>>,
    /// Which workload the strategy is made for.
    #[serde(default)]
    pub strategy_for: StrategyFor,
    /// How the strategy is chosen, with its number of bands.
    pub method: Method,
    /// `n`, the number of steps.
    pub steps: usize,
    /// `b`, the least distance between two uses of one example.
    pub min_separation: usize,
    /// `k`, the most uses of one example. May be left out only if `n` is a multiple of `b`.
    pub max_participations: Option<usize>,
    /// `zeta`, the bound on the norm of one example's gradient.
    pub clip_norm: f64,
    /// `m`, the expected batch size: the public number by which sums are divided.
    pub batch_size: usize,
    /// `epsilon` to reach with all `n` steps.
    pub epsilon: f64,
    /// `delta` to reach with all `n` steps.
    pub delta: f64,
    /// Which data sets are neighbours.
    #[serde(default)]
    pub neighbouring: Neighbouring,
    /// `d`, the number of parameters.
    pub dim: usize,
    /// Rows of `Z` that the noise keeps in memory where it could draw them again; all if left out.
    /// Neither privacy nor the noise itself depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_rows: Option<usize>,
}

impl PlanRequest {
    /// `n`, `b` and `k`, where `k = n / b` may be left out.
    ///
    /// # Errors
    /// [`PlanError::UnevenSteps`] if `k` is left out and `n` is not a multiple of `b`: rounding up
    /// would count a participation that a fixed number of epochs does not have, rounding down one
    /// too few.
    pub fn participation(&self) -> Result<Participation, PlanError> {
        let (n, b) = (self.steps, self.min_separation);
        let k = match self.max_participations {
            Some(k) => k,
            None if b > 0 && n.is_multiple_of(b) => n / b,
            None => {
                return Err(PlanError::UnevenSteps { steps: n, separation: b });
            }
        };
        Ok(Participation::new(n, b, k)?)
    }

    /// `A`, with the schedule if there is one.
    ///
    /// # Errors
    /// [`PlanError::Rates`] unless there is one rate per step, or what `mf_core` says of them.
    pub fn workload(&self) -> Result<Workload, PlanError> {
        match &self.learning_rates {
            Some(rates) if rates.len() != self.steps => {
                Err(PlanError::Rates { expected: self.steps, found: rates.len() })
            }
            Some(rates) => Ok(Workload::scheduled(self.sgd, rates.clone())?),
            None => Ok(Workload::sgd(self.sgd, self.steps)?),
        }
    }

    /// The workload that the strategy is made for.
    ///
    /// # Errors
    /// As [`workload`](Self::workload).
    pub fn factorized_workload(&self) -> Result<Workload, PlanError> {
        match self.strategy_for {
            StrategyFor::ConstantRate => Ok(Workload::sgd(self.sgd, self.steps)?),
            StrategyFor::Schedule => self.workload(),
        }
    }

    /// Everything that can be refused before the factorization, which may take long.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        self.participation()?;
        self.workload()?;
        calibration::multiplier(self.epsilon, self.delta)?;
        if !CLIP_NORMS.contains(&self.clip_norm) {
            return Err(PlanError::ClipNorm { clip_norm: self.clip_norm });
        }
        if self.batch_size == 0 || self.dim == 0 {
            return Err(PlanError::Empty);
        }
        Ok(())
    }
}
