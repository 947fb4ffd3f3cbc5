//! Buffered linear Toeplitz strategies (BLT): a handful of decaying sums in place of many rows of noise.
//!
//! `C = LDToep(1, c_1, c_2, ...)` with `c_i = sum_j omega_j theta_j^(i-1)` (Dvijotham et al.
//! 2024, arXiv:2404.16706; under repeated participation McMahan, Xu & Zhang 2024, arXiv:2408.08868). The square root of
//! the workload is itself a mixture of exponentials, and few of them are close to it over any length.
//!
//! The parameters are fitted to the expected error under the participation at hand. `omega` and `theta` are
//! kept positive by their logarithm and logit, so `C` falls from its second coefficient on and its
//! sensitivity is exact, wherever the search ends. Buffers are added one by one, each from the best places
//! of a grid, until one more does not help: under repeated participation two are often all that positive
//! weights can use.

mod objective;
mod tangent;

pub use objective::MOST_BUFFERS;

use super::quasi_newton::{Limits, Point, minimize};
use crate::error::{Error, Result};
use crate::participation::Participation;
use crate::strategy::{Buffer, Strategy};
use crate::workload::Sgd;
use objective::{buffers, log_error, parameters};

/// Places of the grid for the rate `1 - theta` of a new buffer, and for its weight.
const RATES: usize = 14;
const WEIGHTS: usize = 8;
/// Places of the grid from which a search starts.
const STARTS: usize = 3;
/// A further buffer must lower the error at least by this, relatively, to be worth its memory.
const WORTH: f64 = 1e-4;

/// The strategy with at most `count` buffers that has the smallest expected error the search finds: a few hundred
/// evaluations of O(m^3 log n + k m^2), whatever `n`; then O(n m) for the coefficients.
///
/// # Errors
/// [`Error::Buffers`] unless `1 <= count <= MOST_BUFFERS`.
pub fn fit(sgd: &Sgd, participation: &Participation, count: usize) -> Result<Strategy> {
    if count == 0 || count > MOST_BUFFERS {
        return Err(Error::Buffers { buffers: count, most: MOST_BUFFERS });
    }
    let mut found = with_another(sgd, participation, &[]);
    for _ in 1..count {
        let more = with_another(sgd, participation, &found.x);
        if more.value > found.value - WORTH {
            break;
        }
        found = more;
    }
    let mut fitted: Vec<Buffer> = buffers(&found.x);
    fitted.sort_by(|x, y| y.decay.total_cmp(&x.decay));
    Strategy::buffered(participation.steps(), fitted)
}

/// `E(B, C)` for one buffer with `theta = 1 - rate`. O(log n + k).
pub(super) fn error_of_one(
    sgd: &Sgd,
    participation: &Participation,
    rate: f64,
    weight: f64,
) -> f64 {
    // Without a logit or a logarithm it is the identity.
    if rate >= 1.0 || weight <= 0.0 {
        return log_error(sgd, participation, &[]).0.exp();
    }
    log_error(sgd, participation, &parameters(rate, weight)).0.exp()
}

/// The parameters with one buffer more.
fn with_another(sgd: &Sgd, participation: &Participation, x: &[f64]) -> Point {
    let value = |x: &[f64]| log_error(sgd, participation, x);
    let slowest = (2.0 * participation.steps() as f64).ln();
    let mut starts: Vec<Point> = Vec::new();
    for i in 0..RATES {
        let rate = 0.9 * (-slowest * i as f64 / (RATES - 1) as f64).exp();
        for j in 0..WEIGHTS {
            // A buffer of rate r and weight w adds w / r in all; the root of the workload spends about
            // sqrt(r) on each scale.
            let weight = 2.0 * rate.sqrt() * 0.3_f64.powi(j as i32);
            let start = [x, &parameters(rate, weight)].concat();
            let (value, gradient) = value(&start);
            starts.push(Point { x: start, value, gradient });
        }
    }
    starts.sort_by(|a, b| a.value.total_cmp(&b.value));
    let limits = Limits { iterations: 300, decrease: 1e-10 };
    let found = starts.into_iter().take(STARTS).map(|start| minimize(start.x, limits, value));
    found.min_by(|a, b| a.value.total_cmp(&b.value)).unwrap_or(Point {
        x: Vec::new(),
        value: f64::INFINITY,
        gradient: Vec::new(),
    })
}
