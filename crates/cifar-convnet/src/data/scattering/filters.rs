//! The Morlet wavelets and the Gaussian low-pass of kymatio, made periodic on the grid of a plane.
//!
//! Its formulas are taken over to the letter, and its value of pi in the norm with them: 3.1415.

use std::f64::consts::PI;

use rustfft::FftPlanner;
use rustfft::num_complex::{Complex32, Complex64};

/// Pi as kymatio's norm has it.
#[expect(clippy::approx_constant, reason = "the same numbers as kymatio's")]
pub(super) const NORM_PI: f64 = 3.1415;

/// Copies of the grid, to both sides, over which a filter is summed to make it periodic.
const COPIES: i64 = 2;

/// Width of the wavelet of scale 0, and of the low-pass over `2^(J-1)`.
const SIGMA: f64 = 0.8;

/// A Gaussian of width `sigma`, `1 / slant` times as long across the angle, times `exp(i xi . u)` along it.
struct Gabor {
    sigma: f64,
    angle: f64,
    frequency: f64,
    slant: f64,
}

impl Gabor {
    /// Row by row, made periodic.
    fn on_grid(&self, [height, width]: [usize; 2]) -> Vec<Complex64> {
        let Self { sigma, angle, frequency, slant } = *self;
        let (sin, cos) = (libm::sin(angle), libm::cos(angle));
        let norm = 2.0 * NORM_PI * sigma * sigma / slant;
        let copies = |at: usize, side: usize| {
            (-COPIES..=COPIES).map(move |copy| (at as i64 + copy * side as i64) as f64)
        };
        let value = |x: f64, y: f64| {
            let (along, across) = (cos * x + sin * y, cos * y - sin * x);
            let square = along * along + slant * slant * across * across;
            let size = libm::exp(-square / (2.0 * sigma * sigma)) / norm;
            let phase = frequency * along;
            Complex64::new(libm::cos(phase), libm::sin(phase)) * size
        };
        let mut grid = vec![Complex64::ZERO; height * width];
        for (at, sum) in grid.iter_mut().enumerate() {
            for x in copies(at / width, height) {
                *sum += copies(at % width, width).map(|y| value(x, y)).sum::<Complex64>();
            }
        }
        grid
    }
}

/// `psi_{j,t}(u) = g(u) (exp(i xi . u) - K)` in Fourier, which is real; `K` makes its mean 0.
///
/// Width `0.8 * 2^j`, frequency `3/4 pi / 2^j`, slant `4 / L`, angle `(L - L/2 - 1 - t) pi / L`. The first axis
/// of the grid is that of rows. Stored transposed, as [`Planes`](super::spectrum::Planes) stores spectra.
pub(super) fn morlet(size: [usize; 2], j: usize, t: usize, angles: usize) -> Vec<f64> {
    let mut wavelet = morlet_on_grid(size, j, t, angles);
    transposed_spectrum(&mut wavelet, size).iter().map(|z| z.re).collect()
}

/// The same in space, row by row.
pub(super) fn morlet_on_grid(
    size: [usize; 2],
    j: usize,
    t: usize,
    angles: usize,
) -> Vec<Complex64> {
    let (scale, count) = ((1_u64 << j) as f64, angles as f64);
    // The integer part of L - L/2 - 1, as Python's int() gives it.
    let first = (count - count / 2.0 - 1.0).trunc();
    let gabor = Gabor {
        sigma: SIGMA * scale,
        angle: (first - t as f64) * PI / count,
        frequency: 0.75 * PI / scale,
        slant: 4.0 / count,
    };
    let wave = gabor.on_grid(size);
    let envelope = Gabor { frequency: 0.0, ..gabor }.on_grid(size);
    let mean = wave.iter().sum::<Complex64>() / envelope.iter().sum::<Complex64>();
    wave.iter().zip(&envelope).map(|(wave, envelope)| wave - mean * envelope).collect()
}

/// `phi` along one axis: it is a Gaussian without a direction, so the product of two of these.
pub(super) fn low_pass(side: usize, scales: usize) -> Vec<f64> {
    let sigma = SIGMA * (1_u64 << (scales - 1)) as f64;
    let norm = (2.0 * NORM_PI).sqrt() * sigma;
    let value = |at: usize| {
        let copies = (-COPIES..=COPIES).map(|copy| (at as i64 + copy * side as i64) as f64);
        copies.map(|x| libm::exp(-x * x / (2.0 * sigma * sigma)) / norm).sum()
    };
    (0..side).map(value).collect()
}

/// The Fourier transform, column frequencies first.
fn transposed_spectrum(grid: &mut [Complex64], [height, width]: [usize; 2]) -> Vec<Complex64> {
    let mut planner = FftPlanner::new();
    planner.plan_fft_forward(width).process(grid);
    let mut columns = vec![Complex64::ZERO; grid.len()];
    for (at, z) in grid.iter().enumerate() {
        columns[at % width * height + at / width] = *z;
    }
    planner.plan_fft_forward(height).process(&mut columns);
    columns
}

/// A wavelet that takes the spectrum of a plane to that of its convolution, sampled every `2^drop` pixels.
pub(super) struct Wavelet {
    /// In Fourier on the grid that it is applied to, transposed, over the pixels of that grid.
    values: Vec<f32>,
    /// Sides of that grid, transposed: columns, then rows.
    size: [usize; 2],
    /// `2^drop`.
    step: usize,
}

impl Wavelet {
    /// Of a filter on the finest grid (transposed), for planes that have every `2^resolution`th pixel of it.
    ///
    /// There it keeps its low frequencies: those at or above half the coarser grid's rate are cut off.
    pub(super) fn new(filter: &[f64], size: [usize; 2], resolution: usize, drop: usize) -> Self {
        let [height, width] = size;
        let coarse = [width >> resolution, height >> resolution];
        let places = |fine: usize, coarse: usize| move |at: usize| kept(at, fine, coarse);
        let (column, row) = (places(width, coarse[0]), places(height, coarse[1]));
        // Transforms are not normalized, and a mean over aliases samples: together 1 over the pixels of the grid.
        let pixels = (coarse[0] * coarse[1]) as f64;
        let place = |at: usize| column(at / coarse[1]) * height + row(at % coarse[1]);
        let values = (0..coarse[0] * coarse[1]).map(|at| (filter[place(at)] / pixels) as f32);
        Self { values: values.collect(), size: coarse, step: 1 << drop }
    }

    /// The product with a spectrum, summed over the aliases that sampling makes.
    pub(super) fn apply(&self, spectrum: &[Complex32], out: &mut [Complex32]) {
        let [width, height] = self.size;
        let (columns, rows) = (width / self.step, height / self.step);
        for (column, out) in out.chunks_exact_mut(rows).take(columns).enumerate() {
            for alias in 0..self.step * self.step {
                let column = column + alias / self.step * columns;
                let start = column * height + alias % self.step * rows;
                let (spectrum, values) =
                    (&spectrum[start..][..rows], &self.values[start..][..rows]);
                let products = spectrum.iter().zip(values).map(|(z, value)| z * value);
                if alias == 0 {
                    out.iter_mut().zip(products).for_each(|(out, z)| *out = z);
                } else {
                    out.iter_mut().zip(products).for_each(|(out, z)| *out += z);
                }
            }
        }
    }
}

/// Where a frequency of a coarse grid stands among those of the fine one: negative ones at the end.
fn kept(at: usize, fine: usize, coarse: usize) -> usize {
    if 2 * at < coarse || fine == coarse { at } else { at + fine - coarse }
}

/// The low-pass from a resolution to the coarsest, without the border: a matrix for each side of a plane.
pub(super) struct Averaging {
    /// From rows of the plane to rows of the output, row by row.
    down: Vec<f32>,
    /// From columns of the output to columns of the plane: transposed, row by row.
    across: Vec<f32>,
    /// Sides of the plane.
    from: [usize; 2],
    /// Sides of the output.
    to: [usize; 2],
}

impl Averaging {
    /// For planes that have every `2^resolution`th pixel of the finest grid, which has this size.
    pub(super) fn new(size: [usize; 2], resolution: usize, scales: usize) -> Self {
        let [down, across] = size.map(|side| averaging(side, resolution, scales));
        let [from, to] = [size.map(|side| side >> resolution), size.map(|s| (s >> scales) - 2)];
        let columns = from[1];
        let transposed = (0..columns * to[1]).map(|at| across[at % to[1] * columns + at / to[1]]);
        Self { across: transposed.collect(), down, from, to }
    }

    /// `down . plane . across`, in `out`; `rows` is memory to work in.
    pub(super) fn apply(&self, plane: &[f32], rows: &mut [f32], out: &mut [f32]) {
        let ([height, width], [out_height, out_width]) = (self.from, self.to);
        let rows = &mut rows[..out_height * width];
        multiply(&self.down, &plane[..height * width], width, rows);
        multiply(rows, &self.across, out_width, out);
    }
}

/// `a b`, where `b` and the result have rows of `width`.
fn multiply(a: &[f32], b: &[f32], width: usize, out: &mut [f32]) {
    let inner = b.len() / width;
    for (a, out) in a.chunks_exact(inner).zip(out.chunks_exact_mut(width)) {
        out.fill(0.0);
        for (&a, b) in a.iter().zip(b.chunks_exact(width)) {
            out.iter_mut().zip(b).for_each(|(out, &b)| *out += a * b);
        }
    }
}

/// The matrix of the low-pass along one side: to the places that are kept, from every `2^resolution`th pixel.
fn averaging(side: usize, resolution: usize, scales: usize) -> Vec<f32> {
    let phi: Vec<f64> = low_pass(side, scales);
    let mut spectrum: Vec<Complex64> = phi.iter().map(|&x| Complex64::from(x)).collect();
    let mut planner = FftPlanner::new();
    planner.plan_fft_forward(side).process(&mut spectrum);
    let coarse = side >> resolution;
    let low = (0..coarse).map(|at| Complex64::from(spectrum[kept(at, side, coarse)].re));
    let mut response: Vec<Complex64> = low.collect();
    planner.plan_fft_inverse(coarse).process(&mut response);
    let step = 1 << (scales - resolution);
    let mut matrix = Vec::new();
    // The first and the last place lie in the border.
    for to in 1..(side >> scales) - 1 {
        for from in 0..coarse {
            let lag = (to * step + coarse - from) % coarse;
            matrix.push((response[lag].re / coarse as f64) as f32);
        }
    }
    matrix
}
