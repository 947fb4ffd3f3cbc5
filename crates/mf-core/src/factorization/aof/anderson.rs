//! Anderson acceleration of a fixed-point iteration.

use std::collections::VecDeque;

/// Differences of iterates and residuals kept.
const DEPTH: usize = 5;
/// Step along the residual. The iteration's Jacobian has eigenvalues in `[1/2, 1)`, so a plain step
/// is too short.
const RELAXATION: f64 = 2.5;

/// State of Anderson's method (type II) for `x <- x + residual(x)`.
pub(super) struct Anderson {
    previous: Option<(Vec<f64>, Vec<f64>)>,
    differences: VecDeque<(Vec<f64>, Vec<f64>)>,
    size: usize,
}

impl Anderson {
    pub(super) fn new(size: usize) -> Self {
        Self { previous: None, differences: VecDeque::new(), size }
    }

    /// Replaces `x` by the next iterate, given the residual there.
    pub(super) fn advance(&mut self, x: &mut [f64], residual: &[f64]) {
        if let Some((old_x, old_residual)) = self.previous.take() {
            let subtract = |a: &[f64], b: &[f64]| -> Vec<f64> {
                a.iter().zip(b).map(|(a, b)| a - b).collect()
            };
            self.differences.push_back((subtract(x, &old_x), subtract(residual, &old_residual)));
            if self.differences.len() > DEPTH {
                self.differences.pop_front();
            }
        }
        self.previous = Some((x.to_vec(), residual.to_vec()));
        let weights = self.weights(residual);
        for (value, r) in x.iter_mut().zip(residual) {
            *value += RELAXATION * r;
        }
        for ((dx, dr), weight) in self.differences.iter().zip(&weights) {
            for i in 0..self.size {
                x[i] -= weight * (dx[i] + RELAXATION * dr[i]);
            }
        }
    }

    /// Least-squares combination of the residual differences that comes closest to `residual`.
    fn weights(&self, residual: &[f64]) -> Vec<f64> {
        let m = self.differences.len();
        let inner = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut matrix = vec![vec![0.0; m + 1]; m];
        for (i, (_, di)) in self.differences.iter().enumerate() {
            for (j, (_, dj)) in self.differences.iter().enumerate() {
                matrix[i][j] = inner(di, dj);
            }
            // A trace of regularisation: the differences become parallel near the fixed point.
            matrix[i][i] *= 1.0 + 1e-12;
            matrix[i][m] = inner(di, residual);
        }
        eliminate(matrix)
    }
}

/// Solves a small positive definite system given with its right-hand side as last column; pivots
/// that vanish give a zero component.
fn eliminate(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    let m = rows.len();
    for p in 0..m {
        let (done, below) = rows.split_at_mut(p + 1);
        let upper = &done[p];
        for row in below {
            let ratio = if upper[p] > 0.0 { row[p] / upper[p] } else { 0.0 };
            row.iter_mut().zip(upper).skip(p).for_each(|(value, u)| *value -= ratio * u);
        }
    }
    let mut solution = vec![0.0; m];
    for p in (0..m).rev() {
        let rest: f64 = (p + 1..m).map(|j| rows[p][j] * solution[j]).sum();
        solution[p] = if rows[p][p] > 0.0 { (rows[p][m] - rest) / rows[p][p] } else { 0.0 };
    }
    solution
}
