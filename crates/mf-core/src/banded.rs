//! Lower-triangular matrices with few diagonals, stored by rows.

use crate::error::{Error, Result};

/// A lower-triangular `n x n` matrix whose entries vanish from the `p`-th diagonal on.
///
/// Row-major by lag: entry `(i, i - k)` stands at `entries[i * p + k]`, so that one row is one slice
/// and the diagonal comes first. Places left of column 0 are kept at zero. Memory: `n p` doubles.
#[derive(Debug, Clone, PartialEq)]
pub struct BandedLower {
    steps: usize,
    bands: usize,
    entries: Vec<f64>,
}

impl BandedLower {
    /// The zero matrix.
    ///
    /// # Errors
    /// [`Error::NoSteps`] or [`Error::Bands`].
    pub fn zeros(steps: usize, bands: usize) -> Result<Self> {
        if steps == 0 {
            return Err(Error::NoSteps);
        }
        if bands == 0 || bands > steps {
            return Err(Error::Bands { bands, steps });
        }
        let entries = steps.checked_mul(bands).filter(|&entries| entries <= 1 << 40);
        let entries = entries.ok_or(Error::Bands { bands, steps })?;
        Ok(Self { steps, bands, entries: vec![0.0; entries] })
    }

    /// The matrix whose rows, by lag, are concatenated in `entries`. Places left of column 0 are set
    /// to zero.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros); [`Error::SizeMismatch`] unless there are `steps * bands` entries;
    /// [`Error::NotFinite`].
    pub fn from_entries(steps: usize, bands: usize, mut entries: Vec<f64>) -> Result<Self> {
        if steps == 0 {
            return Err(Error::NoSteps);
        }
        if bands == 0 || bands > steps {
            return Err(Error::Bands { bands, steps });
        }
        if Some(entries.len()) != steps.checked_mul(bands) {
            return Err(Error::SizeMismatch {
                what: "entries of a banded matrix",
                expected: steps.saturating_mul(bands),
                found: entries.len(),
            });
        }
        for row in 0..bands.min(steps) {
            entries[row * bands + row + 1..(row + 1) * bands].fill(0.0);
        }
        if let Some(at) = entries.iter().position(|x| !x.is_finite()) {
            let (row, lag) = (at / bands, at % bands);
            return Err(Error::NotFinite { row, column: row - lag });
        }
        Ok(Self { steps, bands, entries })
    }

    /// The banded Toeplitz matrix with the given first column, as rows.
    ///
    /// # Errors
    /// As [`from_entries`](Self::from_entries).
    pub fn toeplitz(steps: usize, coefficients: &[f64]) -> Result<Self> {
        let entries = coefficients.repeat(steps);
        Self::from_entries(steps, coefficients.len(), entries)
    }

    /// `n`, the number of rows.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// `p`, the number of diagonals.
    pub fn bands(&self) -> usize {
        self.bands
    }

    /// Row `i` by lag: its first element is the diagonal.
    pub fn row(&self, i: usize) -> &[f64] {
        &self.entries[i * self.bands..(i + 1) * self.bands]
    }

    /// Row `i` by lag, to write. Places left of column 0 must stay zero.
    pub fn row_mut(&mut self, i: usize) -> &mut [f64] {
        &mut self.entries[i * self.bands..(i + 1) * self.bands]
    }

    /// All rows, one after the other.
    pub fn entries(&self) -> &[f64] {
        &self.entries
    }

    /// Entry `(i, j)`, zero outside the band.
    pub fn entry(&self, i: usize, j: usize) -> f64 {
        if j <= i && i - j < self.bands { self.entries[i * self.bands + i - j] } else { 0.0 }
    }

    /// The squared Euclidean norm of every column. O(n p).
    pub fn column_norms_squared(&self) -> Vec<f64> {
        let mut norms = vec![0.0; self.steps];
        for i in 0..self.steps {
            for (lag, x) in self.row(i).iter().take(i + 1).enumerate() {
                norms[i - lag] += x * x;
            }
        }
        norms
    }

    /// The product `self * other`, with `p + q - 1` diagonals (at most `n`). O(n p q).
    ///
    /// # Errors
    /// [`Error::SizeMismatch`] if the sizes differ.
    pub fn product(&self, other: &Self) -> Result<Self> {
        if self.steps != other.steps {
            return Err(Error::SizeMismatch {
                what: "rows of a product's right factor",
                expected: self.steps,
                found: other.steps,
            });
        }
        let bands = (self.bands + other.bands - 1).min(self.steps);
        let mut product = Self::zeros(self.steps, bands)?;
        for i in 0..self.steps {
            for (lag, &x) in self.row(i).iter().take(i + 1).enumerate() {
                let right = other.row(i - lag);
                let row = &mut product.entries[i * bands..(i + 1) * bands];
                for (y, z) in row[lag..].iter_mut().zip(right) {
                    *y += x * z;
                }
            }
        }
        Ok(product)
    }

    /// Checks that every entry is finite and the diagonal positive: what a strategy `C` needs to be
    /// invertible.
    ///
    /// # Errors
    /// [`Error::NotFinite`] or [`Error::NonPositiveDiagonal`].
    pub fn check_invertible(&self) -> Result<()> {
        if let Some(at) = self.entries.iter().position(|x| !x.is_finite()) {
            let (row, lag) = (at / self.bands, at % self.bands);
            return Err(Error::NotFinite { row, column: row.saturating_sub(lag) });
        }
        match (0..self.steps).find(|&i| self.row(i)[0] <= 0.0) {
            Some(index) => Err(Error::NonPositiveDiagonal { index, value: self.row(index)[0] }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_stored_by_lag_and_cut_at_column_zero() {
        let c = BandedLower::toeplitz(4, &[1.0, 0.5, 0.25]).unwrap();
        assert_eq!(c.row(0), &[1.0, 0.0, 0.0]);
        assert_eq!(c.row(1), &[1.0, 0.5, 0.0]);
        assert_eq!((c.entry(3, 1), c.entry(3, 0), c.entry(1, 3)), (0.25, 0.0, 0.0));
        assert_eq!(c.column_norms_squared(), &[1.3125, 1.3125, 1.25, 1.0]);
    }

    #[test]
    fn product_agrees_with_the_dense_product() {
        let a = BandedLower::toeplitz(5, &[2.0, -1.0, 0.5]).unwrap();
        let b = BandedLower::toeplitz(5, &[1.0, 3.0, -2.0, 0.25]).unwrap();
        let c = a.product(&b).unwrap();
        assert_eq!(c.bands(), 5);
        for i in 0..5 {
            for j in 0..5 {
                let dense: f64 = (0..5).map(|k| a.entry(i, k) * b.entry(k, j)).sum();
                assert_eq!(c.entry(i, j), dense);
            }
        }
    }

    #[test]
    fn bad_sizes_are_refused() {
        assert_eq!(BandedLower::zeros(3, 4), Err(Error::Bands { bands: 4, steps: 3 }));
        assert!(BandedLower::from_entries(2, 1, vec![1.0]).is_err());
        let nan = BandedLower::from_entries(2, 2, vec![1.0, f64::NAN, f64::NAN, 1.0]);
        assert_eq!(nan, Err(Error::NotFinite { row: 1, column: 1 }));
    }
}
