//! Triangular solves with a banded Cholesky factor in single precision.
//!
//! The factor is stored by rows in ascending column order, `bands - 1` places before the diagonal,
//! which is inverted.

use super::lanes::{Octet, axpy_single, dispatched, multiply_add};

dispatched! {
    /// Solves with the factor and its transpose for `8 * octets` right-hand sides, at most 32,
    /// interleaved by row. `2 n b` multiply-adds for each.
    pub(super) fn solve_octets(factor: &[f32], bands: usize, octets: usize, x: &mut [f32]) = solve_octets_body
}

#[inline(always)]
fn solve_octets_body<const FUSED: bool>(
    factor: &[f32],
    bands: usize,
    octets: usize,
    x: &mut [f32],
) {
    let x = x.as_chunks_mut::<8>().0;
    match octets {
        1 => solve_wide::<FUSED, 1>(factor, bands, x.as_chunks_mut::<1>().0),
        2 => solve_wide::<FUSED, 2>(factor, bands, x.as_chunks_mut::<2>().0),
        3 => solve_wide::<FUSED, 3>(factor, bands, x.as_chunks_mut::<3>().0),
        _ => solve_wide::<FUSED, 4>(factor, bands, x.as_chunks_mut::<4>().0),
    }
}

#[inline(always)]
fn solve_wide<const FUSED: bool, const W: usize>(
    factor: &[f32],
    bands: usize,
    x: &mut [[Octet; W]],
) {
    for (j, row) in factor.chunks_exact(bands).enumerate().take(x.len()) {
        let reach = (bands - 1).min(j);
        let (past, rest) = x.split_at_mut(j);
        let entries = &row[bands - 1 - reach..bands - 1];
        // Two sums per octet: one chain of multiply-adds would wait on itself.
        let mut sums = [[[0.0f32; 8]; W]; 2];
        let (pairs, odd) = past[j - reach..].as_chunks::<2>();
        let (entry_pairs, odd_entry) = entries.as_chunks::<2>();
        for (pair, entry) in pairs.iter().zip(entry_pairs) {
            for t in 0..2 {
                for w in 0..W {
                    sums[t][w] = axpy_single::<FUSED>(entry[t], pair[t][w], sums[t][w]);
                }
            }
        }
        for (value, entry) in odd.iter().zip(odd_entry) {
            for w in 0..W {
                sums[0][w] = axpy_single::<FUSED>(*entry, value[w], sums[0][w]);
            }
        }
        for w in 0..W {
            for t in 0..8 {
                rest[0][w][t] = (rest[0][w][t] - (sums[0][w][t] + sums[1][w][t])) * row[bands - 1];
            }
        }
    }
    for j in (0..x.len()).rev() {
        let row = &factor[j * bands..(j + 1) * bands];
        let reach = (bands - 1).min(j);
        let (past, rest) = x.split_at_mut(j);
        let mut value = rest[0];
        for octet in &mut value {
            octet.iter_mut().for_each(|v| *v *= row[bands - 1]);
        }
        rest[0] = value;
        for (x, l) in past[j - reach..].iter_mut().zip(&row[bands - 1 - reach..]) {
            for w in 0..W {
                x[w] = axpy_single::<FUSED>(-l, value[w], x[w]);
            }
        }
    }
}

dispatched! {
    /// The same for a single right-hand side, vectorized along the band.
    pub(super) fn solve_one(factor: &[f32], bands: usize, x: &mut [f32]) = solve_one_body
}

#[inline(always)]
fn solve_one_body<const FUSED: bool>(factor: &[f32], bands: usize, x: &mut [f32]) {
    for (j, row) in factor.chunks_exact(bands).enumerate().take(x.len()) {
        let reach = (bands - 1).min(j);
        let (past, rest) = x.split_at_mut(j);
        let (xs, x_rest) = past[j - reach..].as_chunks::<8>();
        let (ls, l_rest) = row[bands - 1 - reach..bands - 1].as_chunks::<8>();
        let mut sums = [0.0f32; 8];
        for (x, l) in xs.iter().zip(ls) {
            sums = multiply_add::<FUSED>(x, l, sums);
        }
        let tail: f32 = x_rest.iter().zip(l_rest).map(|(x, l)| x * l).sum();
        rest[0] = (rest[0] - sums.iter().sum::<f32>() - tail) * row[bands - 1];
    }
    for j in (0..x.len()).rev() {
        let row = &factor[j * bands..(j + 1) * bands];
        let reach = (bands - 1).min(j);
        let (past, rest) = x.split_at_mut(j);
        rest[0] *= row[bands - 1];
        let value = rest[0];
        for (x, l) in past[j - reach..].iter_mut().zip(&row[bands - 1 - reach..]) {
            *x -= l * value;
        }
    }
}
