//! Rows of noise from a few running sums: a buffered linear Toeplitz strategy.
//!
//! `y_i = z_i - sum_j omega_j s_j`, then `s_j <- theta_j s_j + y_i`. A sum with `theta` close to 1 remembers
//! its rounding errors for `1 / (1 - theta)` steps, so the sums are f64; a row is rounded to f32 before it
//! enters them, which makes them sums of the rows as they are used.

use mf_core::Buffer;
use rayon::prelude::*;

use super::normal::{self, TILE};
use super::{Address, NoiseError};

/// The sums, cut into tiles of 1024 coordinates; a tile holds its sums one after the other.
#[derive(PartialEq)]
pub(super) struct Buffers {
    pub(super) sums: Vec<f64>,
}

impl Buffers {
    pub(super) fn new(count: usize, dim: usize) -> Result<Self, NoiseError> {
        Ok(Self { sums: vec![0.0; super::checked_len(count, dim, 8)?] })
    }

    /// Adds `scale` times row `at.step` to `target`. O(m d).
    pub(super) fn add(
        &mut self,
        buffers: &[Buffer],
        at: Address<'_>,
        scale: f64,
        target: &mut [f64],
    ) {
        let add = |(tile, (target, sums)): (usize, (&mut [f64], &mut [f64]))| {
            let width = target.len();
            let mut row = [0.0_f64; TILE];
            let row = &mut row[..width];
            normal::fill(at.key, at.step, tile * TILE, row);
            for (buffer, sums) in buffers.iter().zip(sums.chunks_exact(width)) {
                row.iter_mut().zip(sums).for_each(|(y, sum)| *y -= buffer.weight * sum);
            }
            row.iter_mut().for_each(|y| *y = f64::from(*y as f32));
            for (buffer, sums) in buffers.iter().zip(sums.chunks_exact_mut(width)) {
                sums.iter_mut().zip(&*row).for_each(|(sum, y)| *sum = buffer.decay * *sum + y);
            }
            let mut uniforms = [0.0; TILE];
            normal::dither(at.key, at.step, tile, &mut uniforms[..width]);
            for ((target, y), u) in target.iter_mut().zip(row).zip(&uniforms) {
                *target += scale * normal::dithered(*y as f32, *u);
            }
        };
        let tiles = self.sums.par_chunks_mut(TILE * buffers.len());
        target.par_chunks_mut(TILE).zip(tiles).enumerate().for_each(add);
    }
}
