//! Power series cut after `n` coefficients, which are the lower-triangular Toeplitz matrices.
//!
//! `LDToep(a) LDToep(b) = LDToep(a * b)` where `a * b` is the product of the series, so products,
//! inverses and quotients of such matrices cost O(n log n) and never need an `n x n` array.
//!
//! The transforms here are accurate in the norm: a coefficient is off by about `1e-16` times the
//! norms of the inputs, whatever its own size. Where every single coefficient matters (those of the
//! strategy `C`) [`bsr`](crate::factorization::bsr) has a recurrence; here are the sums of squares.

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// Below this many bands a quotient is computed by substitution: it is exact to rounding in every
/// coefficient, and a transform is not faster (benchmark `closed_form`, group `quotient`).
const SUBSTITUTION_BANDS: usize = 192;

/// Cyclic convolution of one length by real transforms, planned once and used many times.
struct Convolution {
    len: usize,
    forward: Arc<dyn RealToComplex<f64>>,
    backward: Arc<dyn ComplexToReal<f64>>,
}

impl Convolution {
    /// Plans for linear convolutions of total length up to `at_least`.
    fn new(at_least: usize) -> Self {
        let len = at_least.next_power_of_two().max(2);
        let mut planner = RealFftPlanner::new();
        let forward = planner.plan_fft_forward(len);
        Self { len, forward, backward: planner.plan_fft_inverse(len) }
    }

    fn spectrum(&self, series: &[f64]) -> Vec<Complex<f64>> {
        let mut padded = vec![0.0; self.len];
        padded[..series.len()].copy_from_slice(series);
        let mut spectrum = self.forward.make_output_vec();
        let sizes_agree = self.forward.process(&mut padded, &mut spectrum);
        assert!(sizes_agree.is_ok(), "the buffers were made by this plan");
        spectrum
    }

    fn product(&self, a: &[Complex<f64>], b: &[Complex<f64>]) -> Vec<f64> {
        let scale = 1.0 / self.len as f64;
        let mut spectrum: Vec<_> = a.iter().zip(b).map(|(x, y)| x * y * scale).collect();
        // The spectrum of a real signal is real at frequency 0 and at the last one; rounding must not
        // say otherwise, or the inverse transform refuses it.
        spectrum[0].im = 0.0;
        if let Some(last) = spectrum.last_mut() {
            last.im = 0.0;
        }
        let mut signal = self.backward.make_output_vec();
        let sizes_agree = self.backward.process(&mut spectrum, &mut signal);
        assert!(sizes_agree.is_ok(), "the buffers were made by this plan");
        signal
    }
}

/// The first `len` coefficients of `a b`. O(len log len).
pub fn multiply(a: &[f64], b: &[f64], len: usize) -> Vec<f64> {
    let (a, b) = (&a[..a.len().min(len)], &b[..b.len().min(len)]);
    if a.is_empty() || b.is_empty() {
        return vec![0.0; len];
    }
    if a.len().min(b.len()) <= 32 {
        return multiply_directly(a, b, len);
    }
    let convolution = Convolution::new(a.len() + b.len() - 1);
    let mut product = convolution.product(&convolution.spectrum(a), &convolution.spectrum(b));
    product.truncate((a.len() + b.len() - 1).min(len));
    product.resize(len, 0.0);
    product
}

fn multiply_directly(a: &[f64], b: &[f64], len: usize) -> Vec<f64> {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    let mut product = vec![0.0; len];
    for (i, &x) in short.iter().enumerate() {
        for (y, &z) in product[i..].iter_mut().zip(long) {
            *y += x * z;
        }
    }
    product
}

/// The first `len` coefficients of `1 / c`, by Newton's iteration `g <- g (2 - c g)`, which doubles
/// the number of right coefficients. O(len log len).
///
/// # Panics
/// If `c` is empty or `c[0]` is zero: the series has no inverse.
pub fn inverse(c: &[f64], len: usize) -> Vec<f64> {
    assert!(c.first().is_some_and(|&c0| c0 != 0.0), "a series with c[0] = 0 has no inverse");
    let start = len.clamp(1, 64);
    let mut unit = vec![0.0; start];
    unit[0] = 1.0;
    let mut g = divide_by_substitution(&unit, &c[..c.len().min(start)], start);
    while g.len() < len {
        let longer = (2 * g.len()).min(len);
        let mut residual = multiply(c, &g, longer);
        residual.iter_mut().for_each(|x| *x = -*x);
        residual[0] += 2.0;
        g = multiply(&g, &residual, longer);
    }
    g.truncate(len);
    g
}

/// The first `len` coefficients of `a / c`: the first column of `A C^-1` for Toeplitz `A` and banded
/// Toeplitz `C`. O(len p) for few coefficients `p` of `c`, else O(len log p).
///
/// With many bands, blocks of `p` coefficients are solved one after the other: what earlier blocks
/// contribute is taken off by one convolution, the rest is multiplied by the inverse of `c` to
/// order `p`.
///
/// # Panics
/// If `c` is empty or `c[0]` is zero.
pub fn divide(a: &[f64], c: &[f64], len: usize) -> Vec<f64> {
    assert!(c.first().is_some_and(|&c0| c0 != 0.0), "a series with c[0] = 0 has no inverse");
    let c = &c[..c.len().min(len.max(1))];
    if c.len() <= SUBSTITUTION_BANDS {
        return divide_by_substitution(a, c, len);
    }
    let block = c.len();
    let convolution = Convolution::new(2 * block);
    let (c_spectrum, inverse_spectrum) =
        (convolution.spectrum(c), convolution.spectrum(&inverse(c, block)));
    let mut quotient: Vec<f64> = Vec::with_capacity(len);
    while quotient.len() < len {
        let (at, size) = (quotient.len(), block.min(len - quotient.len()));
        let mut rest = vec![0.0; size];
        let known = &a[at.min(a.len())..(at + size).min(a.len())];
        rest[..known.len()].copy_from_slice(known);
        if at > 0 {
            let before = convolution.spectrum(&quotient[at - block..]);
            let carried = convolution.product(&before, &c_spectrum);
            for (x, y) in rest.iter_mut().zip(&carried[block..]) {
                *x -= y;
            }
        }
        let solved = convolution.product(&convolution.spectrum(&rest), &inverse_spectrum);
        quotient.extend_from_slice(&solved[..size]);
    }
    quotient
}

/// The same quotient by `q_j = (a_j - sum_{i=1}^{p-1} c_i q_{j-i}) / c_0`, with the sum in eight lanes:
/// every coefficient is right to rounding, however small it is. O(len p).
///
/// # Panics
/// If `c` is empty.
pub fn divide_by_substitution(a: &[f64], c: &[f64], len: usize) -> Vec<f64> {
    const LANES: usize = 8;
    let tail: Vec<f64> = c[1..].iter().rev().copied().collect();
    let p = tail.len();
    // Leading zeros stand for the coefficients before the first, so that every window is full.
    let mut padded = vec![0.0; p + len];
    for j in 0..len {
        let window = &padded[j..j + p];
        let mut lanes = [0.0; LANES];
        let (x, y) = (tail.chunks_exact(LANES), window.chunks_exact(LANES));
        let rest: f64 = x.remainder().iter().zip(y.remainder()).map(|(x, y)| x * y).sum();
        for (x, y) in x.zip(y) {
            for lane in 0..LANES {
                lanes[lane] += x[lane] * y[lane];
            }
        }
        let sum = lanes.iter().sum::<f64>() + rest;
        padded[p + j] = (a.get(j).copied().unwrap_or(0.0) - sum) / c[0];
    }
    padded.split_off(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(len: usize, seed: f64) -> Vec<f64> {
        (0..len).map(|i| (seed + 1.7 * i as f64).sin()).collect()
    }

    fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
        assert_eq!(a.len(), b.len());
        a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn transform_and_direct_products_agree_for_all_small_sizes() {
        for n in 33..80 {
            for m in [33, 50, 79] {
                let (a, b) = (wave(n, 0.3), wave(m, 0.8));
                for len in [1, n, n + m - 1, n + m + 5] {
                    let (x, y) = (&a[..n.min(len)], &b[..m.min(len)]);
                    let difference =
                        largest_difference(&multiply(&a, &b, len), &multiply_directly(x, y, len));
                    assert!(difference < 1e-13, "n = {n}, m = {m}, len = {len}: {difference}");
                }
            }
        }
    }

    #[test]
    fn inverse_of_the_alternating_series_is_the_two_term_series() {
        let c: Vec<f64> = (0..500).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let mut expected = vec![0.0; 500];
        expected[..2].fill(1.0);
        assert!(largest_difference(&inverse(&c, 500), &expected) < 1e-12);
        assert_eq!(inverse(&[2.0], 3), [0.5, 0.0, 0.0]);
    }

    #[test]
    fn blocked_and_substituted_quotients_agree() {
        let a = vec![1.0; 3000];
        for p in [193, 256, 700, 2999, 3000] {
            let c: Vec<f64> = (0..p).map(|i| 1.0 / (1.0 + i as f64)).collect();
            for len in [1, 200, p, p + 1, 3000] {
                let fast = divide(&a, &c, len);
                let slow = divide_by_substitution(&a, &c[..p.min(len)], len);
                let difference = largest_difference(&fast, &slow);
                assert!(difference < 1e-12, "p = {p}, len = {len}: {difference}");
            }
        }
    }

    #[test]
    fn a_short_numerator_is_a_series_with_zeros() {
        assert_eq!(divide(&[1.0], &[1.0, -1.0], 4), [1.0; 4]);
        assert_eq!(multiply(&[1.0, 2.0], &[], 2), [0.0, 0.0]);
    }

    #[test]
    #[should_panic(expected = "has no inverse")]
    fn a_series_without_constant_term_is_refused() {
        inverse(&[0.0, 1.0], 2);
    }
}
