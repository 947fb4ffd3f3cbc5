//! Optimized banded Toeplitz strategies: the best `p` coefficients of `C`.

use super::quasi_newton::{Limits, minimize};
use crate::error::Result;
use crate::participation::Participation;
use crate::sensitivity;
use crate::series;
use crate::strategy::Strategy;

/// When a search ends: the logarithm of the error is then right to about this.
pub(super) const LIMITS: Limits = Limits { iterations: 400, decrease: 1e-9 };

/// Up to this many coefficients sums of products are taken directly.
const DIRECT: usize = 64;

/// The banded Toeplitz strategy with the smallest expected error for `A = LDToep(a)` that a search from the
/// first `p` coefficients of its root, the BSR, finds: a few
/// hundred evaluations of `ln E` with its exact gradient, O(n p) each (O(n log n) for many bands).
///
/// With `p <= b` any coefficients have an exact sensitivity, and all are allowed. With more bands the
/// sensitivity of the leftmost pattern is that of the matrix only if the coefficients rise and then fall:
/// if the best ones do not, the search is repeated among those that fall, `c_j = sum_{t>=j} exp(x_t)`, and
/// its result is taken only if it is better than the best `b` coefficients.
///
/// # Errors
/// As [`Strategy::toeplitz`].
pub(super) fn optimize(a: &[f64], root: &[f64], participation: &Participation) -> Result<Strategy> {
    let (n, bands) = (participation.steps(), root.len());
    let start: Vec<f64> = root.iter().map(|c| c / root[0]).collect();
    if bands == 1 {
        return Strategy::toeplitz(n, start);
    }
    let value = |tail: &[f64]| {
        let c = [&[1.0], tail].concat();
        let (value, mut gradient) = log_error(a, &c, participation);
        gradient.remove(0);
        (value, gradient)
    };
    let c = [&[1.0], &minimize(start[1..].to_vec(), LIMITS, value).x[..]].concat();
    let disjoint =
        bands <= participation.min_separation() || participation.max_participations() == 1;
    if disjoint || sensitivity::is_unimodal(&c) {
        return Strategy::toeplitz(n, c);
    }
    let falling = |x: &[f64]| {
        let (value, gradient) = log_error(a, &from_steps(x), participation);
        // d c_j / d x_t = exp(x_t) for j <= t.
        let sums = gradient.iter().scan(0.0, |sum, g| {
            *sum += g;
            Some(*sum)
        });
        (value, sums.zip(x).map(|(sum, x)| sum * x.exp()).collect())
    };
    // Equal steps of the BSR would have no logarithm.
    let least = 1e-12;
    let down = |j: usize| (start[j] - start.get(j + 1).copied().unwrap_or(0.0)).max(least).ln();
    let found = minimize((0..bands).map(down).collect(), LIMITS, falling);
    let narrow = optimize(a, &root[..participation.min_separation()], participation)?;
    match narrow.as_toeplitz() {
        Some(c) if log_error(a, c, participation).0 <= found.value => Ok(narrow),
        _ => {
            let c = from_steps(&found.x);
            Strategy::toeplitz(n, c.iter().map(|x| x / c[0]).collect())
        }
    }
}

/// `c_j = sum_{t>=j} exp(x_t)`: positive and falling, also after rounding.
fn from_steps(x: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let mut c: Vec<f64> = x
        .iter()
        .rev()
        .map(|x| {
            sum += x.exp();
            sum
        })
        .collect();
    c.reverse();
    c
}

/// `ln E` of `C = LDToep(c)` for `A = LDToep(a)` if participating at `0, b, 2b, ...` is worst, up to a
/// constant, and its gradient by `c`.
fn log_error(a: &[f64], c: &[f64], participation: &Participation) -> (f64, Vec<f64>) {
    let n = a.len();
    let (sensitivity, mut gradient) = leftmost_squared(c, participation);
    let b = series::divide(a, c, n);
    let decoder: f64 = b.iter().enumerate().map(|(i, b)| (n - i) as f64 * b * b).sum();
    // A change of c_l changes b by -(b / c), moved down by l.
    let moved = series::divide(&b, c, n);
    let weighted: Vec<f64> = b.iter().enumerate().map(|(i, b)| (n - i) as f64 * b).collect();
    let correlation = correlate(&weighted, &moved, c.len());
    for (g, product) in gradient.iter_mut().zip(correlation) {
        *g = 0.5 * *g / sensitivity - product / decoder;
    }
    let value = 0.5 * (sensitivity.ln() + decoder.ln());
    let defined = c[0] > 0.0 && value.is_finite() && gradient.iter().all(|g| g.is_finite());
    (if defined { value } else { f64::INFINITY }, gradient)
}

/// `|| sum_{j<k} C_{:,jb} ||^2` and its gradient by the coefficients. O(p k).
fn leftmost_squared(c: &[f64], participation: &Participation) -> (f64, Vec<f64>) {
    let (n, b) = (participation.steps(), participation.min_separation());
    let mut sum = vec![0.0; n];
    let uses = || (0..participation.max_participations()).map(|j| j * b);
    for first in uses() {
        sum[first..].iter_mut().zip(c).for_each(|(sum, c)| *sum += c);
    }
    let mut gradient = vec![0.0; c.len()];
    for first in uses() {
        gradient.iter_mut().zip(&sum[first..]).for_each(|(g, sum)| *g += 2.0 * sum);
    }
    (sum.iter().map(|x| x * x).sum(), gradient)
}

/// `sum_i x_i y_{i-l}` for `l < len`. O(n len), or O(n log n) for many.
pub(super) fn correlate(x: &[f64], y: &[f64], len: usize) -> Vec<f64> {
    let n = x.len();
    if len <= DIRECT {
        return (0..len).map(|l| x[l..].iter().zip(y).map(|(x, y)| x * y).sum()).collect();
    }
    let reversed: Vec<f64> = x.iter().rev().copied().collect();
    let product = series::multiply(&reversed, y, n);
    (0..len).map(|l| product[n - 1 - l]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Sgd;

    #[test]
    fn gradients_are_those_of_differences() {
        let sgd = Sgd::new(0.99, 0.5).unwrap();
        for (n, b, k, p) in [(50, 10, 5, 4), (50, 4, 10, 9), (300, 20, 15, 80), (9, 9, 1, 9)] {
            let participation = Participation::new(n, b, k).unwrap();
            let a = sgd.coefficients(n);
            let c: Vec<f64> = (0..p).map(|j| 1.0 / (1.0 + j as f64).powf(0.7)).collect();
            let (_, gradient) = log_error(&a, &c, &participation);
            for l in 0..p {
                let at = |h: f64| {
                    let mut moved = c.clone();
                    moved[l] += h;
                    log_error(&a, &moved, &participation).0
                };
                let numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
                assert!(
                    (gradient[l] - numeric).abs() < 1e-7,
                    "{n} {p} {l}: {} {numeric}",
                    gradient[l]
                );
            }
        }
    }
}
