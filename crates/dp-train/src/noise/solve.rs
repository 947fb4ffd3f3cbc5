//! Several rows of `C^-1 Z` at once: a blocked triangular solve over a ring of rows.
//!
//! Row `i` is `y_i = (z_i - sum_j C_ij y_j) / C_ii` over the `p - 1` rows before it. For a block of
//! rows from `s` on, the part of the sum over rows before `s` is a matrix product that reads the
//! history once for the whole block; what is left is a small triangle within the block.
//!
//! The history is cut into *panels* of 16 coordinates, one cache line of f32 per row, and a panel
//! holds all its rows one after the other: the product runs through memory in order, and a panel
//! stays in the second-level cache while all rows of the block use it.
//!
//! Every element is computed by the same operations in the same order however rows are put into
//! blocks: subtract `C_ij y_j` in f64 for increasing `j`, divide, round to f32. Multiplication and
//! subtraction are not fused, so the bits do not depend on the processor's vector units either.

use mf_core::Strategy;

/// Coordinates in a panel: one cache line of f32.
pub(super) const PANEL: usize = 16;

/// Most rows that are computed at once.
pub(super) const AHEAD: usize = 16;

/// Rows and coordinates of the product that stay in registers: 4 x 8 doubles.
const ROWS: usize = 4;
const LANES: usize = 8;

/// The coefficients of rows `start..start + rows`, laid out for the solve.
pub(super) struct Block {
    rows: usize,
    /// Row of the ring into which row `start` goes; the oldest row stands there until then.
    first_slot: usize,
    /// Whether the slots from `first_slot` on hold rows yet.
    wrapped: bool,
    /// For each group of four rows, their coefficients by slot of the ring.
    history: Vec<Vec<[f64; ROWS]>>,
    /// The triangle within the block by rows, diagonal last.
    within: Vec<Vec<f64>>,
}

impl Block {
    /// O(rows p).
    pub(super) fn new(strategy: &Strategy, start: usize, rows: usize) -> Self {
        let window = strategy.bands() - 1;
        let first_slot = start % window;
        let mut history = vec![vec![[0.0; ROWS]; window]; rows.div_ceil(ROWS)];
        let mut within = Vec::with_capacity(rows);
        for r in 0..rows {
            let row = strategy.row(start + r);
            for (lag, &c) in row.iter().enumerate().skip(r + 1) {
                history[r / ROWS][(start + r - lag) % window][r % ROWS] = c;
            }
            within.push(row[..row.len().min(r + 1)].iter().rev().copied().collect());
        }
        Self { rows, first_slot, wrapped: start >= window, history, within }
    }

    /// Replaces the oldest rows of a tile's history by the rows of this block.
    ///
    /// `normals` holds the entries of `Z`, one row of `width` per row of the block.
    pub(super) fn advance(&self, history: &mut [f32], normals: &[f64], width: usize) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, the only feature that the function was compiled for.
            unsafe { self.advance_avx2(history, normals, width) };
            return;
        }
        self.advance_portable(history, normals, width);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn advance_avx2(&self, history: &mut [f32], normals: &[f64], width: usize) {
        self.advance_portable(history, normals, width);
    }

    #[inline(always)]
    fn advance_portable(&self, history: &mut [f32], normals: &[f64], width: usize) {
        let window = history.len() / width;
        let whole = width / PANEL;
        let (panels, last) = history.split_at_mut(whole * PANEL * window);
        for (index, panel) in panels.as_chunks_mut::<PANEL>().0.chunks_exact_mut(window).enumerate()
        {
            self.advance_panel(panel, |r| {
                let at = r * width + index * PANEL;
                let mut z = [0.0; PANEL];
                z.copy_from_slice(&normals[at..at + PANEL]);
                z
            });
        }
        let rest = width - whole * PANEL;
        if rest > 0 {
            // The last panel is as narrow as what is left; it is widened for the solve alone.
            let mut panel = vec![[0.0; PANEL]; window];
            for (wide, narrow) in panel.iter_mut().zip(last.chunks_exact(rest)) {
                wide[..rest].copy_from_slice(narrow);
            }
            self.advance_panel(&mut panel, |r| {
                let at = r * width + whole * PANEL;
                let mut z = [0.0; PANEL];
                z[..rest].copy_from_slice(&normals[at..at + rest]);
                z
            });
            for (wide, narrow) in panel.iter().zip(last.chunks_exact_mut(rest)) {
                narrow.copy_from_slice(&wide[..rest]);
            }
        }
    }

    #[inline(always)]
    fn advance_panel(&self, panel: &mut [[f32; PANEL]], normals: impl Fn(usize) -> [f64; PANEL]) {
        let mut rows = [[0.0_f64; PANEL]; AHEAD];
        for r in 0..self.rows {
            rows[r] = normals(r);
        }
        let (newer, older) = panel.split_at(self.first_slot);
        for (group, coefficients) in rows.chunks_exact_mut(ROWS).zip(&self.history) {
            let (newer_coefficients, older_coefficients) = coefficients.split_at(self.first_slot);
            for lane in [0, LANES] {
                let mut sums = [[0.0; LANES]; ROWS];
                for r in 0..ROWS {
                    sums[r].copy_from_slice(&group[r][lane..lane + LANES]);
                }
                if self.wrapped {
                    subtract_products(&mut sums, older, lane, older_coefficients);
                }
                subtract_products(&mut sums, newer, lane, newer_coefficients);
                for r in 0..ROWS {
                    group[r][lane..lane + LANES].copy_from_slice(&sums[r]);
                }
            }
        }
        let mut solved = [[0.0_f32; PANEL]; AHEAD];
        for r in 0..self.rows {
            // Row r depends on the rows of the block before it, as they are kept: in f32.
            let (&diagonal, before) = match self.within[r].split_last() {
                Some(row) => row,
                None => return,
            };
            let reach = before.len();
            for (&c, y) in before.iter().zip(&solved[r - reach..r]) {
                for t in 0..PANEL {
                    rows[r][t] -= c * f64::from(y[t]);
                }
            }
            for t in 0..PANEL {
                solved[r][t] = (rows[r][t] / diagonal) as f32;
            }
        }
        let window = panel.len();
        for r in 0..self.rows {
            panel[(self.first_slot + r) % window] = solved[r];
        }
    }
}

/// `sums[r][t] -= sum_j c_j[r] y_j[lane + t]` in the order of `j`.
#[inline(always)]
fn subtract_products(
    sums: &mut [[f64; LANES]; ROWS],
    history: &[[f32; PANEL]],
    lane: usize,
    coefficients: &[[f64; ROWS]],
) {
    let mut local = *sums;
    for (y, c) in history.iter().zip(coefficients) {
        for r in 0..ROWS {
            for t in 0..LANES {
                local[r][t] -= c[r] * f64::from(y[lane + t]);
            }
        }
    }
    *sums = local;
}
