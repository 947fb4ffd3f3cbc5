//! Approximate inverse of the Hessian in the factor.
//!
//! At the optimum the Hessian acts on a direction `U` as `2 tr(N U S^-1 U^T) + 2 sum_j mu_j ||U_j||^2` plus
//! a mixed term that is dropped, with `N = (L L^T)^-1` coupling rows and `S^-1` coupling columns. Over
//! the `b` rows of one column `N` is nearly a convolution, so Fourier modes of the row index taken
//! modulo `b` decouple it: in mode `m` the Hessian along columns is `2 (mu + kappa_m S^-1)`, whose
//! inverse `1/2 mu^{-1/2} [1 - K (S + K^2)^-1 K] mu^{-1/2}`, `K^2 = kappa_m/mu`, needs one banded solve.
//! Neighbouring modes share a factorization.

use rayon::prelude::*;

use super::cholesky::factor;
use super::dual::{band_stride, dot_lanes};
use super::modes::{Trends, analyse, mode_strengths, synthesise};
use super::triangular::{solve_octets, solve_one};

/// Modes that share one factorization of `S + K^2`.
struct Group {
    /// Position of the first lane in the coefficient rows; a multiple of eight.
    first_lane: usize,
    octets: usize,
    /// `K_j`.
    coupling: Vec<f32>,
    /// Cholesky factor by rows in ascending column order, `b - 1` places before the diagonal, which
    /// is inverted.
    factor: Vec<f32>,
}

impl Group {
    /// `K (S + K^2)^-1 K` on `width` lanes of rows of `stride` coefficients.
    fn solve(&self, coefficients: &[f32], stride: usize, width: usize, bands: usize) -> Vec<f32> {
        let scale = |values: &mut [f32]| {
            for (row, k) in values.chunks_mut(width).zip(&self.coupling) {
                row.iter_mut().for_each(|v| *v *= k);
            }
        };
        let mut x: Vec<f32> = coefficients
            .chunks(stride)
            .flat_map(|row| &row[self.first_lane..self.first_lane + width])
            .copied()
            .collect();
        scale(&mut x);
        if width == 1 {
            solve_one(&self.factor, bands, &mut x);
        } else {
            solve_octets(&self.factor, bands, width / 8, &mut x);
        }
        scale(&mut x);
        x
    }
}

pub(super) struct Preconditioner {
    bands: usize,
    steps: usize,
    /// `mu_j^{-1/2}`.
    scale: Vec<f64>,
    /// Row `i mod b` of the Fourier basis, `lanes` wide.
    basis: Vec<f32>,
    lanes: usize,
    trends: Trends,
    groups: Vec<Group>,
    /// One per trend, a single lane each.
    trend_groups: Vec<Group>,
}

/// Modes that share a factorization at most: 32 lanes, what the solver takes at once.
const LARGEST_GROUP: usize = 16;

impl Preconditioner {
    /// From the band `dual` of `Z`, the Gram matrix `gram` of `S` and the band of `N` (rows of
    /// `output_stride`).
    pub(super) fn new(
        bands: usize,
        dual: &[f64],
        gram: &[f64],
        output: &[f64],
        output_stride: usize,
    ) -> Self {
        let stride = band_stride(bands);
        let n = dual.len() / stride;
        let multipliers: Vec<f64> =
            dual.iter().step_by(stride).map(|&m| m.max(f64::MIN_POSITIVE)).collect();
        let scale = multipliers.iter().map(|m| 1.0 / m.sqrt()).collect();
        let trends = Trends::new(bands);
        let (strengths, trend_strengths) =
            mode_strengths(bands, &multipliers, output, output_stride, &trends);
        let modes = bands / 2 + 1;
        let mut ranges = Vec::new();
        let mut start = 1;
        while start < modes {
            let end = (start + start.div_ceil(2).min(LARGEST_GROUP)).min(modes);
            ranges.push(start..end);
            start = end;
        }
        // Lanes: a cosine and a sine per mode; mode 0 and the Nyquist mode have no sine.
        let mut lanes = 0;
        let mut layout = Vec::new();
        for range in &ranges {
            let width: usize =
                range.clone().map(|m| if m == 0 || 2 * m == bands { 1 } else { 2 }).sum();
            layout.push((lanes, width.div_ceil(8)));
            lanes += width.next_multiple_of(8);
        }
        let mut basis = vec![0.0f32; bands * lanes];
        for (range, &(first, _)) in ranges.iter().zip(&layout) {
            for phase in 0..bands {
                let mut lane = phase * lanes + first;
                for m in range.clone() {
                    let angle = std::f64::consts::TAU * ((m * phase) % bands) as f64 / bands as f64;
                    let single = m == 0 || 2 * m == bands;
                    let norm = if single { 1.0 } else { 2.0f64 } / bands as f64;
                    basis[lane] = (norm.sqrt() * angle.cos()) as f32;
                    lane += 1;
                    if !single {
                        basis[lane] = (norm.sqrt() * angle.sin()) as f32;
                        lane += 1;
                    }
                }
            }
        }
        let build = |squared: Vec<f64>, first_lane: usize, octets: usize| {
            let mut rows = gram.to_vec();
            for (row, k) in rows.chunks_mut(stride).zip(&squared) {
                row[0] += k;
            }
            if !factor(&mut rows, stride, bands - 1) {
                return None;
            }
            let mut packed = vec![0.0f32; n * bands];
            for (to, from) in packed.chunks_mut(bands).zip(rows.chunks(stride)) {
                for (t, f) in to.iter_mut().rev().zip(from) {
                    *t = *f as f32;
                }
                to[bands - 1] = (1.0 / from[0]) as f32;
            }
            let coupling = squared.iter().map(|k| k.sqrt() as f32).collect();
            Some(Group { first_lane, octets, coupling, factor: packed })
        };
        let groups = ranges
            .into_par_iter()
            .zip(layout)
            .filter_map(|(range, (first_lane, octets))| {
                let squared: Vec<f64> = (0..n)
                    .map(|j| {
                        let row = &strengths[j * modes..(j + 1) * modes];
                        let logs: f64 = range.clone().map(|m| row[m].max(1e-12).ln()).sum();
                        (logs / range.len() as f64).exp()
                    })
                    .collect();
                build(squared, first_lane, octets)
            })
            .collect();
        let trend_groups = (0..trends.count)
            .into_par_iter()
            .filter_map(|p| {
                build((0..n).map(|j| trend_strengths[j * trends.count + p]).collect(), p, 1)
            })
            .collect();
        Self { bands, steps: n, scale, basis, lanes, groups, trends, trend_groups }
    }

    /// Replaces `vector` by the preconditioned vector, projecting on the directions tangent to unit
    /// columns before and after. `columns` may be the leading part of those the preconditioner was
    /// built for.
    pub(super) fn apply(&self, columns: &[f64], vector: &mut [f64]) {
        let (b, lanes, count) = (self.bands, self.lanes, self.trends.count);
        let n = vector.len() / b;
        let mut coefficients = vec![0.0f32; n * lanes];
        let mut trend_coefficients = vec![0.0f32; n * count];
        let block = 32;
        let rows = |j: usize| b.min(self.steps - j);
        vector
            .par_chunks_mut(block * b)
            .zip(columns.par_chunks(block * b))
            .zip(self.scale[..n].par_chunks(block))
            .zip(coefficients.par_chunks_mut((block * lanes).max(1)))
            .zip(trend_coefficients.par_chunks_mut(block * count))
            .enumerate()
            .for_each(
                |(index, ((((vector, columns), scale), coefficients), trend_coefficients))| {
                    let mut detrended = vec![0.0; b];
                    for (offset, ((v, c), s)) in
                        vector.chunks_mut(b).zip(columns.chunks(b)).zip(scale).enumerate()
                    {
                        let j = index * block + offset;
                        project(c, v);
                        v.iter_mut().for_each(|v| *v *= s);
                        detrended.copy_from_slice(v);
                        for (p, q) in self.trends.on(rows(j)).enumerate() {
                            let along = dot_lanes(v, q);
                            trend_coefficients[offset * count + p] = along as f32;
                            detrended.iter_mut().zip(q).for_each(|(v, q)| *v -= along * q);
                        }
                        let out = &mut coefficients[offset * lanes..(offset + 1) * lanes];
                        analyse(&detrended, &self.basis, j % b, out);
                    }
                },
            );
        let (groups, trends): (Vec<Vec<f32>>, Vec<Vec<f32>>) = rayon::join(
            || {
                self.groups
                    .par_iter()
                    .map(|group| group.solve(&coefficients, lanes, 8 * group.octets, b))
                    .collect()
            },
            || {
                self.trend_groups
                    .par_iter()
                    .map(|group| group.solve(&trend_coefficients, count, 1, b))
                    .collect()
            },
        );
        for (group, solved) in self.groups.iter().zip(&groups) {
            let width = 8 * group.octets;
            for (row, value) in coefficients.chunks_mut(lanes).zip(solved.chunks(width)) {
                row[group.first_lane..group.first_lane + width].copy_from_slice(value);
            }
        }
        for (group, solved) in self.trend_groups.iter().zip(&trends) {
            for (row, value) in trend_coefficients.chunks_mut(count).zip(solved) {
                row[group.first_lane] = *value;
            }
        }
        vector.par_chunks_mut(block * b).zip(columns.par_chunks(block * b)).enumerate().for_each(
            |(index, (vector, columns))| {
                let mut correction = vec![0.0; b];
                for (offset, (v, c)) in vector.chunks_mut(b).zip(columns.chunks(b)).enumerate() {
                    let j = index * block + offset;
                    correction.fill(0.0);
                    synthesise(
                        &coefficients[j * lanes..(j + 1) * lanes],
                        &self.basis,
                        j % b,
                        &mut correction,
                    );
                    // Places past the last row are not variables.
                    correction[rows(j)..].fill(0.0);
                    for (p, q) in self.trends.on(rows(j)).enumerate().take(count) {
                        let excess = dot_lanes(&correction, q)
                            + f64::from(trend_coefficients[j * count + p]);
                        correction.iter_mut().zip(q).for_each(|(v, q)| *v -= excess * q);
                    }
                    let s = 0.5 * self.scale[j];
                    v.iter_mut().zip(&correction).for_each(|(v, c)| *v = (*v + c) * s);
                    project(c, v);
                }
            },
        );
    }
}

/// `v -= c (c.v)/(c.c)`.
pub(super) fn project(c: &[f64], v: &mut [f64]) {
    let along = dot_lanes(c, v) / dot_lanes(c, c);
    for (v, c) in v.iter_mut().zip(c) {
        *v -= along * c;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::banded::BandedLower;
    use crate::factorization::aof::dual::{band_of_dual, gram};
    use crate::factorization::aof::objective::Objective;
    use crate::factorization::aof::warm_start::square_root;
    use crate::factorization::aof::workload::InverseWorkload;

    /// Quasi-Newton theory asks for a symmetric positive definite operator on the tangent space.
    #[test]
    fn is_symmetric_and_positive_on_tangent_directions() {
        for (n, bands) in [(60, 9), (41, 41), (90, 20), (12, 2)] {
            let mut matrix = BandedLower::zeros(n, n.min(3)).unwrap();
            for i in 0..n {
                for (k, entry) in [1.0, -1.9, 0.9].into_iter().enumerate().take(i + 1) {
                    matrix.row_mut(i)[k] = entry;
                }
            }
            let inverse = InverseWorkload::new(&matrix);
            let columns = square_root(&inverse, bands);
            let mut derivative = vec![0.0; n * bands];
            let mut objective = Objective::new(&inverse, bands);
            objective.evaluate(&columns, &mut derivative);
            let operator = Preconditioner::new(
                bands,
                &band_of_dual(&columns, &derivative, bands),
                &gram(&columns, bands),
                &objective.output_gram(),
                objective.stride(),
            );
            let tangent = |seed: usize| {
                let mut v: Vec<f64> = (0..n * bands)
                    .map(|i| ((i * 13 + seed * 29) % 53) as f64 / 53.0 - 0.5)
                    .collect();
                for (j, (v, c)) in v.chunks_mut(bands).zip(columns.chunks(bands)).enumerate() {
                    v[bands.min(n - j)..].fill(0.0);
                    project(c, v);
                }
                v
            };
            let apply = |v: &[f64]| {
                let mut image = v.to_vec();
                operator.apply(&columns, &mut image);
                image
            };
            let inner = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let (u, v) = (tangent(1), tangent(2));
            let (image_u, image_v) = (apply(&u), apply(&v));
            let size = (inner(&u, &image_u) * inner(&v, &image_v)).sqrt();
            assert!(size > 0.0 && inner(&u, &image_u) > 0.0, "n {n} bands {bands}");
            assert!((inner(&u, &image_v) - inner(&v, &image_u)).abs() < 1e-4 * size);
        }
    }
}
