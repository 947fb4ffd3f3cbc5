//! Rows of noise from the rows before them: `C` has few diagonals.

use mf_core::Strategy;
use rayon::prelude::*;

use super::normal::{self, TILE};
use super::solve::{AHEAD, Block, PANEL};
use super::{Address, NoiseError};

/// The last `p - 1` rows of `C^-1 Z`, and some ahead.
///
/// `history` is a ring of `p - 1` rows, row `i` in slot `i mod (p - 1)`. It is cut into tiles of 1024
/// coordinates and these into panels of 16; a panel holds its `p - 1` rows one after the other.
#[derive(PartialEq)]
pub(super) struct Recurrence {
    /// Rows that are in the history already, the ones ahead of the next step included.
    pub(super) computed: usize,
    pub(super) history: Vec<f32>,
}

impl Recurrence {
    pub(super) fn new(strategy: &Strategy, dim: usize) -> Result<Self, NoiseError> {
        let window = strategy.bands() - 1;
        let floats = super::checked_len(window, dim, 4)?;
        // Zeroed pages come from the operating system only when they are touched.
        Ok(Self { computed: 0, history: vec![0.0; floats] })
    }

    /// Adds `scale` times row `at.step` to `target`.
    pub(super) fn add(
        &mut self,
        strategy: &Strategy,
        at: Address<'_>,
        scale: f64,
        target: &mut [f64],
    ) {
        let window = strategy.bands() - 1;
        if window == 0 {
            add_independent(strategy.row(at.step)[0], at, scale, target);
            self.computed = at.step + 1;
            return;
        }
        if self.computed == at.step {
            self.advance(strategy, at.key, target.len());
        }
        let slot = at.step % window;
        let add = |(tile, (target, history)): (usize, (&mut [f64], &[f32]))| {
            let width = target.len();
            let mut uniforms = [0.0; TILE];
            normal::dither(at.key, at.step, tile, &mut uniforms[..width]);
            let panels = target.chunks_mut(PANEL).zip(uniforms.chunks(PANEL)).enumerate();
            for (index, (target, uniforms)) in panels {
                let rows = PANEL.min(width - index * PANEL);
                let first = index * PANEL * window + slot * rows;
                let row = &history[first..first + rows];
                for ((target, y), u) in target.iter_mut().zip(row).zip(uniforms) {
                    *target += scale * normal::dithered(*y, *u);
                }
            }
        };
        if target.len() <= TILE {
            add((0, (target, &self.history)));
        } else {
            let tiles = self.history.par_chunks(TILE * window);
            target.par_chunks_mut(TILE).zip(tiles).enumerate().for_each(add);
        }
    }

    /// Computes the next rows, as many as have room in the history.
    fn advance(&mut self, strategy: &Strategy, key: &[u8; 32], dim: usize) {
        let window = strategy.bands() - 1;
        let rows = AHEAD.min(window).min(strategy.steps() - self.computed);
        let block = Block::new(strategy, self.computed, rows);
        let start = self.computed;
        let solve = |normals: &mut Vec<f64>, (tile, history): (usize, &mut [f32])| {
            let width = history.len() / window;
            normals.resize(rows * width, 0.0);
            for (r, row) in normals.chunks_exact_mut(width).enumerate() {
                normal::fill(key, start + r, tile * TILE, row);
            }
            block.advance(history, normals, width);
        };
        if dim <= TILE {
            if dim > 0 {
                solve(&mut Vec::new(), (0, &mut self.history));
            }
        } else {
            let tiles = self.history.par_chunks_mut(TILE * window).enumerate();
            tiles.for_each_init(Vec::new, solve);
        }
        self.computed += rows;
    }
}

/// One diagonal: the row is `z_i / C_ii`, and nothing is kept. It is never f32, so it needs no dither.
fn add_independent(diagonal: f64, at: Address<'_>, scale: f64, target: &mut [f64]) {
    let add = |(tile, target): (usize, &mut [f64])| {
        let mut normals = [0.0; TILE];
        let normals = &mut normals[..target.len()];
        normal::fill(at.key, at.step, tile * TILE, normals);
        for (target, z) in target.iter_mut().zip(normals) {
            *target += scale * (*z / diagonal);
        }
    };
    if target.len() <= TILE {
        add((0, target));
    } else {
        target.par_chunks_mut(TILE).enumerate().for_each(add);
    }
}
