//! The normalized square root: `p` diagonals of `A^{1/2}`, every column scaled to unit norm.

use crate::banded::BandedLower;
use crate::error::Result;

/// `C` with every column divided by its norm. O(n p).
///
/// The last columns of a square root are cut short and thus lighter than the first; an example that takes
/// part late is better protected than it need be. Unit columns cost no sensitivity and lower the error of
/// the late steps (Henzinger, Kalinin & Upadhyay 2025, arXiv:2509.14334, for single participation). With
/// `p <= b` the sensitivity is exactly `sqrt(k)`, and `C` is one of those among which AOF is the best.
///
/// # Errors
/// As [`BandedLower::from_entries`].
pub fn with_unit_columns(root: &BandedLower) -> Result<BandedLower> {
    let norms: Vec<f64> = root.column_norms_squared().iter().map(|x| x.sqrt()).collect();
    let mut entries = root.entries().to_vec();
    for (i, row) in entries.chunks_exact_mut(root.bands()).enumerate() {
        for (lag, x) in row.iter_mut().enumerate().take(i + 1) {
            *x /= norms[i - lag];
        }
    }
    BandedLower::from_entries(root.steps(), root.bands(), entries)
}
