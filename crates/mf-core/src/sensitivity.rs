//! Sensitivity: how far one example can move `C X`.
//!
//! An example that takes part in the steps `pi` with updates of norm at most 1 moves `C X` by at most
//! `sqrt(sum_{i,j in pi} |(C^T C)_ij|)`, and by exactly that much for some updates if no entry of
//! `C^T C` is negative. `sens_{k,b}(C)` is the maximum over all `b`-separated `pi` with at most `k`
//! steps. Four arguments are used here, each with its precondition checked on the numbers at hand:
//!
//! | method | precondition | result |
//! |---|---|---|
//! | [`DisjointColumns`](Method::DisjointColumns) | `p <= b`, or `k = 1` | exact |
//! | [`LeftmostPattern`](Method::LeftmostPattern) | Toeplitz, `c >= 0`, first rising then falling | exact |
//! | [`UnimodalMajorant`](Method::UnimodalMajorant) | Toeplitz | upper bound |
//! | [`PairwiseBound`](Method::PairwiseBound) | none | upper bound |
//!
//! # Why rising-then-falling is enough
//! Theorem 2 of Kalinin & Lampert (2024) shows for `c_0 >= c_1 >= ... >= 0` that participating at
//! `0, b, 2b, ...` is worst. Its proof moves the later part of a pattern one step to the left and
//! needs monotonicity only for one thing: that the inner product of two columns does not fall when
//! the right one moves closer. Columns `i < j` have the inner product
//! `R(g) = sum_t m_t m_{t+g}`, `g = j - i`, of the *cut* sequence `m = (c_0, ..., c_{n-1-i})`. If `c`
//! first rises and then falls, so does every cut of it, and its level sets `{t : m_t >= s}` are nested
//! intervals. `R(g)` is an integral over pairs of levels of `|I n (J - g)| + |I n (J + g)|` with
//! intervals `I` inside `J`, and each of the two terms falls with `g >= 0`. So `R` falls, and the
//! theorem holds for all such sequences. This covers `C = A` with momentum, where `a_j` rises first.
//!
//! All sums are of non-negative numbers: the relative rounding error is below `1e-15 sqrt(n)` or so,
//! which the calibration's rounding towards more privacy has to cover.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::banded::BandedLower;
use crate::error::{Error, Result};
use crate::participation::Participation;
use crate::strategy::Strategy;

/// The argument by which a sensitivity was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// Columns that can be used together do not overlap, so their squared norms add up: a dynamic
    /// program over `b`-separated sets.
    DisjointColumns,
    /// Participating at `0, b, 2b, ...` is worst (Theorem 2, extended as above).
    LeftmostPattern,
    /// The leftmost pattern for the smallest rising-then-falling sequence above `|c|`.
    UnimodalMajorant,
    /// Every participation is charged the largest possible sum of its inner products with others.
    PairwiseBound,
}

/// `sens_{k,b}(C)`, or a number above it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// The sensitivity for updates of norm at most 1.
    pub value: f64,
    /// Whether the value is attained; otherwise it is an upper bound.
    pub exact: bool,
    /// By which argument.
    pub method: Method,
}

impl Sensitivity {
    fn new(squared: f64, method: Method) -> Self {
        let exact = matches!(method, Method::DisjointColumns | Method::LeftmostPattern);
        Self { value: squared.sqrt(), exact, method }
    }
}

/// `sens_{k,b}(C)`, by the first of the four arguments whose precondition holds. O(n) for a Toeplitz
/// strategy; O(n p + n k) for a banded one with `p <= b`; O(n p^2) otherwise.
///
/// # Errors
/// [`Error::SizeMismatch`] if the participation is for another number of steps.
pub fn of(strategy: &Strategy, participation: &Participation) -> Result<Sensitivity> {
    let n = strategy.steps();
    if participation.steps() != n {
        return Err(Error::SizeMismatch {
            what: "steps of the participation pattern",
            expected: n,
            found: participation.steps(),
        });
    }
    let (b, k) = (participation.min_separation(), participation.max_participations());
    let disjoint = strategy.bands() <= b || k == 1;
    match strategy.as_toeplitz() {
        Some(c) if disjoint => {
            // A column further right is cut earlier, so the leftmost columns are the longest.
            let squared: f64 = (0..k).map(|j| sum_of_squares(&c[..c.len().min(n - j * b)])).sum();
            Ok(Sensitivity::new(squared, Method::DisjointColumns))
        }
        Some(c) if is_unimodal(c) => Ok(Sensitivity::new(
            leftmost_pattern_squared(c, participation),
            Method::LeftmostPattern,
        )),
        Some(c) => {
            let squared = leftmost_pattern_squared(&unimodal_majorant(c), participation);
            Ok(Sensitivity::new(squared, Method::UnimodalMajorant))
        }
        None => {
            let c = strategy.to_rows()?;
            if disjoint {
                let squared = heaviest_pattern(&c.column_norms_squared(), participation);
                Ok(Sensitivity::new(squared, Method::DisjointColumns))
            } else {
                let squared = heaviest_pattern(&pairwise_charges(&c, b, k), participation);
                Ok(Sensitivity::new(squared, Method::PairwiseBound))
            }
        }
    }
}

fn sum_of_squares(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum()
}

/// Whether no coefficient is negative and, once they fall, they never rise again.
pub(crate) fn is_unimodal(c: &[f64]) -> bool {
    let peak = c.windows(2).position(|w| w[1] < w[0]).unwrap_or(c.len() - 1);
    c.iter().all(|&x| x >= 0.0) && c[peak..].windows(2).all(|w| w[1] <= w[0])
}

/// The smallest sequence above `|c|` that rises to the largest `|c_j|` and falls from there.
fn unimodal_majorant(c: &[f64]) -> Vec<f64> {
    let mut m: Vec<f64> = c.iter().map(|x| x.abs()).collect();
    let peak = (0..m.len()).max_by(|&i, &j| m[i].total_cmp(&m[j])).unwrap_or(0);
    for i in 1..peak {
        m[i] = m[i].max(m[i - 1]);
    }
    for i in (peak + 1..m.len().saturating_sub(1)).rev() {
        m[i] = m[i].max(m[i + 1]);
    }
    m
}

/// `|| sum_{j<k} C_{:, jb} ||^2 = sum_{i<n} (sum_{j < k, jb <= i} c_{i - jb})^2`, the sum of the
/// columns `0, b, ..., (k-1) b` of `LDToep(c)`. O(n + k).
///
/// Along one residue modulo `b` the inner sum is a window of `k` elements. Windows are put together
/// from a suffix of one run of `k` and a prefix of the next, so nothing is ever subtracted.
fn leftmost_pattern_squared(c: &[f64], participation: &Participation) -> f64 {
    let (n, b) = (participation.steps(), participation.min_separation());
    let k = participation.max_participations();
    let mut squared = 0.0;
    let mut elements = Vec::new();
    let mut suffix = Vec::new();
    for residue in 0..b.min(n) {
        elements.clear();
        elements.extend((residue..n).step_by(b).map(|i| c.get(i).copied().unwrap_or(0.0)));
        for run in (0..elements.len()).step_by(k) {
            let run_end = (run + k).min(elements.len());
            let mut prefix = 0.0;
            for i in run..run_end {
                prefix += elements[i];
                // suffix[o] is the sum of the previous run from its element o on.
                let window = prefix + suffix.get(i - run + 1).copied().unwrap_or(0.0);
                squared += window * window;
            }
            suffix.clear();
            suffix.resize(run_end - run, 0.0);
            let mut sum = 0.0;
            for i in (run..run_end).rev() {
                sum += elements[i];
                suffix[i - run] = sum;
            }
        }
        suffix.clear();
    }
    squared
}

/// The largest total weight of a `b`-separated set with at most `k` elements. O(n), or O(n k) where
/// `k` binds.
fn heaviest_pattern(weights: &[f64], participation: &Participation) -> f64 {
    let b = participation.min_separation();
    if participation.is_unbounded() {
        // best[i] over the first i places: leave place i out, or take it and the best b before.
        let mut best = vec![0.0; weights.len() + 1];
        for (i, w) in weights.iter().enumerate() {
            best[i + 1] = f64::max(best[i], w + best[(i + 1).saturating_sub(b)]);
        }
        return best[weights.len()];
    }
    let by_count = heaviest_by_count(weights, b, participation.max_participations());
    by_count.last().copied().unwrap_or(0.0)
}

/// The largest total weight of a `b`-separated set with at most `m` elements, for `m = 0..=most`.
/// Weights are non-negative. O(n most).
fn heaviest_by_count(weights: &[f64], b: usize, most: usize) -> Vec<f64> {
    let mut by_count = vec![0.0];
    let mut fewer = vec![0.0; weights.len() + 1];
    for _ in 0..most {
        let mut best = vec![0.0; weights.len() + 1];
        for (i, w) in weights.iter().enumerate() {
            best[i + 1] = f64::max(best[i], w + fewer[(i + 1).saturating_sub(b)]);
        }
        by_count.push(best[weights.len()]);
        fewer = best;
    }
    by_count
}

/// For every column `i`, the most that `sum_{j in pi} |(C^T C)_ij|` can be over patterns `pi` that
/// contain `i`. The sensitivity squared is at most the heaviest pattern of these. O(n p^2).
fn pairwise_charges(c: &BandedLower, b: usize, k: usize) -> Vec<f64> {
    let (n, p) = (c.steps(), c.bands());
    let gram = gram_by_lag(c);
    (0..n)
        .into_par_iter()
        .map(|i| {
            let before: Vec<f64> = (i.saturating_sub(p - 1)..(i + 1).saturating_sub(b))
                .map(|j| gram[j][i - j].abs())
                .collect();
            let after: Vec<f64> = (i + b..n.min(i + p)).map(|j| gram[i][j - i].abs()).collect();
            let most = |side: &[f64]| (k - 1).min(side.len().div_ceil(b));
            let before = heaviest_by_count(&before, b, most(&before));
            let after = heaviest_by_count(&after, b, most(&after));
            let others = (0..before.len())
                .map(|m| before[m] + after[(k - 1 - m).min(after.len() - 1)])
                .fold(0.0, f64::max);
            gram[i][0] + others
        })
        .collect()
}

/// `(C^T C)_{i,i+g}` as element `g` of vector `i`, for all lags below `p`. O(n p^2) time, O(n p) memory.
fn gram_by_lag(c: &BandedLower) -> Vec<Vec<f64>> {
    let (n, p) = (c.steps(), c.bands());
    (0..n)
        .into_par_iter()
        .map(|left| {
            let mut products = vec![0.0; p.min(n - left)];
            for row in left..n.min(left + p) {
                // Columns left, left + 1, ..., row stand in the row from lag row - left down to 0.
                let entries = &c.row(row)[..=row - left];
                let x = entries[row - left];
                for (product, y) in products.iter_mut().zip(entries.iter().rev()) {
                    *product += x * y;
                }
            }
            products
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rising_then_falling_is_recognized() {
        for c in [&[1.0][..], &[1.0, 1.0], &[1.0, 2.0, 2.0, 1.0, 0.0], &[3.0, 2.0], &[1.0, 2.0]] {
            assert!(is_unimodal(c), "{c:?}");
        }
        for c in [&[1.0, -0.1][..], &[2.0, 1.0, 2.0], &[1.0, 2.0, 1.0, 1.5]] {
            assert!(!is_unimodal(c), "{c:?}");
        }
    }

    #[test]
    fn the_majorant_is_unimodal_above_and_leaves_unimodal_sequences_alone() {
        let c = [1.0, -3.0, 2.0, 4.0, 0.0, 1.0, 0.5, -0.75, 0.1];
        assert_eq!(unimodal_majorant(&c), [1.0, 3.0, 3.0, 4.0, 1.0, 1.0, 0.75, 0.75, 0.1]);
        let unimodal = [0.5, 1.0, 1.0, 0.25];
        assert_eq!(unimodal_majorant(&unimodal), unimodal);
    }
}
