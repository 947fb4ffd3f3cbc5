//! Cholesky factorization of band-stored symmetric matrices.

use super::lanes::{dispatched, dot, fma, total};

dispatched! {
    /// Overwrites a symmetric band matrix (`rows[i * stride + l]` is entry `(i, i - l)`, `l <= width`)
    /// by its Cholesky factor in the same layout; false, with the matrix destroyed, if a pivot is
    /// not positive.
    ///
    /// `n width^2/2` multiply-adds.
    pub(super) fn factor(rows: &mut [f64], stride: usize, width: usize) -> bool = factor_body
}

#[inline(always)]
fn factor_body<const FUSED: bool>(rows: &mut [f64], stride: usize, width: usize) -> bool {
    let n = rows.len() / stride;
    let mut reciprocals = vec![0.0; n];
    // The current row in ascending column order, so that both operands of a dot product run
    // forwards.
    let mut current = vec![0.0; width + 1];
    // Recent rows in ascending column order, one circular buffer slot each.
    let span = width + 1;
    let mut recent = vec![0.0; span * span];
    for i in 0..n {
        let reach = width.min(i);
        let row = &mut rows[i * stride..i * stride + width + 1];
        for (k, value) in row.iter().enumerate().take(reach + 1) {
            current[width - k] = *value;
        }
        // `current[c]` is column `i - width + c`.
        for k in (1..=reach).rev() {
            let j = i - k;
            let other = &recent[(j % span) * span..(j % span + 1) * span];
            // Common columns: `i - reach ..j` (and not left of `j - width`, which is earlier).
            let length = reach - k;
            let from = width - reach;
            let mine = &current[from..from + length];
            let theirs = &other[width - length..width];
            let sum = inner::<FUSED>(mine, theirs);
            current[width - k] = (current[width - k] - sum) * reciprocals[j];
        }
        let from = width - reach;
        let pivot = current[width] - inner::<FUSED>(&current[from..width], &current[from..width]);
        if pivot.is_nan() || pivot <= 0.0 {
            return false;
        }
        let root = pivot.sqrt();
        current[width] = root;
        reciprocals[i] = 1.0 / root;
        recent[(i % span) * span..(i % span + 1) * span].copy_from_slice(&current);
        for (k, value) in row.iter_mut().enumerate().take(reach + 1) {
            *value = current[width - k];
        }
    }
    true
}

#[inline(always)]
fn inner<const FUSED: bool>(x: &[f64], y: &[f64]) -> f64 {
    let (xs, x_rest) = x.as_chunks::<4>();
    let (ys, y_rest) = y.as_chunks::<4>();
    let mut sums = [[0.0; 4]; 2];
    let (x_pairs, x_odd) = xs.as_chunks::<2>();
    let (y_pairs, y_odd) = ys.as_chunks::<2>();
    for (a, b) in x_pairs.iter().zip(y_pairs) {
        sums[0] = dot::<FUSED>(a[0], b[0], sums[0]);
        sums[1] = dot::<FUSED>(a[1], b[1], sums[1]);
    }
    for (a, b) in x_odd.iter().zip(y_odd) {
        sums[0] = dot::<FUSED>(*a, *b, sums[0]);
    }
    let rest = x_rest.iter().zip(y_rest).fold(0.0, |sum, (a, b)| fma::<FUSED>(*a, *b, sum));
    total(sums[0]) + total(sums[1]) + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_reproduces_the_matrix_and_indefinite_ones_are_refused() {
        for (n, width) in [(1, 0), (9, 1), (30, 7), (20, 19), (50, 33)] {
            let stride = width + 2;
            let mut rows = vec![0.0; n * stride];
            for i in 0..n {
                for k in 0..=width.min(i) {
                    rows[i * stride + k] = if k == 0 {
                        width as f64 + 1.5
                    } else {
                        ((i * 7 + k) % 5) as f64 / 4.0 - 0.5
                    };
                }
            }
            let matrix = rows.clone();
            assert!(factor(&mut rows, stride, width));
            let entry = |i: usize, j: usize| {
                if i >= j && i - j <= width { rows[i * stride + i - j] } else { 0.0 }
            };
            for i in 0..n {
                for k in 0..=width.min(i) {
                    let product: f64 = (0..=i - k).map(|m| entry(i, m) * entry(i - k, m)).sum();
                    assert!(
                        (product - matrix[i * stride + k]).abs() < 1e-12,
                        "n {n} width {width}"
                    );
                }
            }
            let mut indefinite = matrix;
            indefinite[(n - 1) * stride] = -1.0;
            assert!(!factor(&mut indefinite, stride, width));
        }
    }
}
