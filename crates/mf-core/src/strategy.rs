//! The strategy `C`: what is made private, and by its inverse how the noise is correlated.

use crate::banded::BandedLower;
use crate::error::{Error, Result};

/// A lower-triangular strategy matrix `C` with positive diagonal and `p` diagonals.
#[derive(Debug, Clone, PartialEq)]
pub struct Strategy {
    steps: usize,
    bands: Bands,
}

/// How the diagonals of a strategy are stored.
#[derive(Debug, Clone, PartialEq)]
enum Bands {
    /// One column for all: `LDToep(c_0, ..., c_{p-1}, 0, ...)`.
    Toeplitz(Vec<f64>),
    Rows(BandedLower),
}

impl Strategy {
    /// `C = I`, which is DP-SGD: independent noise in every step.
    ///
    /// # Errors
    /// [`Error::NoSteps`].
    pub fn identity(steps: usize) -> Result<Self> {
        Self::toeplitz(steps, vec![1.0])
    }

    /// `C = LDToep(c_0, ..., c_{p-1}, 0, ...)`.
    ///
    /// # Errors
    /// [`Error::NoSteps`], [`Error::Bands`] unless `1 <= p <= n`, [`Error::NotFinite`], or
    /// [`Error::NonPositiveDiagonal`].
    pub fn toeplitz(steps: usize, coefficients: Vec<f64>) -> Result<Self> {
        if steps == 0 {
            return Err(Error::NoSteps);
        }
        let bands = coefficients.len();
        if bands == 0 || bands > steps {
            return Err(Error::Bands { bands, steps });
        }
        if let Some(row) = coefficients.iter().position(|c| !c.is_finite()) {
            return Err(Error::NotFinite { row, column: 0 });
        }
        if coefficients[0] <= 0.0 {
            return Err(Error::NonPositiveDiagonal { index: 0, value: coefficients[0] });
        }
        Ok(Self { steps, bands: Bands::Toeplitz(coefficients) })
    }

    /// A banded `C` given by its rows.
    ///
    /// # Errors
    /// [`Error::NotFinite`] or [`Error::NonPositiveDiagonal`].
    pub fn banded(rows: BandedLower) -> Result<Self> {
        rows.check_invertible()?;
        Ok(Self { steps: rows.steps(), bands: Bands::Rows(rows) })
    }

    /// `n`, the number of steps.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// `p`, the number of diagonals. The noise needs the last `p - 1` rows.
    pub fn bands(&self) -> usize {
        match &self.bands {
            Bands::Toeplitz(coefficients) => coefficients.len(),
            Bands::Rows(rows) => rows.bands(),
        }
    }

    /// Row `i` of `C` by lag, diagonal first: `min(p, i + 1)` entries.
    ///
    /// This is all that streaming needs: row `i` of `C^-1 Z` is
    /// `(z_i - sum_{k>=1} row[k] y_{i-k}) / row[0]` of the rows `y` before it.
    pub fn row(&self, i: usize) -> &[f64] {
        let row = match &self.bands {
            Bands::Toeplitz(coefficients) => coefficients,
            Bands::Rows(rows) => rows.row(i),
        };
        &row[..row.len().min(i + 1)]
    }

    /// The first column, if all columns are shifts of it.
    pub fn as_toeplitz(&self) -> Option<&[f64]> {
        match &self.bands {
            Bands::Toeplitz(coefficients) => Some(coefficients),
            Bands::Rows(_) => None,
        }
    }

    /// The matrix by its rows. O(n p) for a Toeplitz strategy, which stores only one.
    ///
    /// # Errors
    /// None in practice: the sizes were checked when the strategy was made.
    pub fn to_rows(&self) -> Result<BandedLower> {
        match &self.bands {
            Bands::Toeplitz(coefficients) => BandedLower::toeplitz(self.steps, coefficients),
            Bands::Rows(rows) => Ok(rows.clone()),
        }
    }
}
