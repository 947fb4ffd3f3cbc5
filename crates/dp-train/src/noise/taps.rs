//! Rows of noise from rows of `Z`: `C^-1` has few diagonals.
//!
//! `y_i = sum_{k=0}^{p-1} g_k z_{i-k}`. Every entry of `Z` has an address, so the rows before the present
//! one need not be kept: any of them can be drawn again. How many are kept is a matter of memory against
//! time, and of nothing else.
//!
//! Kept rows are f32. So that drawing a row again gives the same bits as having kept it, *every* entry of `Z` is
//! rounded to f32 before it is used, kept or not; the sum runs in f64 from the oldest row to the newest
//! and is not rounded. The newest row, which is alone in the first step, is dithered when it is added.

use rayon::prelude::*;

use super::normal::{self, TILE};
use super::{Address, NoiseError};

/// The last rows of `Z`, as many as are kept.
///
/// `ring` is cut into tiles of 1024 coordinates; a tile holds its rows one after the other, row `i` in slot
/// `i mod kept`.
#[derive(PartialEq)]
pub(super) struct Taps {
    kept: usize,
    ring: Vec<f32>,
}

impl Taps {
    pub(super) fn new(kept: usize, dim: usize) -> Result<Self, NoiseError> {
        Ok(Self { kept, ring: vec![0.0; super::checked_len(kept, dim, 4)?] })
    }

    /// The rows kept before step `at.step`, drawn again.
    pub(super) fn drawn(kept: usize, at: Address<'_>, dim: usize) -> Result<Self, NoiseError> {
        let mut taps = Self::new(kept, dim)?;
        let tiles = taps.tiles(dim).into_par_iter().enumerate();
        tiles.for_each(|(tile, ring)| {
            let width = TILE.min(dim - tile * TILE);
            let mut normals = vec![0.0; width];
            for row in at.step.saturating_sub(kept)..at.step {
                normal::fill(at.key, row, tile * TILE, &mut normals);
                store(&normals, &mut ring[row % kept * width..][..width]);
            }
        });
        Ok(taps)
    }

    /// The rows before step `at.step` after its own was added: the one that it took the place of is drawn again.
    #[cfg(any(test, feature = "gpu"))]
    pub(super) fn take_back(&mut self, at: Address<'_>, dim: usize) {
        let kept = self.kept;
        // Before there were so many, there was none in its place.
        let Some(row) = at.step.checked_sub(kept).filter(|_| kept > 0) else { return };
        self.tiles(dim).into_par_iter().enumerate().for_each(|(tile, ring)| {
            let width = TILE.min(dim - tile * TILE);
            let mut normals = vec![0.0; width];
            normal::fill(at.key, row, tile * TILE, &mut normals);
            store(&normals, &mut ring[row % kept * width..][..width]);
        });
    }

    /// The part of the ring of each tile; empty parts if nothing is kept.
    fn tiles(&mut self, dim: usize) -> Vec<&mut [f32]> {
        if self.kept == 0 {
            return (0..dim.div_ceil(TILE)).map(|_| Default::default()).collect();
        }
        self.ring.chunks_mut(TILE * self.kept).collect()
    }

    /// Adds `scale` times row `at.step` to `target`. O(p d), with `p - kept` rows of `Z` drawn.
    pub(super) fn add(&mut self, taps: &[f64], at: Address<'_>, scale: f64, target: &mut [f64]) {
        let kept = self.kept;
        let add = |(tile, (target, ring)): (usize, (&mut [f64], &mut [f32]))| {
            let width = target.len();
            let mut sum = [0.0_f64; TILE];
            let mut normals = [0.0_f64; TILE];
            let mut drawn = [0.0_f32; TILE];
            for lag in (0..taps.len().min(at.step + 1)).rev() {
                let row = at.step - lag;
                let z = if lag > 0 && lag <= kept {
                    &ring[row % kept * width..][..width]
                } else {
                    normal::fill(at.key, row, tile * TILE, &mut normals[..width]);
                    store(&normals[..width], &mut drawn[..width]);
                    &drawn[..width]
                };
                if lag == 0 {
                    break;
                }
                for (sum, z) in sum.iter_mut().zip(z) {
                    *sum += taps[lag] * f64::from(*z);
                }
            }
            normal::dither(at.key, at.step, tile, &mut normals[..width]);
            for ((sum, z), u) in sum.iter_mut().zip(&drawn[..width]).zip(&normals) {
                *sum += taps[0] * normal::dithered(*z, *u);
            }
            if kept > 0 {
                // The last row drawn is the present one; it takes the place of the oldest.
                ring[at.step % kept * width..][..width].copy_from_slice(&drawn[..width]);
            }
            for (target, sum) in target.iter_mut().zip(&sum) {
                *target += scale * sum;
            }
        };
        let dim = target.len();
        let tiles = target.par_chunks_mut(TILE).zip(self.tiles(dim)).enumerate();
        tiles.for_each(add);
    }
}

fn store(normals: &[f64], row: &mut [f32]) {
    row.iter_mut().zip(normals).for_each(|(z, normal)| *z = *normal as f32);
}
