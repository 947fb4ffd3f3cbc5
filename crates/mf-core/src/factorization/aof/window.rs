//! Kernels on the symmetric window of a band-stored symmetric matrix.
//!
//! A symmetric matrix is kept as rows of lags: `rows[r * stride + l]` is entry `(r, r - l)`. The
//! window before row `i` is the block of rows and columns `i - w .. i`; its element
//! `(i - 1 - a, i - 1 - m)` with `m >= a` is element `m - a` of row `i - 1 - a`, so one stored row serves a dot
//! product and an axpy with the same loads. Vectors over the window are indexed by `a` (0 is the
//! newest row) and padded with [`PADDING`] zeros, and rows with at least as many unused places, so
//! that the vector loops need no remainder.

use super::lanes::{axpy, dispatched, dot, fma, load, store, total};

/// Zeros that must follow the window's elements in every vector and the used lags in every row.
pub(super) const PADDING: usize = 4;

/// The storage stride for rows with lags `0..=width`.
pub(super) fn stride_for(width: usize) -> usize {
    (width + 1 + PADDING).next_multiple_of(4)
}

dispatched! {
    /// `out = P x` for the window `P` of the newest `width` rows of `rows`, whose last row is the
    /// newest.
    ///
    /// `x` and `out` hold `width + PADDING` elements and `x` is zero past `width`; what `out` holds
    /// past `width` is unspecified. `width^2` multiply-adds from `width^2/2` loaded elements.
    pub(super) fn multiply(rows: &[f64], stride: usize, width: usize, x: &[f64], out: &mut [f64]) = multiply_body
}

#[inline(always)]
fn multiply_body<const FUSED: bool>(
    rows: &[f64],
    stride: usize,
    width: usize,
    x: &[f64],
    out: &mut [f64],
) {
    let x = &x[..width + PADDING];
    let out = &mut out[..width + PADDING];
    out.fill(0.0);
    let count = rows.len() / stride;
    let row = |a: usize| &rows[(count - 1 - a) * stride..(count - a) * stride];
    let mut a = 0;
    while a + 4 <= width {
        let r = [row(a), row(a + 1), row(a + 2), row(a + 3)];
        // The triangle on the diagonal, then full columns where all four rows take part.
        for t in 0..4 {
            out[a + t] = fma::<FUSED>(r[t][0], x[a + t], out[a + t]);
            for u in t + 1..4 {
                out[a + t] = fma::<FUSED>(r[t][u - t], x[a + u], out[a + t]);
                out[a + u] = fma::<FUSED>(r[t][u - t], x[a + t], out[a + u]);
            }
        }
        let y = [x[a], x[a + 1], x[a + 2], x[a + 3]];
        let mut sums = [[0.0; 4]; 4];
        let quads = (width - a - 4).div_ceil(4);
        let xs = x[a + 4..a + 4 + 4 * quads].as_chunks::<4>().0;
        let os = out[a + 4..a + 4 + 4 * quads].as_chunks_mut::<4>().0;
        let r0 = r[0][4..4 + 4 * quads].as_chunks::<4>().0;
        let r1 = r[1][3..3 + 4 * quads].as_chunks::<4>().0;
        let r2 = r[2][2..2 + 4 * quads].as_chunks::<4>().0;
        let r3 = r[3][1..1 + 4 * quads].as_chunks::<4>().0;
        for (((((&v, o), &e0), &e1), &e2), &e3) in xs.iter().zip(os).zip(r0).zip(r1).zip(r2).zip(r3)
        {
            let mut acc = axpy::<FUSED>(y[0], e0, *o);
            sums[0] = dot::<FUSED>(e0, v, sums[0]);
            acc = axpy::<FUSED>(y[1], e1, acc);
            sums[1] = dot::<FUSED>(e1, v, sums[1]);
            acc = axpy::<FUSED>(y[2], e2, acc);
            sums[2] = dot::<FUSED>(e2, v, sums[2]);
            *o = axpy::<FUSED>(y[3], e3, acc);
            sums[3] = dot::<FUSED>(e3, v, sums[3]);
        }
        for t in 0..4 {
            out[a + t] += total(sums[t]);
        }
        a += 4;
    }
    for a in a..width {
        let r = row(a);
        out[a] = fma::<FUSED>(r[0], x[a], out[a]);
        for m in a + 1..width {
            out[a] = fma::<FUSED>(r[m - a], x[m], out[a]);
            out[m] = fma::<FUSED>(r[m - a], x[a], out[m]);
        }
    }
}

dispatched! {
    /// `P += x h^T + y x^T` on the stored half of the window of the newest `width` rows, for a
    /// symmetric sum, that is `h = q x + y` with a scalar `q`.
    ///
    /// Vectors and padding as in [`multiply`], all three zero past `width`. `width^2` multiply-adds.
    pub(super) fn update(rows: &mut [f64], stride: usize, width: usize, x: &[f64], h: &[f64], y: &[f64]) = update_body
}

#[inline(always)]
fn update_body<const FUSED: bool>(
    rows: &mut [f64],
    stride: usize,
    width: usize,
    x: &[f64],
    h: &[f64],
    y: &[f64],
) {
    let (x, h) = (&x[..width + PADDING], &h[..width + PADDING]);
    let y = &y[..width];
    let count = rows.len() / stride;
    let window = &mut rows[(count - width) * stride..];
    let mut a = width;
    // Two rows at a time, oldest first: the loads of `x` and `h` are shared, the stores are the
    // limit.
    while a >= 2 {
        a -= 2;
        let pair = &mut window[(width - 2 - a) * stride..(width - a) * stride];
        let (older, newer) = pair.split_at_mut(stride);
        let (xa, ya, xb, yb) = (x[a], y[a], x[a + 1], y[a + 1]);
        newer[0] += fma::<FUSED>(xa, h[a], ya * xa);
        let quads = (width - a - 1).div_ceil(4);
        let xs = x[a + 1..a + 1 + 4 * quads].as_chunks::<4>().0;
        let hs = h[a + 1..a + 1 + 4 * quads].as_chunks::<4>().0;
        let news = newer[1..1 + 4 * quads].as_chunks_mut::<4>().0;
        let olds = older[..4 * quads].as_chunks_mut::<4>().0;
        for (((&xv, &hv), new), old) in xs.iter().zip(hs).zip(news).zip(olds) {
            *new = axpy::<FUSED>(ya, xv, axpy::<FUSED>(xa, hv, *new));
            *old = axpy::<FUSED>(yb, xv, axpy::<FUSED>(xb, hv, *old));
        }
    }
    if a == 1 {
        let row = &mut window[(width - 1) * stride..];
        let mut m = 0;
        while m < width {
            let sum = axpy::<FUSED>(x[0], load(h, m), load(row, m));
            store(row, m, axpy::<FUSED>(y[0], load(x, m), sum));
            m += 4;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a band with recognisable entries, the window's dense form and a vector.
    fn instance(width: usize) -> (Vec<f64>, usize, Vec<Vec<f64>>, Vec<f64>) {
        let stride = stride_for(width);
        let count = width + 3;
        let mut rows = vec![0.0; count * stride];
        for (r, row) in rows.chunks_mut(stride).enumerate() {
            for (l, value) in row.iter_mut().enumerate().take(width + 1) {
                *value = ((r * 37 + l * 11) % 23) as f64 / 7.0 - 1.0;
            }
        }
        let entry = |a: usize, m: usize| rows[(count - 1 - a.min(m)) * stride + a.abs_diff(m)];
        let dense = (0..width).map(|a| (0..width).map(|m| entry(a, m)).collect()).collect();
        let mut x: Vec<f64> = (0..width).map(|a| (a % 5) as f64 - 1.7).collect();
        x.resize(width + PADDING, 0.0);
        (rows, stride, dense, x)
    }

    #[test]
    fn products_equal_the_dense_ones_at_every_width() {
        for width in 0..=37 {
            let (rows, stride, dense, x) = instance(width);
            let mut fast = vec![0.0; width + PADDING];
            let mut portable = fast.clone();
            multiply(&rows, stride, width, &x, &mut fast);
            multiply_body::<false>(&rows, stride, width, &x, &mut portable);
            for a in 0..width {
                let exact: f64 = dense[a].iter().zip(&x).map(|(p, x)| p * x).sum();
                assert!(
                    (fast[a] - exact).abs() < 1e-12 && (portable[a] - exact).abs() < 1e-12,
                    "width {width}"
                );
            }
        }
    }

    #[test]
    fn updates_equal_the_dense_ones_at_every_width() {
        for width in 0..=37 {
            let (mut rows, stride, dense, x) = instance(width);
            let mut y: Vec<f64> = (0..width).map(|a| (a % 3) as f64 - 0.4).collect();
            y.resize(width + PADDING, 0.0);
            let h: Vec<f64> = x.iter().zip(&y).map(|(x, y)| 1.5 * x + y).collect();
            let mut portable = rows.clone();
            update(&mut rows, stride, width, &x, &h, &y);
            update_body::<false>(&mut portable, stride, width, &x, &h, &y);
            let count = width + 3;
            for a in 0..width {
                for m in a..width {
                    let exact = dense[a][m] + x[a] * h[m] + y[a] * x[m];
                    for rows in [&rows, &portable] {
                        assert!(
                            (rows[(count - 1 - a) * stride + m - a] - exact).abs() < 1e-12,
                            "width {width}"
                        );
                    }
                }
            }
        }
    }
}
