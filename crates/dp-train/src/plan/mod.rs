//! The plan: everything that privacy depends on, settled before any data is read.

use std::ops::RangeInclusive;

use mf_core::loss;
use mf_core::sensitivity::{self, Sensitivity};
use mf_core::{Factorization, Method, Participation, Strategy};
use serde::{Deserialize, Serialize};

use crate::calibration;
use crate::fingerprint::Fingerprint;
use crate::gradient::SUM_ROUNDING;
use crate::noise::{self, NoiseError};

mod error;
mod request;
mod sampling;
mod amplification;
mod record;
mod growth;
mod display;

pub use amplification::Amplification;
use amplification::CoinsFor;
pub use error::PlanError;
pub use record::PlanRecord;
pub use request::{Budget, Clipping, PlanRequest, StrategyFor};
pub use sampling::{Accountant, Sampling};

/// A computed plan: batches, clipping, noise and `(epsilon, delta)` agree in it.
///
/// There is no way to change one number of it. Reading one from a file computes it again and
/// refuses the file if anything differs.
///
/// # Guarantees
/// * The whole training of `n` steps is `(epsilon, delta)`-private for data sets that differ as
///   `neighbouring` says, if each example takes part at most `k` times, `b` steps apart; where batches
///   are sampled, if moreover they are drawn as the sampling says and nobody knows them.
/// * `noise_std = noise_multiplier x sens(C) x clip_norm x` (2 for replace-one, else 1) `x (1 + sum_rounding)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PlanRecord", into = "PlanRecord")]
pub struct DpPlan {
    record: PlanRecord,
    strategy: Strategy,
}

impl DpPlan {
    /// Computes the plan: the cost is that of the factorization and of its loss.
    ///
    /// # Errors
    /// [`PlanError`] says which number of the request has no plan.
    pub fn new(request: PlanRequest) -> Result<Self, PlanError> {
        request.check()?;
        let factorization = Factorization::for_participation(
            request.factorized_workload()?,
            request.method,
            &request.participation()?,
        )?;
        Self::from_factorization(request, &factorization)
    }

    /// The numbers of the plan by other coins, where its noise is verified by sampling: what to choose by among several plans. The coins
    /// of the one that is chosen then had no part in the choice, so its failure probability is that of one plan.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn rehearsed(request: PlanRequest) -> Result<PlanRecord, PlanError> {
        request.check()?;
        let participation = request.participation()?;
        let workload = request.factorized_workload()?;
        let factorization =
            Factorization::for_participation(workload, request.method, &participation)?;
        let plan = Self::by_coins(CoinsFor::Choice, request, factorization.strategy().clone())?;
        Ok(plan.record)
    }

    /// The plan with a factorization that was computed before, say one that takes long.
    ///
    /// # Errors
    /// [`PlanError::OtherFactorization`] if it is not the one that the request describes, else as
    /// [`new`](Self::new).
    pub fn from_factorization(
        request: PlanRequest,
        factorization: &Factorization,
    ) -> Result<Self, PlanError> {
        request.check()?;
        if factorization.method() != request.method
            || *factorization.workload() != request.factorized_workload()?
        {
            return Err(PlanError::OtherFactorization);
        }
        let participation = request.participation()?;
        if factorization.fitted_to().is_some_and(|fitted| fitted != participation) {
            return Err(PlanError::OtherFactorization);
        }
        Self::of_strategy(request, factorization.strategy().clone())
    }

    /// The plan with a strategy of the caller's own, for a request with [`Method::Own`].
    ///
    /// Privacy depends on nothing but the sensitivity of the strategy, which is computed from its entries, exactly or
    /// as an upper bound, for any lower-triangular matrix with a positive diagonal; neither the workload nor how the
    /// strategy was found has a part in it. The plan, its file and its certificate carry the entries.
    ///
    /// ```
    /// use dp_train::{Budget, Clipping, DpPlan, PlanRequest};
    /// use mf_core::{Method, Participation, Sgd, Strategy};
    ///
    /// let request = PlanRequest::new(
    ///     Method::Own,
    ///     Sgd::new(1.0, 0.0)?,
    ///     Participation::epochs(5, 20)?,
    ///     Budget { epsilon: 2.0, delta: 1e-6 },
    ///     Clipping { batch_size: 100, clip_norm: 0.5 },
    ///     10,
    /// );
    /// let plan = DpPlan::with_strategy(request, Strategy::toeplitz(100, vec![1.0, 0.4, 0.2])?)?;
    /// assert!(plan.record().sensitivity.exact);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`PlanError::NotOwn`] for another method, [`PlanError::Factorization`] if the strategy has another number of
    /// steps than the request, [`PlanError::Growth`] if its inverse is unstable, else as [`new`](Self::new).
    pub fn with_strategy(request: PlanRequest, strategy: Strategy) -> Result<Self, PlanError> {
        request.check()?;
        if request.method != Method::Own {
            return Err(PlanError::NotOwn { method: request.method.name() });
        }
        Self::of_strategy(request, strategy)
    }

    /// The numbers of a plan with this strategy, wherever it came from: what is private does not depend on that.
    pub(crate) fn of_strategy(request: PlanRequest, strategy: Strategy) -> Result<Self, PlanError> {
        Self::by_coins(CoinsFor::Plan, request, strategy)
    }

    fn by_coins(
        coins: CoinsFor,
        request: PlanRequest,
        strategy: Strategy,
    ) -> Result<Self, PlanError> {
        let participation = request.participation()?;
        let most = noise::most_kept_rows(&strategy);
        if let Some(rows) = request.keep_rows
            && most.is_none_or(|most| rows > most)
        {
            return Err(PlanError::Noise(NoiseError::KeptRows { rows, most }));
        }
        let sensitivity = sensitivity::of(&strategy, &participation)?;
        if !SENSITIVITIES.contains(&sensitivity.value) {
            return Err(PlanError::Sensitivity { sensitivity: sensitivity.value });
        }
        let (noise_multiplier, amplification) = match request.sampling {
            Sampling::FixedOrder => {
                (calibration::multiplier(request.epsilon, request.delta)?, None)
            }
            Sampling::BallsInBins => {
                let value = sensitivity.value;
                let (multiplier, found) =
                    Amplification::of_slots(coins, &request, &participation, &strategy, value)?;
                (multiplier, Some(found))
            }
            Sampling::Poisson | Sampling::CyclicPoisson => {
                let (multiplier, found) =
                    Amplification::of_poisson(&request, &strategy, sensitivity.value)?;
                (multiplier, Some(found))
            }
        };
        if !growth::has_known_noise(&request) {
            growth::check_noise(&request, &strategy)?;
        }
        let decoder = loss::decoder_norms(&request.workload()?, &strategy)?;
        let loss = decoder.loss(&sensitivity, request.steps);
        if ![loss.expected_error, loss.max_error, loss.final_error].iter().all(|x| x.is_finite()) {
            return Err(PlanError::Loss);
        }
        let noise_std = noise_std(&request, noise_multiplier, &sensitivity);
        let per_example = noise_std / request.batch_size as f64;
        let record = PlanRecord {
            participation,
            bands: strategy.bands(),
            strategy_sha256: Fingerprint::of(&strategy),
            strategy: (request.method == Method::Own).then(|| strategy.record()),
            sensitivity,
            noise_multiplier,
            amplification,
            sum_rounding: SUM_ROUNDING,
            noise_std,
            loss,
            iterate_noise_std: per_example
                * (decoder.frobenius_squared / request.steps as f64).sqrt(),
            final_iterate_noise_std: per_example * decoder.last_row_squared.sqrt(),
            history_bytes: noise::history_bytes(&strategy, request.keep_rows, request.dim),
            request,
        };
        Ok(Self { record, strategy })
    }

    /// The same plan for another number of parameters, on which only the memory depends.
    pub(crate) fn with_dim(&self, dim: usize) -> Self {
        let mut plan = self.clone();
        plan.record.request.dim = dim;
        let keep_rows = plan.record.request.keep_rows;
        plan.record.history_bytes = noise::history_bytes(&plan.strategy, keep_rows, dim);
        plan
    }

    /// All numbers of the plan.
    pub fn record(&self) -> &PlanRecord {
        &self.record
    }

    /// What was asked for.
    pub fn request(&self) -> &PlanRequest {
        &self.record.request
    }

    /// `C`.
    pub fn strategy(&self) -> &Strategy {
        &self.strategy
    }

    /// `n`, `b` and `k`.
    pub fn participation(&self) -> Participation {
        self.record.participation
    }

    /// Standard deviation of the entries of `Z`.
    pub fn noise_std(&self) -> f64 {
        self.record.noise_std
    }
}

/// Sensitivities that can be trusted: beyond them the squares of a strategy's entries lose digits or vanish in f64.
const SENSITIVITIES: RangeInclusive<f64> = 1e-100..=1e100;

/// The one place where the noise gets its size.
fn noise_std(request: &PlanRequest, multiplier: f64, sensitivity: &Sensitivity) -> f64 {
    let moved = request.clip_norm * (1.0 + SUM_ROUNDING);
    multiplier * sensitivity.value * moved * request.neighbouring.factor()
}

impl From<DpPlan> for PlanRecord {
    fn from(plan: DpPlan) -> Self {
        plan.record
    }
}

impl TryFrom<PlanRecord> for DpPlan {
    type Error = PlanError;

    fn try_from(record: PlanRecord) -> Result<Self, PlanError> {
        let request = record.request.clone();
        let plan = match &record.strategy {
            Some(strategy) => {
                Self::with_strategy(request, strategy.strategy(record.request.steps)?)?
            }
            None => Self::new(request)?,
        };
        if plan.record == record { Ok(plan) } else { Err(PlanError::Altered) }
    }
}
