//! The definitions, evaluated slowly and with nothing clever in them.
//!
//! Everything fast in this crate is tested against these functions, `bandroot reproduce errors`
//! evaluates each cell of the paper's tables a second time with them, and the benchmark sets its
//! times beside theirs. They share no code with the fast paths.

use crate::participation::Participation;
use crate::workload::Sgd;

/// `a_j = sum_{i=0}^{j} alpha^i beta^{j-i}` term by term. O(len^2).
pub fn workload_coefficients(sgd: &Sgd, len: usize) -> Vec<f64> {
    let (alpha, beta) = (powers(sgd.decay_factor(), len), powers(sgd.momentum(), len));
    (0..len).map(|j| (0..=j).map(|i| alpha[i] * beta[j - i]).sum()).collect()
}

/// `c_j = sum_{i=0}^{j} alpha^{j-i} r_{j-i} r_i beta^i` term by term (Theorem 1). O(len^2).
pub fn square_root_coefficients(sgd: &Sgd, len: usize) -> Vec<f64> {
    let (alpha, beta) = (powers(sgd.decay_factor(), len), powers(sgd.momentum(), len));
    let mut r = vec![1.0; len];
    for i in 1..len {
        r[i] = r[i - 1] * (2.0 * i as f64 - 1.0) / (2.0 * i as f64);
    }
    (0..len).map(|j| (0..=j).map(|i| alpha[j - i] * r[j - i] * r[i] * beta[i]).sum()).collect()
}

/// `g_j = sum_{i=0}^{j} alpha^{j-i} q_{j-i} q_i beta^i` with `q_i = (-1)^i binom(1/2, i)`: the series of
/// `sqrt(1 - alpha x) sqrt(1 - beta x)` term by term. O(len^2).
pub fn inverse_square_root_coefficients(sgd: &Sgd, len: usize) -> Vec<f64> {
    let (alpha, beta) = (powers(sgd.decay_factor(), len), powers(sgd.momentum(), len));
    let mut q = vec![1.0; len];
    for i in 1..len {
        q[i] = q[i - 1] * (2.0 * i as f64 - 3.0) / (2.0 * i as f64);
    }
    (0..len).map(|j| (0..=j).map(|i| alpha[j - i] * q[j - i] * q[i] * beta[i]).sum()).collect()
}

/// The first column of the inverse of `LDToep(g)`, by forward substitution. O(n p).
pub fn reciprocal(g: &[f64], steps: usize) -> Vec<f64> {
    let mut unit = vec![0.0; steps];
    unit[0] = 1.0;
    decoder_coefficients(&unit, g)
}

fn powers(t: f64, len: usize) -> Vec<f64> {
    (0..len).map(|i| t.powi(i as i32)).collect()
}

/// The first column of `B` with `B C = A` for Toeplitz `A` and `C`, by forward substitution. O(n p).
pub fn decoder_coefficients(a: &[f64], c: &[f64]) -> Vec<f64> {
    let mut b: Vec<f64> = Vec::with_capacity(a.len());
    for j in 0..a.len() {
        let known: f64 = (1..c.len().min(j + 1)).map(|i| c[i] * b[j - i]).sum();
        b.push((a[j] - known) / c[0]);
    }
    b
}

/// `|| sum_{j<k} C_{:,jb} ||` for `C = LDToep(c)`, by adding the columns. O(n k).
pub fn leftmost_sensitivity(c: &[f64], participation: &Participation) -> f64 {
    let (n, b) = (participation.steps(), participation.min_separation());
    let mut sum = vec![0.0; n];
    for j in 0..participation.max_participations() {
        for i in j * b..n.min(j * b + c.len()) {
            sum[i] += c[i - j * b];
        }
    }
    sum.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// `sens(C) ||B||_F / sqrt(n)` with `||B||_F` summed over all entries of the matrix. O(n^2).
///
/// Precondition: the leftmost pattern is the worst one for `LDToep(c)`.
pub fn expected_error(sgd: &Sgd, c: &[f64], participation: &Participation) -> f64 {
    let n = participation.steps();
    let b = decoder_coefficients(&workload_coefficients(sgd, n), c);
    let mut squared = 0.0;
    for row in 0..n {
        for column in 0..=row {
            squared += b[row - column] * b[row - column];
        }
    }
    leftmost_sensitivity(c, participation) * (squared / n as f64).sqrt()
}

/// The upper bound on `sens_{k,b}(LDToep(c))` that adds, over a pattern, the heaviest pattern of each
/// row of `|C^T C|` by itself (Choquette-Choo et al. 2023), where the row's own step need not be in
/// that pattern. O(n^2 k).
///
/// Weaker than what [`sensitivity`](crate::sensitivity) gives; here because the paper's table for
/// `C = A` with momentum holds this bound, not the sensitivity.
pub fn row_wise_bound(c: &[f64], participation: &Participation) -> f64 {
    let n = participation.steps();
    let c = |i: usize| c.get(i).copied().unwrap_or(0.0);
    let mut gram = vec![vec![0.0; n]; n];
    for i in (0..n).rev() {
        for j in (0..n).rev() {
            let beyond = if i + 1 < n && j + 1 < n { gram[i + 1][j + 1] } else { 0.0 };
            gram[i][j] = beyond + c(n - 1 - i) * c(n - 1 - j);
        }
    }
    let heaviest = |weights: &[f64]| -> f64 {
        let mut fewer = vec![0.0; n + 1];
        for _ in 0..participation.max_participations() {
            let mut best = vec![0.0; n + 1];
            for i in 0..n {
                let before = (i + 1).saturating_sub(participation.min_separation());
                best[i + 1] = f64::max(best[i], weights[i].abs() + fewer[before]);
            }
            fewer = best;
        }
        fewer[n]
    };
    let rows: Vec<f64> = gram.iter().map(|row| heaviest(row)).collect();
    heaviest(&rows).sqrt()
}
