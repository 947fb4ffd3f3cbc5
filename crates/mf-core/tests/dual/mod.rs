//! Dense definitions, O(n^3) and obvious, that the fast code is held against.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "every test file uses its own part")]

use faer::{Mat, Side};
use mf_core::BandedLower;

pub type Dense = Vec<Vec<f64>>;

pub fn dense(n: usize, entry: impl Fn(usize, usize) -> f64) -> Dense {
    (0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect()
}

pub fn transpose(a: &Dense) -> Dense {
    dense(a.len(), |i, j| a[j][i])
}

pub fn multiply(a: &Dense, b: &Dense) -> Dense {
    dense(a.len(), |i, j| (0..a.len()).map(|k| a[i][k] * b[k][j]).sum())
}

/// Inverse of a lower-triangular matrix by forward substitution.
pub fn invert_lower(a: &Dense) -> Dense {
    let n = a.len();
    let mut x = dense(n, |_, _| 0.0);
    for j in 0..n {
        for i in j..n {
            let sum: f64 = (j..i).map(|k| a[i][k] * x[k][j]).sum();
            x[i][j] = (f64::from(u8::from(i == j)) - sum) / a[i][i];
        }
    }
    x
}

/// `(I - alpha Z)(I - beta Z)`, the inverse of the SGD workload with constant learning rate.
pub fn inverse_workload(n: usize, alpha: f64, beta: f64) -> BandedLower {
    scheduled_inverse_workload(&vec![1.0; n], alpha, beta)
}

/// Inverse of `E_alpha diag(eta) E_beta`, for any numbers.
pub fn scheduled_inverse_workload(rates: &[f64], alpha: f64, beta: f64) -> BandedLower {
    let n = rates.len();
    let mut inverse = BandedLower::zeros(n, n.min(3)).unwrap();
    for i in 0..n {
        let before = rates[i.saturating_sub(1)];
        let entries = [1.0 / rates[i], -(alpha / rates[i] + beta / before), alpha * beta / before];
        for (lag, entry) in entries.into_iter().enumerate().take(i + 1) {
            inverse.row_mut(i)[lag] = entry;
        }
    }
    inverse
}

pub fn to_dense(matrix: &BandedLower) -> Dense {
    dense(matrix.steps(), |i, j| matrix.entry(i, j))
}

/// `||A C^-1||_F^2`.
pub fn objective(inverse: &BandedLower, factor: &BandedLower) -> f64 {
    let b = multiply(&invert_lower(&to_dense(inverse)), &invert_lower(&to_dense(factor)));
    b.iter().flatten().map(|v| v * v).sum()
}

/// The exact dual value `(tr (A Y A^T)^{1/2})^2/tr Y` for `Y` equal to `S^-1 A^T A S^-1` without its in-band
/// off-diagonal part; zero if that `Y` is not positive semi-definite.
pub fn dual_bound(inverse: &BandedLower, factor: &BandedLower) -> f64 {
    let (n, b) = (factor.steps(), factor.bands());
    let a = invert_lower(&to_dense(inverse));
    let c = invert_lower(&to_dense(factor));
    let decoder = multiply(&a, &c);
    let half = multiply(&decoder, &transpose(&c));
    let z = multiply(&transpose(&half), &half);
    let y = dense(n, |i, j| if i != j && i.abs_diff(j) < b { 0.0 } else { z[i][j] });
    let x = multiply(&a, &multiply(&y, &transpose(&a)));
    let matrix = Mat::from_fn(n, n, |i, j| 0.5 * (x[i][j] + x[j][i]));
    let eigenvalues = matrix.self_adjoint_eigenvalues(Side::Lower).unwrap();
    let largest = eigenvalues.iter().copied().fold(0.0, f64::max);
    if eigenvalues.iter().any(|&e| e < -1e-9 * largest) {
        return 0.0;
    }
    let root: f64 = eigenvalues.iter().map(|e| e.max(0.0).sqrt()).sum();
    root * root / (0..n).map(|j| y[j][j]).sum::<f64>()
}

/// The minimum by cyclic search over single entries with a shrinking step; needs nothing but values
/// of `f`.
pub fn slow_minimum(inverse: &BandedLower, bands: usize) -> f64 {
    let n = inverse.steps();
    let mut entries = BandedLower::zeros(n, bands).unwrap();
    (0..n).for_each(|i| entries.row_mut(i)[0] = 1.0);
    let value = |entries: &BandedLower| {
        let norms = entries.column_norms_squared();
        let mut unit = BandedLower::zeros(n, bands).unwrap();
        for i in 0..n {
            for k in 0..bands.min(i + 1) {
                unit.row_mut(i)[k] = entries.row(i)[k] / norms[i - k].sqrt();
            }
        }
        objective(inverse, &unit)
    };
    let mut best = value(&entries);
    let mut step = 0.5;
    while step > 1e-7 {
        let before = best;
        for i in 0..n {
            for k in 1..bands.min(i + 1) {
                for sign in [step, -step] {
                    let old = entries.row(i)[k];
                    entries.row_mut(i)[k] = old + sign;
                    let trial = value(&entries);
                    if trial < best {
                        best = trial;
                    } else {
                        entries.row_mut(i)[k] = old;
                    }
                }
            }
        }
        if before - best < 1e-3 * step * step * best {
            step *= 0.5;
        }
    }
    best
}
