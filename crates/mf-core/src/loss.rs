//! Loss: how far the private iterates are from the ones without noise.
//!
//! The noise on the iterates is `B Z` with `B = A C^-1` and `Z` of standard deviation `sens(C)` (times
//! the multiplier and the clip norm), so all that matters of `B` are the norms of its rows.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::banded::BandedLower;
use crate::error::{Error, Result};
use crate::sensitivity::Sensitivity;
use crate::series;
use crate::strategy::Strategy;
use crate::workload::Workload;

/// The norms of the decoder `B = A C^-1`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DecoderNorms {
    /// `||B||_F^2`, the sum of the squared row norms.
    pub frobenius_squared: f64,
    /// The largest squared norm of a row of `B`.
    pub max_row_squared: f64,
    /// The squared norm of the last row of `B`: the noise on the final iterate.
    pub last_row_squared: f64,
}

/// The loss of a factorization for noise multiplier 1 and clip norm 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// `E(B, C) = sens(C) ||B||_F / sqrt(n)`: the root mean squared error over the steps.
    pub expected_error: f64,
    /// `sens(C) max_i ||B_i||`: the root mean squared error of the worst step.
    pub max_error: f64,
    /// `sens(C) ||B_{n-1}||`: the root mean squared error of the final iterate.
    pub final_error: f64,
}

impl DecoderNorms {
    /// The loss that these norms make with a sensitivity over `n` steps.
    pub fn loss(&self, sensitivity: &Sensitivity, steps: usize) -> Loss {
        let sens = sensitivity.value;
        Loss {
            expected_error: sens * (self.frobenius_squared / steps as f64).sqrt(),
            max_error: sens * self.max_row_squared.sqrt(),
            final_error: sens * self.last_row_squared.sqrt(),
        }
    }

    fn of_rows(rows_squared: impl Iterator<Item = f64>) -> Self {
        let zero = Self { frobenius_squared: 0.0, max_row_squared: 0.0, last_row_squared: 0.0 };
        rows_squared.fold(zero, |norms, row| Self {
            frobenius_squared: norms.frobenius_squared + row,
            max_row_squared: norms.max_row_squared.max(row),
            last_row_squared: row,
        })
    }
}

/// The row norms of `B = A C^-1`, added up and maximized.
///
/// | `A` | `C` | time | memory |
/// |---|---|---|---|
/// | Toeplitz | Toeplitz | O(n log n) | O(n) |
/// | Toeplitz | banded inverse, or `m` buffers | O(n m) | O(n) |
/// | three-diagonal inverse | any, `p^2 <= n` or not Toeplitz | O(n p^2) | O(p^2) |
/// | three-diagonal inverse | Toeplitz, `p^2 > n` | O(n^2) | O(n) |
/// | any | any | O(n^2 p) | O(n) |
///
/// # Errors
/// [`Error::SizeMismatch`] if `A` and `C` differ in size.
pub fn decoder_norms(workload: &Workload, strategy: &Strategy) -> Result<DecoderNorms> {
    let n = workload.steps();
    if strategy.steps() != n {
        return Err(Error::SizeMismatch {
            what: "steps of the strategy",
            expected: n,
            found: strategy.steps(),
        });
    }
    if let (Some(a), Some(c)) = (workload.as_toeplitz(n), strategy.as_toeplitz()) {
        let quotient = match strategy.short_inverse() {
            Some(inverse) if workload.as_sgd().is_some() => workload.apply(&inverse),
            Some(inverse) => series::multiply(&a, &inverse, n),
            None => series::divide(&a, c, n),
        };
        // Row i of LDToep(q) holds q_i, ..., q_0: its norm only grows with i.
        let rows = quotient.iter().scan(0.0, |sum, q| {
            *sum += q * q;
            Some(*sum)
        });
        return Ok(DecoderNorms::of_rows(rows));
    }
    if let Some(matrix) = workload.as_general() {
        let row = |i: usize| decoder_row_squared(matrix.row(i).to_vec(), strategy);
        return Ok(DecoderNorms::of_rows((0..n).map(row)));
    }
    if let (Some(a), None) = (workload.as_toeplitz(n), workload.as_sgd()) {
        let row = |i: usize| decoder_row_squared(a[..=i].iter().rev().copied().collect(), strategy);
        return Ok(DecoderNorms::of_rows((0..n).map(row)));
    }
    match strategy.as_toeplitz() {
        Some(c) if c.len().saturating_mul(c.len()) > n => {
            let inverse = strategy.short_inverse();
            let inverse = inverse.unwrap_or_else(|| series::divide_by_substitution(&[1.0], c, n));
            Ok(decoder_norms_by_columns(workload, &inverse))
        }
        _ => banded_decoder_norms(workload, strategy),
    }
}

/// Parts into which the columns are cut: fixed, so that sums do not depend on the number of threads.
const PARTS: usize = 16;

/// The row norms of `B = A LDToep(h)`, column by column: column `j` is `A` applied to `h` moved down by
/// `j` steps. O(n^2).
fn decoder_norms_by_columns(workload: &Workload, h: &[f64]) -> DecoderNorms {
    let n = workload.steps();
    let parts: Vec<Vec<f64>> = (0..PARTS)
        .into_par_iter()
        .map(|part| {
            let mut rows = vec![0.0; n];
            for j in (part..n).step_by(PARTS) {
                workload.apply_from(j, &h[..n - j], |i, x| rows[i] += x * x);
            }
            rows
        })
        .collect();
    DecoderNorms::of_rows((0..n).map(|i| parts.iter().map(|rows| rows[i]).sum()))
}

/// `||B_i||^2` by solving `b C = a` for row `i` of `A`, up to its diagonal, from the right: O(i p).
fn decoder_row_squared(a: Vec<f64>, c: &Strategy) -> f64 {
    let mut b = a;
    for j in (0..b.len()).rev() {
        let row = c.row(j);
        b[j] /= row[0];
        let solved = b[j];
        for (lag, c) in row.iter().enumerate().skip(1) {
            b[j - lag] -= solved * c;
        }
    }
    b.iter().map(|x| x * x).sum()
}

/// The row norms of `B = L^-1` for the banded `L = C A^-1`.
fn banded_decoder_norms(workload: &Workload, strategy: &Strategy) -> Result<DecoderNorms> {
    let inverse = workload.inverse().ok_or(Error::SizeMismatch {
        what: "diagonals of the workload's inverse",
        expected: 3,
        found: workload.steps(),
    })?;
    Ok(DecoderNorms::of_rows(inverse_rows_squared(&strategy.to_rows()?.product(&inverse)?)))
}

/// The squared norms of the rows of `L^-1`, as the variances of `x = L^-1 z`.
///
/// `x_i = s_i z_i + sum_k g_k x_{i-k}` with `s_i = 1 / L_ii`, `g_k = -L_{i,i-k} / L_ii`, so the
/// covariances of `x_i` with the `w` values before it follow from theirs with each other. Only the
/// last `w` rows of covariances are kept, in a ring. O(n w^2).
fn inverse_rows_squared(l: &BandedLower) -> impl Iterator<Item = f64> {
    let w = l.bands() - 1;
    // ring[i % (w + 1)][k] = Cov(x_i, x_{i-k})
    let mut ring = vec![vec![0.0; w + 1]; w + 1];
    let mut g = vec![0.0; w];
    let mut covariance = vec![0.0; w];
    (0..l.steps()).map(move |i| {
        let row = l.row(i);
        let s = 1.0 / row[0];
        let reach = w.min(i);
        for k in 0..reach {
            g[k] = -row[k + 1] * s;
        }
        covariance[..reach].fill(0.0);
        for k in 0..reach {
            // Cov(x_{i-1-k}, x_{i-1-m}) for m >= k stands in row i-1-k at lag m - k.
            let window = &ring[(i - 1 - k) % (w + 1)][..reach - k];
            covariance[k] += window[0] * g[k];
            let mut dot = 0.0;
            for (m, &value) in window.iter().enumerate().skip(1) {
                dot += value * g[k + m];
                covariance[k + m] += value * g[k];
            }
            covariance[k] += dot;
        }
        let along: f64 = g[..reach].iter().zip(&covariance).map(|(g, c)| g * c).sum();
        let variance = s * s + along;
        let target = &mut ring[i % (w + 1)];
        target[0] = variance;
        target[1..=reach].copy_from_slice(&covariance[..reach]);
        variance
    })
}

/// Products of a substitution that take some seconds; beyond them the inverse is computed by FFT, whose error is
/// relative to its largest entry.
const MOST_SUBSTITUTION: usize = 1 << 32;

/// The standard deviation of every row of `C^-1 Z` in one coordinate: the norms of the rows of `C^-1`.
/// O(n p) for a Toeplitz strategy, O(n log n) where that would take long, O(n p^2) for others.
///
/// # Errors
/// None in practice: the sizes were checked when the strategy was made.
pub fn noise_deviations(strategy: &Strategy) -> Result<Vec<f64>> {
    let n = strategy.steps();
    let Some(c) = strategy.as_toeplitz() else {
        return Ok(inverse_rows_squared(&strategy.to_rows()?).map(f64::sqrt).collect());
    };
    let inverse = strategy.short_inverse();
    let inverse = inverse.unwrap_or_else(|| match n.checked_mul(c.len()) {
        Some(work) if work <= MOST_SUBSTITUTION => series::divide_by_substitution(&[1.0], c, n),
        _ => series::inverse(c, n),
    });
    let rows = inverse.iter().scan(0.0, |sum, h| {
        *sum += h * h;
        Some(f64::sqrt(*sum))
    });
    Ok(rows.collect())
}

/// `max_i sum_j |C_ij| ||(C^-1)_j||`: how much larger than `Z` the terms are from which `C` makes it
/// again out of the noise of the steps.
///
/// Rows of noise are rounded. A relative error `u` in each of them is an error of at most this number times
/// `u` in `Z`, in units of its standard deviation. It is 1 for the identity and grows without bound for a
/// strategy whose inverse is unstable; infinite or NaN if the inverse overflows. As
/// [`noise_deviations`], and O(p) more for a Toeplitz strategy, O(n p) otherwise.
///
/// # Errors
/// As [`noise_deviations`].
pub fn noise_growth(strategy: &Strategy) -> Result<f64> {
    let deviations = noise_deviations(strategy)?;
    let of_row = |i: usize| -> f64 {
        let row = strategy.row(i).iter().enumerate();
        row.map(|(lag, c)| c.abs() * deviations[i - lag]).sum()
    };
    if strategy.as_toeplitz().is_some() {
        // Deviations do not fall from row to row, and the last row has all coefficients.
        return Ok(of_row(strategy.steps() - 1));
    }
    // Not a number is larger than any: it must not get lost in a maximum.
    let larger = |x: f64, y: f64| if y > x || y.is_nan() { y } else { x };
    Ok((0..strategy.steps()).map(of_row).fold(0.0, larger))
}
