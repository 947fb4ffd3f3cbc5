//! Noise: the rows of `C^-1 Z`, one per step.
//!
//! Three recipes, one for each form of a strategy ([`mf_core::strategy`]):
//!
//! ```text
//! C has p diagonals       y_i = (z_i - sum_{k=1}^{p-1} C_{i,i-k} y_{i-k}) / C_ii       p - 1 rows of y
//! C^-1 has p diagonals    y_i = sum_{k=0}^{p-1} g_k z_{i-k}                            p - 1 rows of z, or fewer
//! m buffers               y_i = z_i - sum_j omega_j s_j,  s_j <- theta_j s_j + y_i     m sums in f64
//! ```
//!
//! For `C = I` nothing is kept: DP-SGD is a strategy like any other. With few diagonals of `C`, rows are
//! computed up to 16 steps ahead (they have their place in the history already), so that the history is
//! read once per 16 steps instead of once per step. With few diagonals of `C^-1`, rows of `Z` can be drawn
//! again instead of kept: [`keeping`](NoiseStream::keeping).
//!
//! # Guarantees
//! * The same key gives the same bits for any number of threads, any number of kept rows and any split of
//!   the run by checkpoints; the entries of `Z` are addressed by (step, coordinate). Only the `exp` and
//!   `ln` of the platform, in the tails of the normals, stand between one machine and another.
//! * No row of `Z` is used twice, and none after step `n`: [`NoiseError::Exhausted`].
//! * Coefficients, normals and sums are f64; only rows that are kept are rounded to f32 (and, where rows of `Z`
//!   can be kept, its entries). Each computed row satisfies its equation up to that rounding, so that
//!   `C Y = Z + E` with `|E_it| <= 2^-24 sum_j |C_ij| |y_jt|` (or `Z` rounded once, and
//!   `|Y - C^-1 Z| <= 2^-24 |Y|`). For the square root with `n = 2000` the relative error against the
//!   dense f64 product is below 1e-7 (tests/noise.rs).
//! * What is added to a target has no trace of that rounding: a row that was rounded is dithered below its last
//!   place ([`normal`]), scaled and added in f64. Otherwise 10 to 15 % of all f32 could not come out for a given
//!   sum, and a single step would tell neighbours apart (`tests/last_bits.rs`).
//!
//! `E` and the dither depend on key and step alone, not on the data.

use std::fmt;

use mf_core::{Noising, Strategy};

use crate::seeds::{KeyOrigin, NoiseKey};

pub mod normal;
mod solve;
mod recurrence;
mod taps;
mod buffers;
#[cfg(any(test, feature = "gpu"))]
pub(crate) mod ahead;
pub mod checkpoint;

use buffers::Buffers;
use recurrence::Recurrence;
use taps::Taps;
use thiserror::Error;

/// The rows of `C^-1 Z` for `d` coordinates, in order.
#[derive(PartialEq)]
pub struct NoiseStream {
    strategy: Strategy,
    dim: usize,
    key: NoiseKey,
    next_step: usize,
    state: State,
}

/// What is kept from step to step.
#[derive(PartialEq)]
enum State {
    Recurrence(Recurrence),
    Taps(Taps),
    Buffers(Buffers),
}

/// Where a row of `Z` comes from.
#[derive(Clone, Copy)]
struct Address<'a> {
    key: &'a [u8; 32],
    step: usize,
}

/// The elements of `rows` rows, if they can be addressed.
fn checked_len(rows: usize, dim: usize, bytes: usize) -> Result<usize, NoiseError> {
    let len = rows.checked_mul(dim).filter(|len| *len <= isize::MAX as usize / bytes);
    len.ok_or(NoiseError::TooLarge { rows, dim })
}

impl NoiseStream {
    /// The stream before its first row, with all rows kept. Memory: [`history_bytes`].
    ///
    /// # Errors
    /// [`NoiseError::TooLarge`] if the history does not fit into the address space.
    pub fn new(strategy: Strategy, dim: usize, key: NoiseKey) -> Result<Self, NoiseError> {
        let state = match strategy.noising() {
            Noising::Recurrence => State::Recurrence(Recurrence::new(&strategy, dim)?),
            Noising::Taps(taps) => State::Taps(Taps::new(taps.len() - 1, dim)?),
            Noising::Buffers(buffers) => State::Buffers(Buffers::new(buffers.len(), dim)?),
        };
        Ok(Self { strategy, dim, key, next_step: 0, state })
    }

    /// The same stream with only `rows` rows of `Z` kept; the others are drawn again when they are needed.
    /// The bits are the same for any number of rows.
    ///
    /// # Errors
    /// [`NoiseError::KeptRows`] if the strategy needs none of `Z` or fewer: `rows` may be up to
    /// [`most_kept_rows`].
    pub fn keeping(mut self, rows: usize) -> Result<Self, NoiseError> {
        match most_kept_rows(&self.strategy) {
            Some(most) if rows <= most => {
                self.state = State::Taps(Taps::drawn(rows, self.address(), self.dim)?);
                Ok(self)
            }
            most => Err(NoiseError::KeptRows { rows, most }),
        }
    }

    fn address(&self) -> Address<'_> {
        Address { key: self.key.bytes(), step: self.next_step }
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

    pub(crate) fn key(&self) -> &NoiseKey {
        &self.key
    }

    /// Adds `scale` times the next row to `target` and moves on. O(p d) on average; with few diagonals of
    /// `C`, every sixteenth call does the work of sixteen.
    ///
    /// # Errors
    /// [`NoiseError::Exhausted`] after `n` rows, [`NoiseError::Dimension`] unless `target` has `d`
    /// entries; nothing is changed then.
    pub fn add_next(&mut self, scale: f64, target: &mut [f64]) -> Result<(), NoiseError> {
        if self.next_step == self.strategy.steps() {
            return Err(NoiseError::Exhausted { steps: self.strategy.steps() });
        }
        if target.len() != self.dim {
            return Err(NoiseError::Dimension { expected: self.dim, found: target.len() });
        }
        let at = Address { key: self.key.bytes(), step: self.next_step };
        match (&mut self.state, self.strategy.noising()) {
            (State::Taps(state), Noising::Taps(taps)) => state.add(taps, at, scale, target),
            (State::Buffers(state), Noising::Buffers(buffers)) => {
                state.add(buffers, at, scale, target);
            }
            (State::Recurrence(state), _) => state.add(&self.strategy, at, scale, target),
            (State::Taps(_) | State::Buffers(_), _) => {
                unreachable!("the state was made for the strategy")
            }
        }
        self.next_step += 1;
        Ok(())
    }
}

/// Without the history: who sees the noise can subtract it.
impl fmt::Debug for NoiseStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoiseStream")
            .field("steps", &self.strategy.steps())
            .field("rows", &self.strategy.noise_rows())
            .field("dim", &self.dim)
            .field("key", &self.key)
            .field("next_step", &self.next_step)
            .finish_non_exhaustive()
    }
}

/// The most rows of `Z` that a strategy can use: `p - 1` if `C^-1` has `p` diagonals, and none if the noise
/// is not made from rows of `Z`.
pub fn most_kept_rows(strategy: &Strategy) -> Option<usize> {
    match strategy.noising() {
        Noising::Taps(taps) => Some(taps.len() - 1),
        Noising::Recurrence | Noising::Buffers(_) => None,
    }
}

/// Bytes that the noise of a strategy keeps from step to step for `dim` coordinates, four for each
/// coordinate and [row](Strategy::noise_rows), or for each of `kept_rows` if not all are kept.
pub fn history_bytes(strategy: &Strategy, kept_rows: Option<usize>, dim: usize) -> u64 {
    let rows = kept_rows.unwrap_or(strategy.noise_rows());
    (4 * rows as u64).saturating_mul(dim as u64)
}

fn too_many_rows(rows: usize, most: Option<usize>) -> String {
    match most {
        Some(most) => format!("at most {most} rows of noise can be kept, not {rows}"),
        None => {
            "the rows of noise that this strategy keeps cannot be drawn again: keep_rows is for \
                 methods whose inverse is banded (bisr, lambda-cgd, inverse-toeplitz)"
                .to_string()
        }
    }
}

/// Why there is no further noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoiseError {
    /// All `n` rows were used. The sensitivity is for `n` steps, so one more would not be private.
    #[error("the privacy guarantee is for {steps} steps, and all of them have been taken")]
    Exhausted {
        /// `n`.
        steps: usize,
    },
    /// A vector has the wrong number of entries.
    #[error("the noise has {expected} coordinates, but the vector has {found}")]
    Dimension {
        /// Entries that were needed.
        expected: usize,
        /// Entries that were found.
        found: usize,
    },
    /// Rows of `Z` cannot be kept, or not so many.
    #[error("{}", too_many_rows(*rows, *most))]
    KeptRows {
        /// Rows to keep.
        rows: usize,
        /// The most rows of `Z` that the strategy uses, if it uses any.
        most: Option<usize>,
    },
    /// The history cannot be addressed.
    #[error("{rows} rows of {dim} coordinates are more than memory can address")]
    TooLarge {
        /// `p - 1`, the rows to keep.
        rows: usize,
        /// `d`, the entries of a row.
        dim: usize,
    },
}
