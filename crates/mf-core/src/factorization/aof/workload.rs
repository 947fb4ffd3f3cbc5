//! The workload as the solver sees it.

use crate::banded::BandedLower;

/// The inverse workload `T = A^-1` by columns: `T_jj`, `T_{j+1,j}`, `T_{j+2,j}`.
#[derive(Clone, Debug)]
pub(super) struct InverseWorkload {
    pub(super) columns: Vec<[f64; 3]>,
    /// Largest lag with a non-zero entry.
    pub(super) reach: usize,
}

impl InverseWorkload {
    /// Reads a matrix of one to three diagonals.
    pub(super) fn new(matrix: &BandedLower) -> Self {
        let n = matrix.steps();
        let columns: Vec<[f64; 3]> = (0..n)
            .map(|j| [0, 1, 2].map(|lag| if j + lag < n { matrix.entry(j + lag, j) } else { 0.0 }))
            .collect();
        let reach = (1..3).rev().find(|&lag| columns.iter().any(|t| t[lag] != 0.0)).unwrap_or(0);
        Self { columns, reach }
    }

    pub(super) fn steps(&self) -> usize {
        self.columns.len()
    }
}
