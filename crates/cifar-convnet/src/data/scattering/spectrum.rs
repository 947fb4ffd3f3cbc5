//! Fourier transforms of planes of one size. A spectrum is stored transposed, column frequencies first, which
//! saves a transposition in each direction.

use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex};
use rustfft::num_complex::Complex32;
use rustfft::{Fft, FftPlanner};

/// Transforms of planes of one size, none of them normalized.
pub(super) struct Planes {
    height: usize,
    width: usize,
    real_rows: Arc<dyn RealToComplex<f32>>,
    columns: Arc<dyn Fft<f32>>,
    inverse_rows: Arc<dyn Fft<f32>>,
    inverse_columns: Arc<dyn Fft<f32>>,
}

/// Memory that one thread works in, for planes up to the size it was made for.
pub(super) struct Work {
    /// What is made of a row; real transforms write over what they read.
    row: Vec<f32>,
    half: Vec<Complex32>,
    other: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl Planes {
    pub(super) fn new([height, width]: [usize; 2]) -> Self {
        let mut planner = FftPlanner::new();
        Self {
            height,
            width,
            real_rows: RealFftPlanner::new().plan_fft_forward(width),
            columns: planner.plan_fft_forward(height),
            inverse_rows: planner.plan_fft_inverse(width),
            inverse_columns: planner.plan_fft_inverse(height),
        }
    }

    /// Numbers of a plane.
    pub(super) fn len(&self) -> usize {
        self.height * self.width
    }

    /// Memory for planes of this size and smaller ones.
    pub(super) fn work(&self) -> Work {
        let scratch = [&self.columns, &self.inverse_rows, &self.inverse_columns]
            .map(|fft| fft.get_inplace_scratch_len())
            .into_iter()
            .chain([self.real_rows.get_scratch_len()])
            .max();
        // A smaller plane never needs more than a large one has numbers.
        let scratch = scratch.unwrap_or(0).max(self.len());
        Work {
            row: vec![0.0; self.width],
            half: vec![Complex32::ZERO; self.width / 2 + 1],
            other: vec![Complex32::ZERO; self.len()],
            scratch: vec![Complex32::ZERO; scratch],
        }
    }

    /// The spectrum of a real plane.
    pub(super) fn forward(&self, plane: &[f32], work: &mut Work, spectrum: &mut [Complex32]) {
        let Self { height, width, .. } = *self;
        let Work { row, half, scratch, .. } = work;
        let (row, half) = (&mut row[..width], &mut half[..width / 2 + 1]);
        let scratch_len = self.real_rows.get_scratch_len();
        for (y, plane) in plane.chunks_exact(width).enumerate() {
            row.copy_from_slice(plane);
            let done = self.real_rows.process_with_scratch(row, half, &mut scratch[..scratch_len]);
            // It fails for wrong lengths alone.
            debug_assert!(done.is_ok());
            for (column, &z) in half.iter().enumerate() {
                spectrum[column * height + y] = z;
            }
        }
        let known = (width / 2 + 1) * height;
        self.columns.process_with_scratch(&mut spectrum[..known], scratch);
        // The plane is real: negative frequencies are conjugates of positive ones.
        let (known, rest) = spectrum.split_at_mut(known);
        for (column, out) in (width / 2 + 1..width).zip(rest.chunks_exact_mut(height)) {
            let mirrored = &known[(width - column) * height..][..height];
            out[0] = mirrored[0].conj();
            for (out, z) in out[1..].iter_mut().zip(mirrored[1..].iter().rev()) {
                *out = z.conj();
            }
        }
    }

    /// The plane of a spectrum, which is used up, times its number of pixels.
    pub(super) fn inverse<'a>(
        &self,
        spectrum: &mut [Complex32],
        work: &'a mut Work,
    ) -> &'a [Complex32] {
        let Self { height, width, .. } = *self;
        let Work { other, scratch, .. } = work;
        let plane = &mut other[..height * width];
        self.inverse_columns.process_with_scratch(spectrum, scratch);
        for (column, spectrum) in spectrum.chunks_exact(height).enumerate() {
            for (row, &z) in plane.chunks_exact_mut(width).zip(spectrum) {
                row[column] = z;
            }
        }
        self.inverse_rows.process_with_scratch(plane, scratch);
        plane
    }
}
