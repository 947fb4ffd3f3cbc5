//! The plan: everything that privacy depends on, settled before any data is read.

use std::fmt;
use std::ops::RangeInclusive;

use mf_core::loss::{self, Loss};
use mf_core::sensitivity::{self, Sensitivity};
use mf_core::{Factorization, Method, Noising, Participation, Strategy, StrategyRecord};
use serde::{Deserialize, Serialize};

use crate::calibration;
use crate::fingerprint::Fingerprint;
use crate::gradient::SUM_ROUNDING;
use crate::noise::{self, NoiseError};

mod error;
mod request;
mod sampling;
mod amplification;
mod release;

pub use amplification::Amplification;
pub use error::PlanError;
pub use request::{Budget, Clipping, PlanRequest, StrategyFor};
pub use sampling::{Accountant, Sampling};

/// The numbers of a plan, as they stand in files. Anyone can write such a record;
/// only a [`DpPlan`] was computed.
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
                    Amplification::of_slots(&request, &participation, &strategy, value)?;
                (multiplier, Some(found))
            }
            Sampling::Poisson | Sampling::CyclicPoisson => {
                let (multiplier, found) =
                    Amplification::of_poisson(&request, &strategy, sensitivity.value)?;
                (multiplier, Some(found))
            }
        };
        if !has_known_noise(&request) {
            check_noise(&request, &strategy)?;
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

/// Rows of noise are rounded to `2^-24` of themselves, so that `C` makes `Z` out of them only up to `2^-24` times the
/// growth of the strategy: with this limit `2^-10` of its standard deviation. Beyond it what hides the data would no
/// longer be the Gaussian that the plan is calibrated for. The 1 part in 10^6 that certificates state as their limit is
/// that of strategies whose growth is near 1, as the closed forms have it; up to this limit it is not proven.
const MOST_GROWTH: f64 = 16384.0;

/// Deviations of rows of noise, over that of `Z`. Sums are rounded to `2^-30` of the deviation of `Z`: with larger rows
/// that would be finer than the sums are in f64 and hide nothing, with smaller ones it would swallow the gradient.
const ROW_DEVIATIONS: RangeInclusive<f64> = 1.0 / 65536.0..=65536.0;

/// Whether the strategy is a closed form of SGD with a constant rate, whose noise needs no check: the coefficients of
/// the square root fall from 1, so that all zeros of its bands lie outside of the unit disc (Enestrom and Kakeya) and
/// its inverse decays; those of the others are banded themselves.
fn has_known_noise(request: &PlanRequest) -> bool {
    let closed = matches!(
        request.method,
        Method::Identity
            | Method::Input
            | Method::SquareRoot
            | Method::Bsr { .. }
            | Method::Bisr { .. }
            | Method::LambdaCgd { .. }
    );
    closed && is_constant(request)
}

/// Whether the strategy is made for SGD with a constant rate.
fn is_constant(request: &PlanRequest) -> bool {
    let constant = request.strategy_for == StrategyFor::ConstantRate;
    request.workload_column.is_none() && (constant || request.learning_rates.is_none())
}

/// That the noise of a strategy is the Gaussian that it should be, in the arithmetic that makes it.
///
/// A recurrence computes every row from the rounded rows before it, so `C` makes `Z` out of them but for an error of
/// `2^-24 C_ii ||(C^-1)_i||`. Where the strategy comes from the caller or a solver, or is made for a schedule or a
/// workload of the caller's, the errors of all rows that `C` adds up are bounded too
/// ([`noise_growth`](loss::noise_growth)).
fn check_noise(request: &PlanRequest, strategy: &Strategy) -> Result<(), PlanError> {
    let deviations = loss::noise_deviations(strategy)?;
    let diagonal = |i: usize| strategy.row(i).first().map_or(0.0, |c| c.abs());
    // Not a number is larger than any: it must not get lost in a maximum.
    let larger = |x: f64, y: f64| if y > x || y.is_nan() { y } else { x };
    let fed_back = deviations.iter().enumerate().map(|(i, deviation)| diagonal(i) * deviation);
    let growth = match strategy.noising() {
        Noising::Recurrence => fed_back.fold(0.0, larger),
        Noising::Taps(_) | Noising::Buffers(_) => 0.0,
    };
    // Ranges have no NaN in them.
    if !(0.0..=MOST_GROWTH).contains(&growth) {
        return Err(PlanError::Growth { growth });
    }
    let solved = matches!(request.method, Method::Own | Method::Aof { .. });
    if solved || !is_constant(request) {
        let growth = loss::noise_growth(strategy)?;
        if !(0.0..=MOST_GROWTH).contains(&growth) {
            return Err(PlanError::Growth { growth });
        }
    }
    match deviations.iter().find(|deviation| !ROW_DEVIATIONS.contains(*deviation)) {
        Some(&deviation) => Err(PlanError::Scale { deviation }),
        None => Ok(()),
    }
}

/// The one place where the noise gets its size.
fn noise_std(request: &PlanRequest, multiplier: f64, sensitivity: &Sensitivity) -> f64 {
    let moved = request.clip_norm * (1.0 + SUM_ROUNDING);
    multiplier * sensitivity.value * moved * request.neighbouring.factor()
}

impl PlanRecord {
    /// Rows of single-precision floats that the noise keeps from step to step.
    pub fn history_rows(&self) -> u64 {
        self.history_bytes / (4 * self.request.dim as u64).max(1)
    }
}

/// What is special about a strategy, in a few words.
fn shape(strategy: &Strategy) -> String {
    match strategy.noising() {
        Noising::Recurrence => format!("{} of {} bands", strategy.bands(), strategy.steps()),
        Noising::Taps([_, next]) => format!("inverse 1, {next:.6}"),
        Noising::Taps(taps) => format!("{} bands of the inverse", taps.len()),
        Noising::Buffers(buffers) => format!("{} buffers", buffers.len()),
    }
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

impl fmt::Display for DpPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plan, ask) = (&self.record, &self.record.request);
        let neighbours = ask.neighbouring;
        let kind = if plan.sensitivity.exact { "exact" } else { "upper bound" };
        let (n, b) = (plan.participation.steps(), plan.participation.min_separation());
        let k = plan.participation.max_participations();
        writeln!(
            f,
            "privacy            epsilon {}, delta {:e}; {neighbours}",
            ask.epsilon, ask.delta
        )?;
        writeln!(f, "steps              n = {n}, b = {b}, k = {k}")?;
        writeln!(f, "strategy           {}, {}", ask.method, shape(&self.strategy))?;
        writeln!(
            f,
            "sensitivity        {:.6} ({kind}, {:?})",
            plan.sensitivity.value, plan.sensitivity.method
        )?;
        writeln!(f, "noise multiplier   {:.6}", plan.noise_multiplier)?;
        if let Some(found) = &plan.amplification {
            writeln!(
                f,
                "sampling           {}: {:.6} in a fixed order; delta at most {:.3e} (remove), {:.3e} (add)",
                ask.sampling, found.unamplified_multiplier, found.delta_remove, found.delta_add
            )?;
        }
        writeln!(f, "clip norm          {}, batch size {}", ask.clip_norm, ask.batch_size)?;
        writeln!(f, "noise std          {:.6} per coordinate of Z", plan.noise_std)?;
        writeln!(
            f,
            "expected error     {:.6}, final {:.6}",
            plan.loss.expected_error, plan.loss.final_error
        )?;
        writeln!(
            f,
            "noise on iterates  {:.6}, final {:.6}",
            plan.iterate_noise_std, plan.final_iterate_noise_std
        )?;
        writeln!(
            f,
            "noise history      {} rows, {} bytes for {} parameters",
            plan.history_rows(),
            plan.history_bytes,
            ask.dim
        )?;
        write!(f, "strategy SHA-256   {}", plan.strategy_sha256)
    }
}
