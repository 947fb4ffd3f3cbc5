//! Dense lower-triangular matrices, for workloads that have no structure to use.

use crate::error::{Error, Result};

/// A dense lower-triangular matrix, its rows packed one after the other: `n (n + 1) / 2` doubles.
#[derive(Debug, Clone, PartialEq)]
pub struct LowerTriangular {
    steps: usize,
    entries: Vec<f64>,
}

impl LowerTriangular {
    /// The matrix with entry `(i, j)` given by a function, for `j <= i`.
    ///
    /// # Errors
    /// [`Error::NoSteps`], [`Error::NotFinite`], or [`Error::NonPositiveDiagonal`]: a workload must be
    /// invertible, and a square root with positive diagonal must exist.
    pub fn from_fn(steps: usize, mut entry: impl FnMut(usize, usize) -> f64) -> Result<Self> {
        if steps == 0 {
            return Err(Error::NoSteps);
        }
        let mut entries = Vec::with_capacity(steps * (steps + 1) / 2);
        for i in 0..steps {
            for j in 0..=i {
                let x = entry(i, j);
                if !x.is_finite() {
                    return Err(Error::NotFinite { row: i, column: j });
                }
                if i == j && x <= 0.0 {
                    return Err(Error::NonPositiveDiagonal { index: i, value: x });
                }
                entries.push(x);
            }
        }
        Ok(Self { steps, entries })
    }

    /// `n`, the number of rows.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Row `i` up to its diagonal: columns `0..=i`.
    pub fn row(&self, i: usize) -> &[f64] {
        let start = i * (i + 1) / 2;
        &self.entries[start..=start + i]
    }
}
