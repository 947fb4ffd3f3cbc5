//! Single participation: the band covers the whole matrix and only the diagonal of `S` is
//! constrained.
//!
//! With multipliers `v` and `X = V^{1/2} A^T A V^{1/2}` the optimum is `S = V^{-1/2} X^{1/2} V^{-1/2}` where
//! `v_j = (X^{1/2})_jj`. `X^-1 = J = V^{-1/2} T T^T V^{-1/2}` has five diagonals, so the diagonal `d` of
//! `X^{1/2} = J^{-1/2}` costs `O(n)` per pole of a rational approximation. For every `v`,
//!
//! ```text
//! (sum d)^2 / sum v  <=  min f  <=  max_j (d_j/v_j) * sum d.
//! ```

use std::ops::ControlFlow;

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{
    LltRegularization, cholesky_in_place, cholesky_in_place_scratch,
};
use faer::{Mat, Par, Spec};

use super::anderson::Anderson;
use super::pentadiagonal::Pentadiagonal;
use super::rational::InverseSquareRoot;
use super::solver::relative_gap;
use super::workload::InverseWorkload;
use super::{Certificate, Options, Progress, checked_workload};
use crate::banded::BandedLower;
use crate::error::{Error, Result};

/// Largest number of steps for which a dense factor is formed: two `n^2` arrays of doubles at a time,
/// 1.6 GB.
pub const DENSE_LIMIT: usize = 10_000;
/// Relative accuracy of the rational approximation.
const ACCURACY: f64 = 1e-11;

/// The optimum in terms of its multipliers; the factor itself is dense and formed on request.
#[derive(Clone, Debug)]
pub struct SingleSolution {
    inverse: InverseWorkload,
    multipliers: Vec<f64>,
    /// How close to the optimum it is.
    pub certificate: Certificate,
}

/// Solves the single-participation problem for the workload with inverse `inverse_workload`.
///
/// Each iteration is `O(n)` per pole, some fifty poles. Ends at the requested certified gap, or
/// with `converged: false` and the gap it has when the iterations are used up or `progress` breaks.
pub fn solve_single(
    inverse_workload: &BandedLower,
    options: &Options,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<SingleSolution> {
    let inverse = checked_workload(inverse_workload, options)?;
    let n = inverse.steps();
    let norms = Pentadiagonal::workload_norms_squared(&inverse);
    let mut logs: Vec<f64> = norms.iter().map(|w| 0.5 * w.ln()).collect();
    if logs.iter().any(|x| !x.is_finite()) {
        return Err(Error::Overflow { steps: n });
    }
    let mut mixer = Anderson::new(n);
    let mut best: Option<(Vec<f64>, Certificate)> = None;
    let mut lower: f64 = 0.0;
    for iteration in 1..=options.max_iterations.max(1) {
        let multipliers: Vec<f64> = logs.iter().map(|x| x.exp()).collect();
        let (matrix, rule) = approximation(&inverse, &norms, &multipliers);
        let diagonal = matrix.inverse_square_root_diagonal(&rule);
        let sum: f64 = diagonal.iter().sum();
        let largest = diagonal.iter().zip(&multipliers).map(|(d, v)| d / v).fold(0.0, f64::max);
        let upper = largest * sum;
        if !upper.is_finite() || diagonal.iter().any(|&d| d <= 0.0) {
            break;
        }
        lower = lower.max(sum * sum / multipliers.iter().sum::<f64>());
        if best.as_ref().is_none_or(|(_, c)| upper < c.objective) {
            let certificate = Certificate {
                objective: upper,
                lower_bound: lower,
                relative_gap: 1.0,
                iterations: iteration,
                evaluations: iteration,
                converged: false,
            };
            best = Some((multipliers.clone(), certificate));
        }
        let objective = best.as_ref().map_or(upper, |(_, c)| c.objective);
        let gap = relative_gap(objective, lower);
        if let Some((_, certificate)) = &mut best {
            certificate.lower_bound = lower;
            certificate.relative_gap = gap;
            certificate.iterations = iteration;
            certificate.evaluations = iteration;
            certificate.converged = gap <= options.relative_gap;
        }
        let report = Progress { iteration, steps: n, objective, certified_gap: Some(gap) };
        if progress(report).is_break() || gap <= options.relative_gap {
            break;
        }
        let residual: Vec<f64> = diagonal.iter().zip(&logs).map(|(d, x)| d.ln() - x).collect();
        if iteration == 1 {
            // The right overall scale: `d` grows as the root of `v`.
            let shift = 2.0 * (sum / multipliers.iter().sum::<f64>()).ln();
            logs.iter_mut().for_each(|x| *x += shift);
        } else {
            mixer.advance(&mut logs, &residual);
        }
    }
    let (multipliers, certificate) = best.ok_or(Error::Overflow { steps: n })?;
    Ok(SingleSolution { inverse, multipliers, certificate })
}

/// `J` at these multipliers with a rule that covers its spectrum: `1/tr X <= lambda(J) <= ||J||_inf`.
fn approximation(
    inverse: &InverseWorkload,
    norms: &[f64],
    multipliers: &[f64],
) -> (Pentadiagonal, InverseSquareRoot) {
    let matrix = Pentadiagonal::scaled_gram(inverse, multipliers);
    let trace: f64 = norms.iter().zip(multipliers).map(|(w, v)| w * v).sum();
    let rule = InverseSquareRoot::new(1.0 / trace, matrix.row_sum_norm(), ACCURACY);
    (matrix, rule)
}

impl SingleSolution {
    /// `v`, the optimal multipliers of the unit-column constraints.
    pub fn multipliers(&self) -> &[f64] {
        &self.multipliers
    }

    /// The factor `C` as a matrix of `n` bands, with unit columns and `||A C^-1||_F^2 <=
    /// certificate.objective`.
    ///
    /// `S` is raised to a unit diagonal, which cannot increase `f`, and factored from the last row
    /// up. Refused above [`DENSE_LIMIT`] steps. `n^3/6` multiply-adds, `2 n^2` doubles.
    pub fn factor(&self) -> Result<BandedLower> {
        let n = self.multipliers.len();
        if n > DENSE_LIMIT {
            return Err(Error::TooLargeForDense { steps: n, limit: DENSE_LIMIT });
        }
        let norms = Pentadiagonal::workload_norms_squared(&self.inverse);
        let (matrix, rule) = approximation(&self.inverse, &norms, &self.multipliers);
        let root = matrix.inverse_square_root(&rule);
        let v = &self.multipliers;
        let largest = (0..n).map(|j| root[j * n + j] / v[j]).fold(0.0, f64::max);
        // S = C^T C with C lower triangular becomes an ordinary Cholesky factorization with the order
        // reversed: entry (i, j) of the reversed matrix is entry (n-1-i, n-1-j) of S.
        let mut reversed = Mat::from_fn(n, n, |i, j| {
            let (a, b) = (n - 1 - i, n - 1 - j);
            if a == b { 1.0 } else { root[a * n + b] / ((v[a] * v[b]).sqrt() * largest) }
        });
        drop(root);
        // On one thread: the factor must not depend on how many there are.
        let scratch = cholesky_in_place_scratch::<f64>(n, Par::Seq, Spec::default());
        cholesky_in_place(
            reversed.as_mut(),
            LltRegularization::default(),
            Par::Seq,
            MemStack::new(&mut MemBuffer::new(scratch)),
            Spec::default(),
        )
        .map_err(|_| Error::NotPositiveDefinite { steps: n })?;
        let mut strategy = BandedLower::zeros(n, n)?;
        for i in 0..n {
            for (k, entry) in strategy.row_mut(i).iter_mut().enumerate().take(i + 1) {
                // C_{i,j} = L_{n-1-j, n-1-i}.
                *entry = reversed[(n - 1 - (i - k), n - 1 - i)];
            }
        }
        Ok(strategy)
    }
}
