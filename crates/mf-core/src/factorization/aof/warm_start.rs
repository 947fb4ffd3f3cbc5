//! Starting points: the normalized band square root, and the stretched factor of a shorter problem.

use rayon::prelude::*;

use super::objective::Columns;
use super::workload::InverseWorkload;

/// Leading columns copied as they are, in units of the bandwidth.
const HEAD: usize = 5;
/// Trailing columns aligned with the end, in units of the bandwidth.
const TAIL: usize = 3;

/// Each column the first `bands` coefficients of `(T_jj + T_{j+1,j} z + T_{j+2,j} z^2)^{-1/2}`,
/// normalized.
///
/// For a constant workload this is the banded square root of Kalinin & Lampert (2024) with unit
/// columns; it adapts to a schedule column by column. Coefficients that overflow are replaced by a
/// unit vector. `O(n b)`.
pub(super) fn square_root(inverse: &InverseWorkload, bands: usize) -> Columns {
    let n = inverse.steps();
    let mut columns = vec![0.0; n * bands];
    columns.par_chunks_mut(bands).enumerate().for_each(|(j, column)| {
        // Near the end a column of T is cut short; the preceding one describes the workload.
        let t = inverse.columns[j.min(n.saturating_sub(3))];
        column[0] = 1.0;
        for k in 1..bands.min(n - j) {
            let two = if k >= 2 { t[2] * (2 * k - 2) as f64 * column[k - 2] } else { 0.0 };
            column[k] =
                -(t[1] * (2 * k - 1) as f64 * column[k - 1] + two) / (2.0 * k as f64 * t[0]);
        }
    });
    normalize(&mut columns, bands);
    columns
}

/// Scales every column to unit norm.
pub(super) fn normalize(columns: &mut [f64], bands: usize) {
    columns.par_chunks_mut(bands).for_each(|column| {
        let norm = column.iter().map(|v| v * v).sum::<f64>().sqrt();
        if norm.is_finite() && norm > 0.0 {
            column.iter_mut().for_each(|v| *v /= norm);
        } else {
            column.fill(0.0);
            column[0] = 1.0;
        }
    });
}

/// For column `j` of `n`: the columns of a problem of `short` steps it is drawn from, with weights.
///
/// The first `5b` columns keep their index and the last `3b` their distance from the end; between
/// them the index is stretched linearly. Shifts are whole multiples of `b`, the period of the
/// optimum's fine structure, two neighbouring ones being blended.
fn sources(j: usize, n: usize, short: usize, bands: usize) -> [(usize, f64); 2] {
    let tail = (TAIL * bands).min(short / 2);
    let head = (HEAD * bands).min(short - tail);
    let excess = n - short;
    if j < head {
        return [(j, 1.0), (j, 0.0)];
    }
    if j + tail >= n {
        return [(j - excess, 1.0), (j - excess, 0.0)];
    }
    let progress = (j - head) as f64 / (n - tail - head) as f64;
    let shift = progress * excess as f64;
    let low = (shift / bands as f64).floor() as usize * bands;
    let weight = (shift - low as f64) / bands as f64;
    let at = |shift: usize| (j - shift.min(j)).min(short - 1);
    [(at(low), 1.0 - weight), (at((low + bands).min(excess)), weight)]
}

/// The factor of a problem of fewer steps stretched to `n`.
pub(super) fn stretch(columns: &[f64], bands: usize, n: usize) -> Columns {
    let short = columns.len() / bands;
    let mut out = vec![0.0; n * bands];
    out.par_chunks_mut(bands).enumerate().for_each(|(j, column)| {
        for (from, weight) in sources(j, n, short, bands) {
            let rows = bands.min(n - j).min(short - from);
            for (to, value) in column.iter_mut().zip(&columns[from * bands..from * bands + rows]) {
                *to += weight * value;
            }
        }
    });
    normalize(&mut out, bands);
    out
}

/// The inverse workload thinned to `short` steps by the same correspondence.
pub(super) fn shrink(inverse: &InverseWorkload, bands: usize, short: usize) -> InverseWorkload {
    let n = inverse.steps();
    let mut columns = inverse.columns[..short].to_vec();
    for j in (0..n).rev() {
        let [(from, weight), _] = sources(j, n, short, bands);
        if weight >= 0.5 {
            columns[from] = inverse.columns[j];
        }
    }
    for lag in 1..3 {
        for column in columns.iter_mut().rev().take(lag) {
            column[lag] = 0.0;
        }
    }
    InverseWorkload { columns, reach: inverse.reach }
}

/// Lengths of the chain of problems ending in `n`, shortest first: about halved each time, all
/// congruent modulo `b`.
pub(super) fn chain(n: usize, bands: usize) -> Vec<usize> {
    let mut lengths = vec![n];
    let mut length = n;
    while length >= 8 * bands {
        length -= length / bands / 2 * bands;
        lengths.push(length);
    }
    lengths.reverse();
    lengths
}
