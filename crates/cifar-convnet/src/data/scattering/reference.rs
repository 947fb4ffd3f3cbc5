//! The transform in f64 by its definition: convolutions as sums over all pixels. Slow, and obviously right.

use std::f64::consts::TAU;

use rustfft::num_complex::Complex64;

use super::filters::{low_pass, morlet_on_grid};

/// A plane of complex numbers.
#[derive(Clone)]
struct Grid {
    size: [usize; 2],
    values: Vec<Complex64>,
}

impl Grid {
    /// The discrete Fourier transform by its sum, along one axis and then along the other. Not normalized.
    fn transformed(&self, sign: f64) -> Self {
        let [height, width] = self.size;
        let along = |side: usize, at: &dyn Fn(usize) -> Complex64, k: usize| -> Complex64 {
            let turn = |x: usize| sign * TAU * ((k * x) % side) as f64 / side as f64;
            (0..side).map(|x| at(x) * Complex64::cis(turn(x))).sum()
        };
        let place = |at: usize| (at / width, at % width);
        let rows: Vec<Complex64> = (0..height * width)
            .map(|at| along(width, &|x| self.values[place(at).0 * width + x], place(at).1))
            .collect();
        let values = (0..height * width)
            .map(|at| along(height, &|y| rows[y * width + place(at).1], place(at).0))
            .collect();
        Self { size: self.size, values }
    }

    /// The same filter for planes with every `2^resolution`th pixel: its lowest frequencies.
    fn coarser(&self, resolution: usize) -> Self {
        let [height, width] = self.size;
        let size = self.size.map(|side| side >> resolution);
        let spectrum = self.transformed(-1.0);
        let signed = |k: usize, coarse: usize, fine: usize| {
            if k < coarse / 2 { k } else { (k + fine - coarse) % fine }
        };
        let count = size[0] * size[1];
        let values = (0..count).map(|at| {
            let (y, x) = (at / size[1], at % size[1]);
            spectrum.values[signed(y, size[0], height) * width + signed(x, size[1], width)]
        });
        let mut coarse = Self { size, values: values.collect() }.transformed(1.0);
        coarse.values.iter_mut().for_each(|z| *z /= count as f64);
        coarse
    }

    /// `sum_v x(v) filter(u - v)` around the grid, at every `step`th `u`.
    fn convolved(&self, filter: &Self, step: usize) -> Self {
        let [height, width] = self.size;
        assert_eq!(self.size, filter.size);
        let size = self.size.map(|side| side / step);
        let at = |u: [usize; 2]| -> Complex64 {
            let mut sum = Complex64::ZERO;
            for y in 0..height {
                for x in 0..width {
                    let lag = [(u[0] + height - y) % height, (u[1] + width - x) % width];
                    sum += self.values[y * width + x] * filter.values[lag[0] * width + lag[1]];
                }
            }
            sum
        };
        let places = (0..size[0] * size[1]).map(|i| [i / size[1] * step, i % size[1] * step]);
        Self { size, values: places.map(at).collect() }
    }

    fn modulus(mut self) -> Self {
        self.values.iter_mut().for_each(|z| *z = Complex64::from(z.norm()));
        self
    }
}

/// All coefficients of a plane, in the order of [`Scattering`](super::Scattering).
pub(super) fn scattering(
    plane: &[f32],
    size: [usize; 2],
    scales: usize,
    angles: usize,
) -> Vec<f64> {
    let border = 1_usize << scales;
    let padded = size.map(|side| side + 2 * border);
    let mirrored = |at: usize, side: usize| {
        let place = at as i64 - border as i64;
        let last = side as i64 - 1;
        (last - (last - place.abs()).abs()) as usize
    };
    let pixel = |at: usize| {
        let (y, x) = (mirrored(at / padded[1], size[0]), mirrored(at % padded[1], size[1]));
        Complex64::from(f64::from(plane[y * size[1] + x]))
    };
    let x = Grid { size: padded, values: (0..padded[0] * padded[1]).map(pixel).collect() };
    let [down, across] = padded.map(|side| low_pass(side, scales));
    let phi = down.iter().flat_map(|a| across.iter().map(move |b| Complex64::from(a * b)));
    let phi = Grid { size: padded, values: phi.collect() };
    let psi =
        |j: usize, t: usize| Grid { size: padded, values: morlet_on_grid(padded, j, t, angles) };
    let averaged = |grid: &Grid, j: usize| -> Vec<f64> {
        let all = grid.convolved(&phi.coarser(j), 1 << (scales - j));
        let [height, width] = all.size;
        let inside = (1..height - 1).flat_map(|y| (1..width - 1).map(move |x| y * width + x));
        inside.map(|at| all.values[at].re).collect()
    };
    let (mut found, mut second) = (averaged(&x, 0), vec![]);
    for (j1, t1) in (0..scales).flat_map(|j| (0..angles).map(move |t| (j, t))) {
        let first = x.convolved(&psi(j1, t1), 1 << j1).modulus();
        found.extend(averaged(&first, j1));
        for (j2, t2) in (j1 + 1..scales).flat_map(|j| (0..angles).map(move |t| (j, t))) {
            let psi = psi(j2, t2).coarser(j1);
            second.extend(averaged(&first.convolved(&psi, 1 << (j2 - j1)).modulus(), j2));
        }
    }
    found.extend(second);
    found
}
