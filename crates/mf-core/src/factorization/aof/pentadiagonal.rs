//! Symmetric positive definite matrices of five diagonals, and functions of them through shifted
//! inverses.

use rayon::prelude::*;

use super::lanes::dispatched;
use super::rational::InverseSquareRoot;
use super::workload::InverseWorkload;

/// `rows[i]` holds the entries `(i, i)`, `(i, i - 1)`, `(i, i - 2)`.
pub(super) struct Pentadiagonal {
    rows: Vec<[f64; 3]>,
}

/// Shifts or right-hand sides handled together, so that the divisions of one hide those of the
/// others.
const LANES: usize = 8;
type Lanes = [f64; LANES];

/// Row of a unit lower-triangular factor for eight shifts: `L_{i,i-1}`, `L_{i,i-2}`, `1/D_i`.
type FactorRow = [Lanes; 3];

impl Pentadiagonal {
    /// `V^{-1/2} T T^T V^{-1/2}`.
    pub(super) fn scaled_gram(inverse: &InverseWorkload, multipliers: &[f64]) -> Self {
        let t = &inverse.columns;
        // T_{i,j} by row and lag.
        let entry = |i: usize, lag: usize| if lag <= i { t[i - lag][lag] } else { 0.0 };
        let rows = (0..inverse.steps())
            .map(|i| {
                [0, 1, 2].map(|k| {
                    if k > i {
                        return 0.0;
                    }
                    let sum: f64 = (k..3).map(|lag| entry(i, lag) * entry(i - k, lag - k)).sum();
                    sum / (multipliers[i] * multipliers[i - k]).sqrt()
                })
            })
            .collect();
        Self { rows }
    }

    /// `||A e_j||^2`, the diagonal of `(T T^T)^-1`, from `T` as its own Cholesky factor.
    pub(super) fn workload_norms_squared(inverse: &InverseWorkload) -> Vec<f64> {
        let t = &inverse.columns;
        let n = inverse.steps();
        let rows: Vec<FactorRow> = (0..n)
            .map(|i| {
                let first = if i >= 1 { t[i - 1][1] / t[i - 1][0] } else { 0.0 };
                let second = if i >= 2 { t[i - 2][2] / t[i - 2][0] } else { 0.0 };
                [[first; LANES], [second; LANES], [1.0 / (t[i][0] * t[i][0]); LANES]]
            })
            .collect();
        let mut diagonal = vec![0.0; n];
        let mut weights = [0.0; LANES];
        weights[0] = 1.0;
        add_inverse_diagonal(&rows, &weights, &mut diagonal);
        diagonal
    }

    /// Largest sum of absolute values in a row, an upper bound on the eigenvalues.
    pub(super) fn row_sum_norm(&self) -> f64 {
        let n = self.rows.len();
        (0..n)
            .map(|i| {
                let below: f64 =
                    (1..3).filter(|k| i + k < n).map(|k| self.rows[i + k][k].abs()).sum();
                self.rows[i].iter().map(|v| v.abs()).sum::<f64>() + below
            })
            .fold(0.0, f64::max)
    }

    /// Diagonal of the inverse square root. `O(n)` per pole, poles in parallel.
    pub(super) fn inverse_square_root_diagonal(&self, rule: &InverseSquareRoot) -> Vec<f64> {
        let n = self.rows.len();
        let parts: Vec<Vec<f64>> = rule
            .shifts
            .par_chunks(LANES)
            .zip(rule.weights.par_chunks(LANES))
            .map(|(shifts, weights)| {
                let mut diagonal = vec![0.0; n];
                let mut rows = vec![[[0.0; LANES]; 3]; n];
                factor_shifted(&self.rows, &padded(shifts, 1.0), &mut rows);
                add_inverse_diagonal(&rows, &padded(weights, 0.0), &mut diagonal);
                diagonal
            })
            .collect();
        // In the order of the poles, so that the same bits come out for any number of threads.
        (0..n).map(|i| parts.iter().map(|part| part[i]).sum()).collect()
    }

    /// The dense inverse square root, row-major; symmetric. `O(n^2)` per pole.
    pub(super) fn inverse_square_root(&self, rule: &InverseSquareRoot) -> Vec<f64> {
        let n = self.rows.len();
        let factors: Vec<Vec<[f64; 3]>> = rule
            .shifts
            .par_iter()
            .map(|&shift| {
                let mut rows = vec![[[0.0; LANES]; 3]; n];
                factor_shifted(&self.rows, &[shift; LANES], &mut rows);
                rows.iter().map(|row| row.map(|lanes| lanes[0])).collect()
            })
            .collect();
        let mut dense = vec![0.0; n * n];
        dense.par_chunks_mut(n * LANES).enumerate().for_each(|(block, columns)| {
            let count = columns.len() / n;
            let first = block * LANES;
            let mut sum = vec![[0.0; LANES]; n];
            let mut x = vec![[0.0; LANES]; n];
            for (rows, &weight) in factors.iter().zip(&rule.weights) {
                x.fill([0.0; LANES]);
                for lane in 0..count {
                    x[first + lane][lane] = weight;
                }
                solve(rows, first, &mut x);
                for (s, x) in sum.iter_mut().zip(&x) {
                    for t in 0..LANES {
                        s[t] += x[t];
                    }
                }
            }
            for (lane, column) in columns.chunks_mut(n).enumerate() {
                for (value, s) in column.iter_mut().zip(&sum) {
                    *value = s[lane];
                }
            }
        });
        dense
    }
}

fn padded(values: &[f64], filler: f64) -> Lanes {
    let mut lanes = [filler; LANES];
    lanes[..values.len()].copy_from_slice(values);
    lanes
}

dispatched! {
    /// `L D L^T` factors of the matrix plus each shift.
    fn factor_shifted(matrix: &[[f64; 3]], shifts: &Lanes, out: &mut [FactorRow]) = factor_shifted_body
}

#[inline(always)]
fn factor_shifted_body<const FUSED: bool>(
    matrix: &[[f64; 3]],
    shifts: &Lanes,
    out: &mut [FactorRow],
) {
    let (mut d1, mut d2, mut r1, mut r2, mut previous) =
        ([1.0; LANES], [1.0; LANES], [1.0; LANES], [1.0; LANES], [0.0; LANES]);
    for (a, row) in matrix.iter().zip(out) {
        for t in 0..LANES {
            let second = a[2] * r2[t];
            let first = (a[1] - a[2] * previous[t]) * r1[t];
            let pivot = a[0] + shifts[t] - first * first * d1[t] - second * second * d2[t];
            row[0][t] = first;
            row[1][t] = second;
            row[2][t] = 1.0 / pivot;
            previous[t] = first;
            d2[t] = d1[t];
            d1[t] = pivot;
            r2[t] = r1[t];
            r1[t] = row[2][t];
        }
    }
}

dispatched! {
    /// `diagonal += sum_t weights_t diag((L D L^T)^-1)` by the recurrence for the central band of an
    /// inverse.
    fn add_inverse_diagonal(rows: &[FactorRow], weights: &Lanes, diagonal: &mut [f64]) = add_inverse_diagonal_body
}

#[inline(always)]
fn add_inverse_diagonal_body<const FUSED: bool>(
    rows: &[FactorRow],
    weights: &Lanes,
    diagonal: &mut [f64],
) {
    // Inverse entries (i+1,i+1), (i+1,i+2), (i+2,i+2) and the factor's column below i.
    let (mut near, mut cross, mut far) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
    let zero = [0.0; LANES];
    let n = rows.len();
    for i in (0..n).rev() {
        let first = if i + 1 < n { &rows[i + 1][0] } else { &zero };
        let second = if i + 2 < n { &rows[i + 2][1] } else { &zero };
        let mut sum = 0.0;
        for t in 0..LANES {
            let next = -first[t] * near[t] - second[t] * cross[t];
            let after = -first[t] * cross[t] - second[t] * far[t];
            let own = rows[i][2][t] - first[t] * next - second[t] * after;
            sum += weights[t] * own;
            far[t] = near[t];
            cross[t] = next;
            near[t] = own;
        }
        diagonal[i] += sum;
    }
}

dispatched! {
    /// Solves with one factor for eight right-hand sides that vanish before row `first`.
    fn solve(rows: &[[f64; 3]], first: usize, x: &mut [Lanes]) = solve_body
}

#[inline(always)]
fn solve_body<const FUSED: bool>(rows: &[[f64; 3]], first: usize, x: &mut [Lanes]) {
    let n = rows.len();
    for i in first.max(1)..n {
        let one = x[i - 1];
        let two = if i >= 2 { x[i - 2] } else { [0.0; LANES] };
        for t in 0..LANES {
            x[i][t] -= rows[i][0] * one[t] + rows[i][1] * two[t];
        }
    }
    let (mut one, mut two) = ([0.0; LANES], [0.0; LANES]);
    for i in (0..n).rev() {
        let below = if i + 1 < n { rows[i + 1][0] } else { 0.0 };
        let further = if i + 2 < n { rows[i + 2][1] } else { 0.0 };
        let mut value = x[i];
        for t in 0..LANES {
            value[t] = value[t] * rows[i][2] - below * one[t] - further * two[t];
        }
        x[i] = value;
        two = one;
        one = value;
    }
}
