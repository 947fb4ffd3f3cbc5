//! Noise: the rows of `C^-1 Z`, one per step.
//!
//! Banded forward substitution gives row `i` from `z_i` and the `p - 1` rows before it,
//!
//! ```text
//! y_i = (z_i - sum_{k=1}^{p-1} C_{i,i-k} y_{i-k}) / C_ii
//! ```
//!
//! so `(p - 1) d` floats are all the memory there is, and for `C = I` there is none: DP-SGD is a
//! strategy like any other. Rows are computed up to 16 steps ahead (they have their place in
//! the history already), so that the history is read once per 16 steps instead of once per step.
//!
//! # Guarantees
//! * The same key gives the same bits for any number of threads and any split of the run by
//!   checkpoints; the entries of `Z` are addressed by (step, coordinate). Only the `exp` and `ln`
//!   of the platform, in the tails of the normals, stand between one machine and another.
//! * No row of `Z` is used twice, and none after step `n`: [`NoiseError::Exhausted`].
//! * Coefficients, normals and sums are f64; only finished rows are rounded to f32. Each computed
//!   row satisfies its equation up to that one rounding, so that `C Y = Z + E` with
//!   `|E_it| <= 2^-24 sum_j |C_ij| |y_jt|`. For the square root with `n = 2000` the relative error
//!   against the dense f64 product is below 1e-7 (tests/noise.rs).
//!
//! `E` depends on `Z` alone, not on the data, and is as small as the rounding of the Gaussian
//! itself, about which nothing is claimed.

use std::fmt;

use mf_core::Strategy;
use rayon::prelude::*;

use crate::seeds::{KeyOrigin, NoiseKey};

pub mod normal;

mod solve;

pub mod checkpoint;

use normal::TILE;
use solve::{AHEAD, Block, PANEL};

/// The rows of `C^-1 Z` for `d` coordinates, in order.
///
/// `history` is a ring of `p - 1` rows, row `i` in slot `i mod (p - 1)`. It is cut into tiles of
/// 1024 coordinates and these into panels of 16; a panel holds its `p - 1` rows one after the
/// other.
#[derive(PartialEq)]
pub struct NoiseStream {
    strategy: Strategy,
    dim: usize,
    key: NoiseKey,
    next_step: usize,
    /// Rows that are in the history already, the ones ahead of `next_step` included.
    computed: usize,
    history: Vec<f32>,
}

impl NoiseStream {
    /// The stream before its first row. Memory: [`history_bytes`].
    ///
    /// # Errors
    /// [`NoiseError::TooLarge`] if the history does not fit into the address space.
    pub fn new(strategy: Strategy, dim: usize, key: NoiseKey) -> Result<Self, NoiseError> {
        let window = strategy.bands() - 1;
        let floats = window.checked_mul(dim).filter(|floats| *floats <= isize::MAX as usize / 4);
        let floats = floats.ok_or(NoiseError::TooLarge { rows: window, dim })?;
        // Zeroed pages come from the operating system only when they are touched.
        Ok(Self { strategy, dim, key, next_step: 0, computed: 0, history: vec![0.0; floats] })
    }

    /// `C`.
    pub fn strategy(&self) -> &Strategy {
        &self.strategy
    }

    /// `d`, the number of coordinates.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The step whose row comes next, counted from 0.
    pub fn next_step(&self) -> usize {
        self.next_step
    }

    /// Where the key came from.
    pub fn key_origin(&self) -> KeyOrigin {
        self.key.origin()
    }

    /// Adds `scale` times the next row to `target` and moves on. O(p d) on average; every sixteenth
    /// call does the work of sixteen.
    ///
    /// # Errors
    /// [`NoiseError::Exhausted`] after `n` rows, [`NoiseError::Dimension`] unless `target` has `d`
    /// entries; nothing is changed then.
    pub fn add_next(&mut self, scale: f64, target: &mut [f32]) -> Result<(), NoiseError> {
        if self.next_step == self.strategy.steps() {
            return Err(NoiseError::Exhausted { steps: self.strategy.steps() });
        }
        if target.len() != self.dim {
            return Err(NoiseError::Dimension { expected: self.dim, found: target.len() });
        }
        let window = self.strategy.bands() - 1;
        if window == 0 {
            self.add_independent(scale, target);
        } else {
            if self.computed == self.next_step {
                self.advance();
            }
            let slot = self.next_step % window;
            let add = |(target, history): (&mut [f32], &[f32])| {
                let width = target.len();
                for (index, target) in target.chunks_mut(PANEL).enumerate() {
                    let rows = PANEL.min(width - index * PANEL);
                    let at = index * PANEL * window + slot * rows;
                    add_scaled(scale, &history[at..at + rows], target);
                }
            };
            if self.dim <= TILE {
                add((target, &self.history));
            } else {
                let tiles = self.history.par_chunks(TILE * window);
                target.par_chunks_mut(TILE).zip(tiles).for_each(add);
            }
        }
        self.next_step += 1;
        Ok(())
    }

    /// One diagonal: the row is `z_i / C_ii`, and nothing is kept.
    fn add_independent(&mut self, scale: f64, target: &mut [f32]) {
        let (step, key) = (self.next_step, self.key.bytes());
        let diagonal = self.strategy.row(step)[0];
        let add = |(tile, target): (usize, &mut [f32])| {
            let mut normals = [0.0; TILE];
            let normals = &mut normals[..target.len()];
            normal::fill(key, step, tile * TILE, normals);
            for (target, z) in target.iter_mut().zip(normals) {
                let y = (*z / diagonal) as f32;
                *target = (f64::from(*target) + scale * f64::from(y)) as f32;
            }
        };
        if target.len() <= TILE {
            add((0, target));
        } else {
            target.par_chunks_mut(TILE).enumerate().for_each(add);
        }
        self.computed = step + 1;
    }

    /// Computes the next rows, as many as have room in the history.
    fn advance(&mut self) {
        let window = self.strategy.bands() - 1;
        let rows = AHEAD.min(window).min(self.strategy.steps() - self.computed);
        let block = Block::new(&self.strategy, self.computed, rows);
        let (start, key) = (self.computed, self.key.bytes());
        let solve = |normals: &mut Vec<f64>, (tile, history): (usize, &mut [f32])| {
            let width = history.len() / window;
            normals.resize(rows * width, 0.0);
            for (r, row) in normals.chunks_exact_mut(width).enumerate() {
                normal::fill(key, start + r, tile * TILE, row);
            }
            block.advance(history, normals, width);
        };
        if self.dim <= TILE {
            if self.dim > 0 {
                solve(&mut Vec::new(), (0, &mut self.history));
            }
        } else {
            let tiles = self.history.par_chunks_mut(TILE * window).enumerate();
            tiles.for_each_init(Vec::new, solve);
        }
        self.computed += rows;
    }
}

/// Without the history: who sees the noise can subtract it.
impl fmt::Debug for NoiseStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoiseStream")
            .field("steps", &self.strategy.steps())
            .field("bands", &self.strategy.bands())
            .field("dim", &self.dim)
            .field("key", &self.key)
            .field("next_step", &self.next_step)
            .finish_non_exhaustive()
    }
}

fn add_scaled(scale: f64, row: &[f32], target: &mut [f32]) {
    for (target, y) in target.iter_mut().zip(row) {
        *target = (f64::from(*target) + scale * f64::from(*y)) as f32;
    }
}

/// Bytes of history that a strategy with `bands` diagonals needs for `dim` coordinates:
/// `4 (p - 1) d`.
pub fn history_bytes(bands: usize, dim: usize) -> u64 {
    (4 * (bands as u64).saturating_sub(1)).saturating_mul(dim as u64)
}

/// Why there is no further noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoiseError {
    /// All `n` rows were used. The sensitivity is for `n` steps, so one more would not be private.
    Exhausted {
        /// `n`.
        steps: usize,
    },
    /// A vector has the wrong number of entries.
    Dimension {
        /// Entries that were needed.
        expected: usize,
        /// Entries that were found.
        found: usize,
    },
    /// The history cannot be addressed.
    TooLarge {
        /// `p - 1`, the rows to keep.
        rows: usize,
        /// `d`, the entries of a row.
        dim: usize,
    },
}

impl fmt::Display for NoiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoiseError::Exhausted { steps } => write!(
                f,
                "the privacy guarantee is for {steps} steps, and all of them have been taken"
            ),
            NoiseError::Dimension { expected, found } => {
                write!(f, "the noise has {expected} coordinates, but the vector has {found}")
            }
            NoiseError::TooLarge { rows, dim } => {
                write!(f, "{rows} rows of {dim} coordinates are more than memory can address")
            }
        }
    }
}

impl std::error::Error for NoiseError {}
