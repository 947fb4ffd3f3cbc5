//! DP-lambda-CGD: `C^-1 = I - lambda * shift`, whose noise takes back a share of the row before
//! (Kalinin, McKenna, Pagh & Lampert 2026, arXiv:2601.22334).

use rayon::prelude::*;

use super::blt;
use crate::error::Result;
use crate::loss;
use crate::participation::Participation;
use crate::sensitivity;
use crate::strategy::Strategy;
use crate::workload::Workload;

/// Points of the grid, of which the best is refined.
const GRID: usize = 48;
/// Halvings of the bracket, by the golden section.
const REFINEMENTS: usize = 48;

/// `C = LDToep(1, lambda, lambda^2, ...)`, which falls, so that its sensitivity is exact.
///
/// # Errors
/// As [`Strategy::inverse_toeplitz`].
pub(super) fn strategy(steps: usize, lambda: f64) -> Result<Strategy> {
    let taps = if steps > 1 { vec![1.0, -lambda] } else { vec![1.0] };
    Strategy::inverse_toeplitz(steps, taps)
}

/// The `lambda` in `[0, 1)` with the smallest expected error: the best of a grid in `log(1 - lambda)` from 1
/// to `1 / (20 n)`, refined by the golden section between its neighbours. About 100 errors, of O(log n + k)
/// each because `C` is a [BLT](super::blt) with one buffer of weight and decay `lambda`, or of O(n^2) each
/// for a workload without that closed form.
///
/// # Errors
/// None in practice: the sizes agree.
pub fn best_lambda(workload: &Workload, participation: &Participation) -> Result<f64> {
    let n = workload.steps();
    let value = |x: f64| -> Result<f64> {
        if let Some(sgd) = workload.as_constant_sgd() {
            let lambda = -x.exp_m1();
            return Ok(blt::error_of_one(sgd, participation, x.exp(), lambda));
        }
        let strategy = strategy(n, -x.exp_m1())?;
        let sensitivity = sensitivity::of(&strategy, participation)?;
        Ok(loss::decoder_norms(workload, &strategy)?.loss(&sensitivity, n).expected_error)
    };
    let last = -(20.0 * n as f64).ln();
    let at = |i: usize| last * i as f64 / (GRID - 1) as f64;
    let values: Vec<f64> =
        (0..GRID).into_par_iter().map(|i| value(at(i))).collect::<Result<_>>()?;
    let best = (0..GRID).min_by(|&i, &j| values[i].total_cmp(&values[j])).unwrap_or(0);
    let (mut high, mut low) = (at(best.saturating_sub(1)), at((best + 1).min(GRID - 1)));
    let ratio = (5.0_f64.sqrt() - 1.0) / 2.0;
    let (mut left, mut right) = (high - ratio * (high - low), low + ratio * (high - low));
    let (mut at_left, mut at_right) = (value(left)?, value(right)?);
    for _ in 0..REFINEMENTS {
        if at_left <= at_right {
            (high, right, at_right) = (right, left, at_left);
            left = high - ratio * (high - low);
            at_left = value(left)?;
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = low + ratio * (high - low);
            at_right = value(right)?;
        }
        if (high - low).abs() < 1e-7 {
            break;
        }
    }
    let refined = 0.5 * (low + high);
    Ok(if value(refined)? <= values[best] { -refined.exp_m1() } else { -at(best).exp_m1() })
}
