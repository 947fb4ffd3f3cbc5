//! How the rows of one column are split into trends and Fourier modes, and how strongly each is
//! coupled.

use rayon::prelude::*;

use super::dual::dot_lanes;
use super::lanes::{axpy_single, dispatched, multiply_add};
use super::window::{PADDING, multiply};

/// Trends treated apart from the Fourier modes. `N` is dominated by its smoothest components, which
/// leak into every Fourier mode of a finite window in step with one another; a preconditioner diagonal
/// in the modes then misjudges them by up to the number of modes. Six instead of the constant alone
/// took n = 1000, b = 100 from 59 to 27 iterations with momentum 0.9 and from 50 to 40 without.
const TRENDS: usize = 6;

/// Orthonormal polynomials of degree `0..count` on the rows of a column, for every number of rows.
pub(super) struct Trends {
    bands: usize,
    pub(super) count: usize,
    values: Vec<f64>,
}

impl Trends {
    pub(super) fn new(bands: usize) -> Self {
        let count = TRENDS.min(bands);
        let mut values = vec![0.0; bands * count * bands];
        for length in 1..=bands {
            let block = &mut values[(length - 1) * count * bands..length * count * bands];
            for p in 0..count.min(length) {
                let (done, rest) = block.split_at_mut(p * bands);
                let current = &mut rest[..length];
                for (k, v) in current.iter_mut().enumerate() {
                    let x = (2.0 * k as f64 + 1.0) / length as f64 - 1.0;
                    *v = x.powi(p as i32);
                }
                for _ in 0..2 {
                    for q in done.chunks(bands) {
                        let along = dot_lanes(&q[..length], current);
                        current.iter_mut().zip(q).for_each(|(v, q)| *v -= along * q);
                    }
                    let norm = dot_lanes(current, current).sqrt();
                    current.iter_mut().for_each(|v| *v /= norm);
                }
            }
        }
        Self { bands, count, values }
    }

    /// The polynomials on `length` rows, each padded with zeros to `bands`.
    pub(super) fn on(&self, length: usize) -> impl Iterator<Item = &[f64]> {
        let size = self.count * self.bands;
        self.values[(length - 1) * size..length * size].chunks(self.bands)
    }
}

/// `kappa_m(j)/mu_j` for the Fourier modes without their trends and for the trends: Rayleigh quotients
/// of `N` over the rows of column `j`, those of a mode averaged over its phases.
pub(super) fn mode_strengths(
    bands: usize,
    multipliers: &[f64],
    output: &[f64],
    output_stride: usize,
    trends: &Trends,
) -> (Vec<f64>, Vec<f64>) {
    let n = multipliers.len();
    let (modes, count) = (bands / 2 + 1, trends.count);
    let table = |function: fn(f64) -> f64| -> Vec<f64> {
        (0..bands)
            .flat_map(|l| {
                (0..modes)
                    .map(move |m| std::f64::consts::TAU * ((m * l) % bands) as f64 / bands as f64)
            })
            .map(function)
            .collect()
    };
    let (cosines, sines) = (table(f64::cos), table(f64::sin));
    let transform = |v: &[f64], table: &[f64], out: &mut [f64]| {
        out.fill(0.0);
        for (v, row) in v.iter().zip(table.chunks(modes)) {
            out.iter_mut().zip(row).for_each(|(o, t)| *o += v * t);
        }
    };
    let mut strengths = vec![0.0; n * modes];
    let mut trend_strengths = vec![0.0; n * count];
    let block = 128;
    strengths
        .par_chunks_mut(block * modes)
        .zip(trend_strengths.par_chunks_mut((block * count).max(1)))
        .enumerate()
        .for_each(|(index, (rows, trend_rows))| {
            let first = index * block;
            // Sum of lag-l entries of N inside the window of column j: rows j + l .. j + b.
            let entry =
                |i: usize, l: usize| if i < n { output[i * output_stride + l] } else { 0.0 };
            let mut sums: Vec<f64> =
                (0..bands).map(|l| (first + l..first + bands).map(|i| entry(i, l)).sum()).collect();
            let mut reversed = vec![0.0; bands + PADDING];
            let mut product = vec![0.0; bands + PADDING];
            let mut spectra = vec![0.0; 4 * count * modes];
            let mut form = vec![0.0; count * count];
            for (offset, row) in rows.chunks_mut(modes).enumerate() {
                let j = first + offset;
                if offset > 0 {
                    for (l, sum) in sums.iter_mut().enumerate() {
                        *sum += entry(j + bands - 1, l) - entry(j + l - 1, l);
                    }
                }
                for (l, sum) in sums.iter().enumerate() {
                    let weight = if l == 0 { *sum } else { 2.0 * sum };
                    for (r, c) in row.iter_mut().zip(&cosines[l * modes..(l + 1) * modes]) {
                        *r += weight * c;
                    }
                }
                let length = bands.min(n - j);
                let polynomials: Vec<&[f64]> = trends.on(length).collect();
                for (p, q) in polynomials.iter().enumerate() {
                    for k in 0..length {
                        reversed[k] = q[length - 1 - k];
                    }
                    reversed[length..].fill(0.0);
                    multiply(
                        &output[..(j + length) * output_stride],
                        output_stride,
                        length,
                        &reversed,
                        &mut product,
                    );
                    product[..length].reverse();
                    product[length..].fill(0.0);
                    for (p2, q2) in polynomials.iter().enumerate() {
                        form[p * count + p2] = dot_lanes(&product[..length], q2);
                    }
                    let parts: Vec<&mut [f64]> =
                        spectra[4 * p * modes..4 * (p + 1) * modes].chunks_mut(modes).collect();
                    for (part, (v, t)) in parts.into_iter().zip([
                        (&q[..length], &cosines),
                        (&q[..length], &sines),
                        (&product[..length], &cosines),
                        (&product[..length], &sines),
                    ]) {
                        transform(v, t, part);
                    }
                    trend_rows[offset * count + p] =
                        (form[p * count + p] / multipliers[j]).max(0.0);
                }
                for (m, r) in row.iter_mut().enumerate() {
                    let mut leak = 0.0;
                    let mut norm = length as f64;
                    for p in 0..count {
                        let at = |p: usize, part: usize| spectra[(4 * p + part) * modes + m];
                        let (c, s) = (at(p, 0), at(p, 1));
                        leak += 2.0 * (c * at(p, 2) + s * at(p, 3));
                        norm -= c * c + s * s;
                        for p2 in 0..count {
                            leak -= (c * at(p2, 0) + s * at(p2, 1)) * form[p * count + p2];
                        }
                    }
                    *r = if norm > 1e-3 {
                        ((*r - leak) / (norm * multipliers[j])).max(0.0)
                    } else {
                        0.0
                    };
                }
            }
        });
    (strengths, trend_strengths)
}

dispatched! {
    /// `out += sum_k v_k basis[(phase + k) mod b]`.
    pub(super) fn analyse(v: &[f64], basis: &[f32], phase: usize, out: &mut [f32]) = analyse_body
}

#[inline(always)]
fn analyse_body<const FUSED: bool>(v: &[f64], basis: &[f32], phase: usize, out: &mut [f32]) {
    let lanes = out.len();
    if lanes == 0 {
        return;
    }
    let wrap = v.len() - phase;
    let rows = basis.chunks_exact(lanes);
    for (value, row) in
        v[..wrap].iter().zip(rows.clone().skip(phase)).chain(v[wrap..].iter().zip(rows))
    {
        let value = *value as f32;
        for (o, r) in out.as_chunks_mut::<8>().0.iter_mut().zip(row.as_chunks::<8>().0) {
            *o = axpy_single::<FUSED>(value, *r, *o);
        }
    }
}

dispatched! {
    /// `v_k -= coefficients * basis[(phase + k) mod b]`.
    pub(super) fn synthesise(coefficients: &[f32], basis: &[f32], phase: usize, v: &mut [f64]) = synthesise_body
}

#[inline(always)]
fn synthesise_body<const FUSED: bool>(
    coefficients: &[f32],
    basis: &[f32],
    phase: usize,
    v: &mut [f64],
) {
    let lanes = coefficients.len();
    if lanes == 0 {
        return;
    }
    let (head, tail) = v.split_at_mut(v.len() - phase);
    let rows = basis.chunks_exact(lanes);
    for (value, row) in
        head.iter_mut().zip(rows.clone().skip(phase)).chain(tail.iter_mut().zip(rows))
    {
        let mut sum = [0.0f32; 8];
        for (c, r) in coefficients.as_chunks::<8>().0.iter().zip(row.as_chunks::<8>().0) {
            sum = multiply_add::<FUSED>(c, r, sum);
        }
        *value -= f64::from(sum.iter().sum::<f32>());
    }
}
