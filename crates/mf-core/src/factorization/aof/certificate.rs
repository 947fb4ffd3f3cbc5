//! A lower bound on the optimal `f` from any feasible factor.
//!
//! For every `Y >= 0` that vanishes on the band off the diagonal, weak duality gives `f* >= (tr (A Y
//! A^T)^{1/2})^2 / tr Y`. Start from `Z = S^-1 A^T A S^-1` and let `R` be what it has on the band off the
//! diagonal, zero at the optimum. With a diagonal `D >= 0` of our choice, `Q = R - D` and `Y = Z -
//! Q` is admissible; writing `N = A S^-1 A^T` and `E = T^T S Q S T`, a banded matrix, `A Y A^T = N (I -
//! E) N^T`, and the trace norm of `N (I - E)^{1/2}` is at least its trace. If `E <= delta I` with `delta < 1`,
//! then `sqrt(1 - e) >= 1 - e/2 - c e^2` for every eigenvalue `e`, with `c = 1/2 (1 + sqrt(1 - delta))^-2`, and
//! because `tr N = f`, `tr N E = tr Q S`, `tr Y = f - tr Q S`:
//!
//! ```text
//! f* >= (f - r/2 - c nu)^2 / (f - r),   r = tr Q S,   nu = tr N E^2 = ||C Q S T||_F^2.
//! ```
//!
//! The distance of the bound from `f` is of second order in `Q`. `D` does not enter to first order;
//! it is zero unless `E <= delta I` fails without it. Evaluated in ordinary floating point, without
//! directed rounding.

use rayon::prelude::*;

use super::cholesky::factor;
use super::dual::{band_of_dual, band_stride, gram};
use super::lanes::{axpy, dispatched};
use super::workload::InverseWorkload;

/// Eigenvalue bound tested by factorization when no norm settles it.
const TESTED_EIGENVALUE: f64 = 0.9;
/// Multiples of the row sums of `|R|` tried as `D`; 1 makes `Q <= 0` by diagonal dominance.
const SHIFTS: [f64; 4] = [0.0, 0.02, 0.06, 0.2];

/// Lower bound on the optimum from a factor with unit columns, its value and its unprojected
/// derivative, or `None` if none could be certified at this point. `target` is the bound hoped for:
/// repairs by `D` are attempted only if they could reach it, none being attempted for
/// `f64::INFINITY`. About `15 n b^2` multiply-adds, more with a repair.
pub(super) fn lower_bound(
    inverse: &InverseWorkload,
    columns: &[f64],
    derivative: &[f64],
    value: f64,
    bands: usize,
    target: f64,
) -> Option<f64> {
    let residual = Residual::new(inverse, columns, derivative, bands);
    for shift in SHIFTS {
        let (trace, spread, images) = residual.moments(columns, shift);
        let bound = |delta: f64| {
            let curvature = 0.5 / (1.0 + (1.0 - delta).sqrt()).powi(2);
            let root = value - 0.5 * trace - curvature * spread;
            if root > 0.0 { root * root / (value - trace) } else { 0.0 }
        };
        let promising = bound(TESTED_EIGENVALUE) >= target;
        if let Some(delta) = residual.largest_eigenvalue(&images, promising || shift == 0.0) {
            let lower = bound(delta);
            return (lower > 0.0 && lower.is_finite()).then_some(lower);
        }
        if !promising {
            return None;
        }
    }
    None
}

/// `R`, with what is needed to judge `R - D`.
struct Residual {
    bands: usize,
    /// Band of `R`, the diagonal zero.
    residual: Vec<f64>,
    /// Row sums of `|R|`, weighted by `sqrt(Z_jj / Z_kk)` so that they are commensurate with `Z_jj`.
    sums: Vec<f64>,
    /// Band of `S`.
    gram: Vec<f64>,
    /// `X = S T`.
    images: Rows,
}

impl Residual {
    fn new(inverse: &InverseWorkload, columns: &[f64], derivative: &[f64], bands: usize) -> Self {
        let (n, b, stride) = (inverse.steps(), bands, band_stride(bands));
        let gram = gram(columns, b);
        let mut residual = band_of_dual(columns, derivative, b);
        let multipliers: Vec<f64> = residual.iter().step_by(stride).copied().collect();
        let mut sums = vec![0.0; n];
        for i in 0..n {
            residual[i * stride] = 0.0;
            for k in 1..b.min(i + 1) {
                let size = residual[i * stride + k].abs();
                let ratio = (multipliers[i] / multipliers[i - k]).sqrt();
                sums[i] += size * ratio;
                sums[i - k] += size / ratio;
            }
        }
        let mut images = Rows::new(n, b + 1, b - 1);
        let before = images.before;
        images.values.par_chunks_mut(images.stride).enumerate().for_each(|(i, row)| {
            for j in i.saturating_sub(before)..(i + b).min(n) {
                let column = &inverse.columns[j];
                row[j + before - i] =
                    (j..n.min(j + 3)).map(|m| symmetric(&gram, b, i, m) * column[m - j]).sum();
            }
        });
        Self { bands, residual, sums, gram, images }
    }

    fn steps(&self) -> usize {
        self.sums.len()
    }

    /// `tr Q S`, `||C Q X||_F^2` and `Q X` for `D` equal to `shift` times the row sums.
    fn moments(&self, columns: &[f64], shift: f64) -> (f64, f64, Rows) {
        let (n, b, stride) = (self.steps(), self.bands, band_stride(self.bands));
        let mut trace: f64 = -shift * self.sums.iter().sum::<f64>();
        for i in 0..n {
            let places = i * stride + 1..i * stride + b.min(i + 1);
            trace += 2.0
                * self.residual[places.clone()]
                    .iter()
                    .zip(&self.gram[places])
                    .map(|(r, s)| r * s)
                    .sum::<f64>();
        }
        let mut products = Rows::new(n, 2 * b, 2 * b - 2);
        let offset = products.before - self.images.before;
        products.values.par_chunks_mut(products.stride).enumerate().for_each(|(i, row)| {
            let first = i.saturating_sub(b - 1);
            let entries: Vec<f64> = (first..(i + b).min(n))
                .map(|m| {
                    if m == i { -shift * self.sums[i] } else { symmetric(&self.residual, b, i, m) }
                })
                .collect();
            accumulate(&entries, &self.images, first, &mut row[first + offset - i..]);
        });
        // Collected before it is added up: a parallel sum has another order in every run.
        let spreads: Vec<f64> = (0..n)
            .into_par_iter()
            .map_init(
                || vec![0.0; products.stride + b],
                |row, i| {
                    row.fill(0.0);
                    let first = i.saturating_sub(b - 1);
                    let entries: Vec<f64> = (first..=i).map(|j| columns[j * b + i - j]).collect();
                    accumulate(&entries, &products, first, &mut row[b + first - i..]);
                    row.iter().map(|v| v * v).sum::<f64>()
                },
            )
            .collect();
        (trace, spreads.iter().sum(), products)
    }

    /// An upper bound below 1 on the eigenvalues of `E = X^T (Q X)`, if one can be shown;
    /// `factorize` allows the expensive test.
    fn largest_eigenvalue(&self, products: &Rows, factorize: bool) -> Option<f64> {
        let (n, b) = (self.steps(), self.bands);
        let width = 3 * b + 1;
        let stride = (width + 1).next_multiple_of(4);
        let before = self.images.before;
        let mut rows = vec![0.0; n * stride];
        rows.par_chunks_mut(stride).enumerate().for_each_init(
            || vec![0.0; 6 * b + 16],
            |buffer, (i, row)| {
                // Place `p` of the buffer is column `i + p - width`.
                buffer.fill(0.0);
                let first = i.saturating_sub(b - 1);
                let entries: Vec<f64> = (first..(i + b + 2).min(n))
                    .map(|m| self.images.row(m)[i + before - m])
                    .collect();
                accumulate(
                    &entries,
                    products,
                    first,
                    &mut buffer[first + width - i - products.before..],
                );
                for (lag, value) in row.iter_mut().enumerate().take(width.min(i) + 1) {
                    *value = buffer[width - lag];
                }
            },
        );
        let mut sums = vec![0.0; n];
        let mut squares = 0.0;
        for i in 0..n {
            let row = &rows[i * stride..(i + 1) * stride];
            sums[i] += row[0].abs();
            squares += row[0] * row[0];
            for (lag, value) in row.iter().enumerate().take(width.min(i) + 1).skip(1) {
                squares += 2.0 * value * value;
                sums[i] += value.abs();
                sums[i - lag] += value.abs();
            }
        }
        let norm = sums.into_iter().fold(0.0, f64::max).min(squares.sqrt());
        if norm <= TESTED_EIGENVALUE {
            return Some(norm);
        }
        if !factorize || !norm.is_finite() {
            return None;
        }
        rows.par_chunks_mut(stride).for_each(|row| {
            row.iter_mut().for_each(|v| *v = -*v);
            row[0] += TESTED_EIGENVALUE;
        });
        factor(&mut rows, stride, width).then_some(TESTED_EIGENVALUE)
    }
}

/// A band matrix by rows: place `c` of row `i` is column `i - before + c`.
struct Rows {
    before: usize,
    stride: usize,
    values: Vec<f64>,
}

impl Rows {
    fn new(n: usize, before: usize, after: usize) -> Self {
        let stride = before + after + 1;
        Self { before, stride, values: vec![0.0; n * stride] }
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.values[i * self.stride..(i + 1) * self.stride]
    }
}

/// Entry `(i, j)` of a symmetric matrix given by the rows of its band.
fn symmetric(rows: &[f64], bands: usize, i: usize, j: usize) -> f64 {
    let (high, low) = (i.max(j), i.min(j));
    if high - low < bands { rows[high * band_stride(bands) + high - low] } else { 0.0 }
}

/// `out[c + t] += sum_t a_t rows_t[c]` for the consecutive band rows `first..first + a.len()` of
/// `matrix`: row `t` starts one place after row `t - 1`.
fn accumulate(a: &[f64], matrix: &Rows, first: usize, out: &mut [f64]) {
    accumulate_rows(a, &matrix.values[first * matrix.stride..], matrix.stride, out);
}

dispatched! {
    fn accumulate_rows(a: &[f64], rows: &[f64], stride: usize, out: &mut [f64]) = accumulate_rows_body
}

#[inline(always)]
fn accumulate_rows_body<const FUSED: bool>(
    a: &[f64],
    rows: &[f64],
    stride: usize,
    out: &mut [f64],
) {
    let (fours, rest) = a.as_chunks::<4>();
    for (block, a) in fours.iter().enumerate() {
        let rows = &rows[4 * block * stride..(4 * block + 4) * stride];
        let out = &mut out[4 * block..4 * block + stride + 3];
        let row = |t: usize| &rows[t * stride..(t + 1) * stride];
        // Places that all four rows reach, then the three at either end.
        let quads = (stride - 3) / 4;
        let parts: [&[[f64; 4]]; 4] =
            [3, 2, 1, 0].map(|skip| row(3 - skip)[skip..skip + 4 * quads].as_chunks().0);
        let shared = out[3..3 + 4 * quads].as_chunks_mut::<4>().0;
        for ((((o, r0), r1), r2), r3) in
            shared.iter_mut().zip(parts[0]).zip(parts[1]).zip(parts[2]).zip(parts[3])
        {
            let sum = axpy::<FUSED>(a[1], *r1, axpy::<FUSED>(a[0], *r0, *o));
            *o = axpy::<FUSED>(a[3], *r3, axpy::<FUSED>(a[2], *r2, sum));
        }
        for t in 0..4 {
            let (skip, row) = (3 - t, row(t));
            for (c, value) in row
                .iter()
                .enumerate()
                .take(skip)
                .chain(row.iter().enumerate().skip(skip + 4 * quads))
            {
                out[c + t] += a[t] * value;
            }
        }
    }
    let done = 4 * fours.len();
    for (t, a) in rest.iter().enumerate() {
        let row = &rows[(done + t) * stride..(done + t + 1) * stride];
        for (value, o) in row.iter().zip(&mut out[done + t..]) {
            *o += a * value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::banded::BandedLower;
    use crate::factorization::aof::objective::Objective;
    use crate::factorization::aof::warm_start::{normalize, square_root};
    use crate::factorization::aof::{Options, Start, solve};

    /// Around the optimum, at every distance, the bound stays below the optimal value and tightens
    /// quadratically.
    #[test]
    fn bounds_hold_at_any_distance_from_the_optimum() {
        let (n, bands) = (70, 12);
        let mut matrix = BandedLower::zeros(n, n.min(3)).unwrap();
        for i in 0..n {
            for (k, entry) in [1.0, -1.9, 0.9].into_iter().enumerate().take(i + 1) {
                matrix.row_mut(i)[k] = entry;
            }
        }
        let inverse = InverseWorkload::new(&matrix);
        let options = Options { relative_gap: 1e-8, ..Options::default() };
        let best = solve(&matrix, bands, &options, Start::Cold, &mut |_| {
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert!(best.certificate.converged);
        let mut certified = Vec::new();
        let mut repaired = 0;
        for exponent in 0..32 {
            let size = 0.5f64.powi(exponent);
            let mut columns = square_root(&inverse, bands);
            for j in 0..n {
                for k in 0..bands.min(n - j) {
                    let noise = 1.0 + size * ((j * 31 + k * 17) as f64).sin();
                    columns[j * bands + k] = best.strategy.entry(j + k, j) * noise;
                }
            }
            normalize(&mut columns, bands);
            let mut derivative = vec![0.0; n * bands];
            let value = Objective::new(&inverse, bands).evaluate(&columns, &mut derivative);
            if let Some(lower) = lower_bound(&inverse, &columns, &derivative, value, bands, 0.0) {
                assert!(
                    lower <= best.certificate.objective * (1.0 + 1e-12),
                    "size {size}: {lower}"
                );
                certified.push(1.0 - lower / value);
                let residual = Residual::new(&inverse, &columns, &derivative, bands);
                let (_, _, images) = residual.moments(&columns, 0.0);
                repaired += usize::from(residual.largest_eigenvalue(&images, true).is_none());
            }
        }
        assert!(certified.len() >= 4, "{certified:?}");
        assert!(repaired > 0, "no bound needed D");
        assert!(certified.last().is_some_and(|gap| *gap < 1e-7), "{certified:?}");
    }
}
