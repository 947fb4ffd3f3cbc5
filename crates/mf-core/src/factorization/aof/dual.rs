//! The dual matrix `Z = S^-1 A^T A S^-1` and the Gram matrix `S = C^T C` on the band.

use rayon::prelude::*;

use super::window::{PADDING, multiply, stride_for};

/// Row stride of the band of `Z` and `S` for a factor of `bands` diagonals.
pub(super) fn band_stride(bands: usize) -> usize {
    stride_for(bands - 1)
}

/// Band of `Z = -df/dS`, by rows of lags `0..bands`, from the factor and its unprojected gradient.
///
/// `df/dC = -2 C Z` on the band; because `C` is lower triangular this determines the band of `Z`
/// row by row from the top. Entries off the diagonal vanish at the optimum and the diagonal holds
/// the multipliers of the unit-column constraints, which are positive wherever the diagonal of `C`
/// is. `n b^2` multiply-adds.
pub(super) fn band_of_dual(columns: &[f64], gradient: &[f64], bands: usize) -> Vec<f64> {
    let n = columns.len() / bands;
    let stride = band_stride(bands);
    let width = bands - 1;
    let mut rows = vec![0.0; n * stride];
    let mut x = vec![0.0; width + PADDING];
    let mut product = vec![0.0; width + PADDING];
    for i in 0..n {
        let reach = width.min(i);
        let reciprocal = 1.0 / columns[i * bands];
        for m in 1..=reach {
            x[m - 1] = -columns[(i - m) * bands + m] * reciprocal;
        }
        let (past, row) = rows.split_at_mut(i * stride);
        multiply(past, stride, reach, &x, &mut product);
        let mut diagonal = -0.5 * gradient[i * bands] * reciprocal;
        for k in 1..=reach {
            row[k] = product[k - 1] - 0.5 * gradient[(i - k) * bands + k] * reciprocal;
            diagonal += x[k - 1] * row[k];
        }
        row[0] = diagonal;
    }
    rows
}

/// Band of `S = C^T C` by rows of lags `0..bands`. `n b^2/2` multiply-adds.
pub(super) fn gram(columns: &[f64], bands: usize) -> Vec<f64> {
    let n = columns.len() / bands;
    let stride = band_stride(bands);
    let mut rows = vec![0.0; n * stride];
    rows.par_chunks_mut(stride).enumerate().for_each(|(i, row)| {
        let mine = &columns[i * bands..(i + 1) * bands];
        for (k, value) in row.iter_mut().enumerate().take(bands.min(i + 1)) {
            let other = &columns[(i - k) * bands + k..(i - k + 1) * bands];
            *value = dot_lanes(mine, other);
        }
    });
    rows
}

/// Dot product over the shorter length, in eight independent sums.
pub(super) fn dot_lanes(x: &[f64], y: &[f64]) -> f64 {
    let length = x.len().min(y.len());
    let (xs, x_rest) = x[..length].as_chunks::<8>();
    let (ys, y_rest) = y[..length].as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in xs.iter().zip(ys) {
        for t in 0..8 {
            sums[t] += a[t] * b[t];
        }
    }
    let rest: f64 = x_rest.iter().zip(y_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}
