//! How far rounding grows in the noise of a strategy.

use std::ops::RangeInclusive;

use mf_core::{Method, Noising, Strategy, loss};

use super::{PlanError, PlanRequest, StrategyFor};

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
pub(super) fn has_known_noise(request: &PlanRequest) -> bool {
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
pub(super) fn check_noise(request: &PlanRequest, strategy: &Strategy) -> Result<(), PlanError> {
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
