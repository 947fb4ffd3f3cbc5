//! The request: what a plan is to be made for, as it stands in a config.

use mf_core::{Method, Participation, Sgd, Workload};
use serde::{Deserialize, Serialize};

use super::sampling::{Accountant, Sampling};
use super::{DpPlan, PlanError};
use crate::accounting::gram;
use crate::accounting::poisson::Poisson;
use crate::calibration::{self, Neighbouring};
use crate::gradient::{CLIP_NORMS, MOST_EXAMPLES};

/// Which workload the strategy is made for when the learning rate changes during training.
///
/// Privacy does not depend on it; the loss in the plan is that of the true schedule either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "config", derive(clap::ValueEnum, schemars::JsonSchema))]
#[cfg_attr(feature = "config", schemars(rename_all = "kebab-case"))]
pub enum StrategyFor {
    /// SGD with a constant rate: the strategy has a closed form.
    #[default]
    #[serde(alias = "constant-rate")]
    ConstantRate,
    /// SGD with the schedule: a numeric root, O(n p^2).
    Schedule,
}

/// `(epsilon, delta)` to reach with all steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// `epsilon`.
    pub epsilon: f64,
    /// `delta`.
    pub delta: f64,
}

/// How the gradients of a step become one sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clipping {
    /// `m`, the expected batch size: the public number by which sums are divided.
    pub batch_size: usize,
    /// `zeta`, the bound on the norm of one example's gradient.
    pub clip_norm: f64,
}

/// What is asked for, before anything is computed.
///
/// ```
/// use dp_train::{Budget, Clipping, PlanRequest};
/// use mf_core::{Method, Participation, Sgd};
///
/// // 10 epochs of 100 batches of 500 examples, three parameters.
/// let plan = PlanRequest::new(
///     Method::Bsr { bands: 100 },
///     Sgd::new(0.999, 0.9)?,
///     Participation::epochs(10, 100)?,
///     Budget { epsilon: 4.0, delta: 1e-5 },
///     Clipping { batch_size: 500, clip_norm: 1.0 },
///     3,
/// )
/// .plan()?;
/// println!("{plan}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// `alpha` and `beta` of the optimizer.
    pub sgd: Sgd,
    /// The learning rate of every step; none means a constant one, which is taken out as a factor.
    pub learning_rates: Option<Vec<f64>>,
    /// The first column of a workload of one's own, in place of the optimizer's: what the strategy is made for and
    /// the loss is computed from, say an average of iterates. Neither privacy nor the updates of
    /// [`Training`](crate::training::Training) depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_column: Option<Vec<f64>>,
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
    /// How the batches are made.
    #[serde(default, skip_serializing_if = "Sampling::is_fixed_order")]
    pub sampling: Sampling,
    /// `N`, the number of examples, which is public. Needed for Poisson batches: an example is taken with probability
    /// `q = p m / N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<u64>,
    /// How the noise for secret batches is found.
    #[serde(default, skip_serializing_if = "Accountant::is_default")]
    pub accountant: Accountant,
    /// `d`, the number of parameters.
    pub dim: usize,
    /// Rows of `Z` that the noise keeps in memory where it could draw them again; all if left out.
    /// Neither privacy nor the noise itself depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_rows: Option<usize>,
}

impl PlanRequest {
    /// A request with a constant learning rate, zero-out neighbours, a fixed order and all rows of noise kept. What is not given
    /// here can be set by the methods below or by the fields.
    pub fn new(
        method: Method,
        sgd: Sgd,
        participation: Participation,
        budget: Budget,
        clipping: Clipping,
        dim: usize,
    ) -> Self {
        Self {
            sgd,
            learning_rates: None,
            workload_column: None,
            strategy_for: StrategyFor::default(),
            method,
            steps: participation.steps(),
            min_separation: participation.min_separation(),
            max_participations: Some(participation.max_participations()),
            clip_norm: clipping.clip_norm,
            batch_size: clipping.batch_size,
            epsilon: budget.epsilon,
            delta: budget.delta,
            neighbouring: Neighbouring::default(),
            sampling: Sampling::default(),
            examples: None,
            accountant: Accountant::default(),
            dim,
            keep_rows: None,
        }
    }

    /// The same request with one learning rate per step, and the workload that the strategy is made for.
    pub fn with_learning_rates(mut self, rates: Vec<f64>, strategy_for: StrategyFor) -> Self {
        self.learning_rates = Some(rates);
        self.strategy_for = strategy_for;
        self
    }

    /// The same request for a workload of one's own, by its first column.
    pub fn with_workload(mut self, column: Vec<f64>) -> Self {
        self.workload_column = Some(column);
        self
    }

    /// The same request for another method. Cyclic Poisson batches have as many groups as it has diagonals.
    pub fn with_method(mut self, method: Method) -> Self {
        self.method = method;
        if self.sampling == Sampling::CyclicPoisson {
            let groups = method.size().unwrap_or(1).max(1);
            self.min_separation = groups;
            self.max_participations = Some(self.steps.div_ceil(groups));
        }
        self
    }

    /// The same request for other neighbours.
    pub fn with_neighbouring(mut self, neighbouring: Neighbouring) -> Self {
        self.neighbouring = neighbouring;
        self
    }

    /// The same request for batches that are made otherwise.
    pub fn with_sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// The same request with the noise for secret batches found otherwise.
    pub fn with_accountant(mut self, accountant: Accountant) -> Self {
        self.accountant = accountant;
        self
    }

    /// The same request with only so many rows of `Z` kept in memory.
    pub fn with_kept_rows(mut self, rows: usize) -> Self {
        self.keep_rows = Some(rows);
        self
    }

    /// `q = p m / N` of Poisson batches; none if they are made otherwise.
    pub fn probability(&self) -> Option<f64> {
        let is_poisson = matches!(self.sampling, Sampling::Poisson | Sampling::CyclicPoisson);
        let examples = self.examples.filter(|_| is_poisson)?;
        Some(self.min_separation as f64 * self.batch_size as f64 / examples as f64)
    }

    /// Computes the plan; see [`DpPlan::new`].
    ///
    /// # Errors
    /// [`PlanError`] says which number of the request has no plan.
    pub fn plan(self) -> Result<DpPlan, PlanError> {
        DpPlan::new(self)
    }

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

    /// `A`: the caller's own, or SGD's with the schedule if there is one.
    ///
    /// # Errors
    /// [`PlanError::Rates`] unless there is one rate per step, [`PlanError::Column`] unless there is one coefficient
    /// per step, [`PlanError::TwoWorkloads`] if there are both, or what `mf_core` says of them.
    pub fn workload(&self) -> Result<Workload, PlanError> {
        if let Some(column) = &self.workload_column {
            if self.learning_rates.is_some() {
                return Err(PlanError::TwoWorkloads);
            }
            if column.len() != self.steps {
                return Err(PlanError::Column { expected: self.steps, found: column.len() });
            }
            return Ok(Workload::toeplitz(column.clone())?);
        }
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
            StrategyFor::ConstantRate if self.workload_column.is_none() => {
                Ok(Workload::sgd(self.sgd, self.steps)?)
            }
            _ => self.workload(),
        }
    }

    /// Everything that can be refused before the factorization, which may take long.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let (steps, dim) = (self.steps, self.dim);
        if steps > 1 << 30 || dim > 1 << 36 {
            return Err(PlanError::TooLarge { steps, dim });
        }
        self.participation()?;
        self.workload()?;
        calibration::multiplier(self.epsilon, self.delta)?;
        if !CLIP_NORMS.contains(&self.clip_norm) {
            return Err(PlanError::ClipNorm { clip_norm: self.clip_norm });
        }
        if self.batch_size == 0 || self.dim == 0 {
            return Err(PlanError::Empty);
        }
        if self.batch_size > MOST_EXAMPLES {
            return Err(PlanError::BatchSize { batch_size: self.batch_size });
        }
        if self.sampling != Sampling::BallsInBins && !self.accountant.is_default() {
            return Err(PlanError::NoChoice);
        }
        let is_poisson = matches!(self.sampling, Sampling::Poisson | Sampling::CyclicPoisson);
        if self.examples.is_some() && !is_poisson {
            return Err(PlanError::UnusedExamples);
        }
        match self.sampling {
            Sampling::FixedOrder => Ok(()),
            Sampling::BallsInBins => {
                Ok(gram::check_slots(self.neighbouring, &self.participation()?)?)
            }
            Sampling::Poisson | Sampling::CyclicPoisson => self.check_poisson(),
        }
    }

    fn check_poisson(&self) -> Result<(), PlanError> {
        if self.sampling == Sampling::Poisson && self.method != Method::Identity {
            return Err(PlanError::FreshNoise { method: self.method.name() });
        }
        let participation = self.participation()?;
        if !participation.is_unbounded() {
            let (n, p) = (participation.steps(), participation.min_separation());
            return Err(PlanError::Turns { most: n.div_ceil(p) });
        }
        let probability = self.probability().ok_or(PlanError::Examples)?;
        let rounds = participation.max_participations() as u64;
        Ok(Poisson::new(self.neighbouring, probability, rounds).map(drop)?)
    }
}
