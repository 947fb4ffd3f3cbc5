//! Approximately optimal factorization (AOF) `A = B C` of a workload under repeated or single
//! participation.
//!
//! `C` is the lower-triangular factor of the matrix `S = C^T C` that minimizes `f(S) = tr(A^T A S^-1) =
//! ||A C^-1||_F^2` subject to `S_jj = 1` and `S_ij = 0` for `|i - j| >= b` (Kalinin & Lampert 2024,
//! Definition 2, arXiv:2405.13763). Unit columns and at most `b` bands make `sens(C) = sqrt(k)` exactly
//! when the same example takes part at most `k` times, at least `b` steps apart, so the expected
//! approximation error is `sqrt(k f/n)`.
//!
//! The workload enters as its inverse `T = A^-1`, lower triangular with at most three diagonals. For
//! SGD with momentum `beta`, decay factor `alpha` and learning rates `eta`, `A = E_alpha diag(eta) E_beta` and
//!
//! ```text
//! T_ii = 1/eta_i,   T_{i,i-1} = -(alpha/eta_i + beta/eta_{i-1}),   T_{i,i-2} = alpha beta/eta_{i-1}.
//! ```
//!
//! * [`solve`]: repeated participation, any `1 <= b <= n`, `O(n b^2)` per iteration.
//! * [`solve_single`]: single participation (`b = n`), `O(n)` per iteration, the factor only on request.
//!
//! # Guarantees
//! * The factor returned has unit columns and at most `b` bands.
//! * `lower_bound <= min f <= objective`, up to rounding, whether or not the solver converged.
//! * `converged` is true only if the certified gap is the one asked for or smaller.

mod lanes;
mod window;
mod workload;
mod objective;
mod cholesky;
mod dual;
mod certificate;
mod modes;
mod triangular;
mod preconditioner;
mod lbfgs;
mod descent;
mod warm_start;
mod solver;
mod rational;
mod pentadiagonal;
mod anderson;
mod single;

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use crate::banded::BandedLower;
use crate::error::{Error, Result};
use objective::Columns;
pub use single::{DENSE_LIMIT, SingleSolution, solve_single};
pub(super) use solver::relative_gap;
use workload::InverseWorkload;

/// When to stop.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Certified relative gap `(E - E_lower)/E` of the expected error to stop at.
    pub relative_gap: f64,
    /// Iterations allowed on each problem of the warm-start chain.
    pub max_iterations: usize,
    /// Secant pairs kept, in single precision: `2 * history * n * b` floats.
    pub history: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { relative_gap: 1e-4, max_iterations: 1000, history: 8 }
    }
}

/// What a solver reports after every iteration; the caller answers whether to go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Iterations on the present problem.
    pub iteration: usize,
    /// Steps of the present problem: shorter ones are solved first as a warm start.
    pub steps: usize,
    /// `f` at the present factor.
    pub objective: f64,
    /// Smallest relative gap certified so far.
    pub certified_gap: Option<f64>,
}

/// How good a factorization is, with proof.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// `f = ||A C^-1||_F^2`.
    pub objective: f64,
    /// No feasible factor has a smaller `f`; zero if nothing could be certified.
    pub lower_bound: f64,
    /// `1 - sqrt(lower_bound/objective)`, the relative gap of the expected error.
    pub relative_gap: f64,
    /// Iterations over all problems of the warm-start chain.
    pub iterations: usize,
    /// Value and gradient evaluations, those of head problems included.
    pub evaluations: usize,
    /// Whether `relative_gap` is the one asked for or smaller.
    pub converged: bool,
}

impl Certificate {
    /// Expected approximation error `sqrt(k f/n)` of `n` steps with at most `k` participations.
    pub fn expected_error(&self, steps: usize, max_participations: usize) -> f64 {
        (max_participations as f64 * self.objective / steps as f64).sqrt()
    }
}

/// A factor with its certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// `C`, unit columns.
    pub strategy: BandedLower,
    /// How close to the optimum it is.
    pub certificate: Certificate,
}

/// Where to start.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// From the banded square root, through a chain of shorter problems.
    Cold,
    /// From a factor of the same bands and at most as many steps, stretched if it has fewer.
    Warm(&'a BandedLower),
}

/// The optimal factor with `bands` diagonals for the workload with inverse `inverse_workload`.
///
/// Ends at the requested certified gap, or with `converged: false` and the gap it has when the
/// iterations are used up, the objective stops falling, or `progress` breaks. `O(n b^2)`
/// multiply-adds per iteration and `O(n b)` memory, about 45 doubles per band entry.
pub fn solve(
    inverse_workload: &BandedLower,
    bands: usize,
    options: &Options,
    start: Start<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Solution> {
    let inverse = checked_workload(inverse_workload, options)?;
    let n = inverse.steps();
    if bands == 0 || bands > n {
        return Err(Error::Bands { bands, steps: n });
    }
    let start = match start {
        Start::Cold => None,
        Start::Warm(factor) => Some(checked_start(factor, bands, n)?),
    };
    let mut session = solver::Session { progress, iterations: 0, evaluations: 0, cancelled: false };
    let (columns, certificate) =
        solver::solve_chain(&inverse, bands, options, start, &mut session)?;
    let mut strategy = BandedLower::zeros(n, bands)?;
    for i in 0..n {
        for (k, entry) in strategy.row_mut(i).iter_mut().enumerate().take(i + 1) {
            *entry = columns[(i - k) * bands + k];
        }
    }
    Ok(Solution { strategy, certificate })
}

fn checked_workload(matrix: &BandedLower, options: &Options) -> Result<InverseWorkload> {
    if !(1..=3).contains(&matrix.bands()) {
        return Err(Error::SizeMismatch {
            what: "diagonals of the inverse workload",
            expected: 3,
            found: matrix.bands(),
        });
    }
    matrix.check_invertible()?;
    if !(1e-9..1.0).contains(&options.relative_gap) {
        return Err(Error::Tolerance { tolerance: options.relative_gap });
    }
    Ok(InverseWorkload::new(matrix))
}

fn checked_start(factor: &BandedLower, bands: usize, n: usize) -> Result<Columns> {
    if factor.bands() != bands {
        return Err(Error::SizeMismatch {
            what: "bands of the starting factor",
            expected: bands,
            found: factor.bands(),
        });
    }
    factor.check_invertible()?;
    if factor.steps() > n {
        return Err(Error::SizeMismatch {
            what: "steps of the starting factor, at most",
            expected: n,
            found: factor.steps(),
        });
    }
    let mut columns = vec![0.0; factor.steps() * bands];
    for i in 0..factor.steps() {
        for (k, entry) in factor.row(i).iter().enumerate().take(i + 1) {
            columns[(i - k) * bands + k] = *entry;
        }
    }
    Ok(columns)
}
