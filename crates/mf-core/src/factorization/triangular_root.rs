//! The square root of a lower-triangular matrix by numbers, for workloads without a closed form.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use rayon::prelude::*;

use crate::banded::BandedLower;
use crate::error::Result;

/// Rows and columns of a block: large enough for matrix products to dominate, small enough for three
/// blocks to stay in the second-level cache.
const BLOCK: usize = 64;

/// The first `p` diagonals of `C = A^{1/2}` with positive diagonal, from the first `p` diagonals of
/// the lower-triangular `A`.
///
/// `C_ij = (A_ij - sum_{j<l<i} C_il C_lj) / (C_ii + C_jj)` (Bjorck & Hammarling 1983). An entry needs
/// only entries of smaller lag, so the banded root of a matrix is the root of its band: no diagonal
/// beyond the `p`-th is ever touched. In blocks (Deadman, Higham & Ralha 2012) the sum becomes
/// matrix products, and what is left per block is a small triangular Sylvester equation; the blocks
/// of one block diagonal are independent and run in parallel. Same bits for any number of threads.
///
/// Precondition: positive diagonal. O(n p^2) time, O(n (p + 64)) memory.
///
/// # Errors
/// [`Error::NotFinite`](crate::Error::NotFinite) or
/// [`Error::NonPositiveDiagonal`](crate::Error::NonPositiveDiagonal).
pub fn banded_square_root(a: &BandedLower) -> Result<BandedLower> {
    a.check_invertible()?;
    let (n, p) = (a.steps(), a.bands());
    let blocks = n.div_ceil(BLOCK);
    // Lags of block diagonal D run from (D - 1) BLOCK + 1 up, so this many hold all lags below p.
    let diagonals = ((p - 1).div_ceil(BLOCK) + 1).min(blocks);
    // root[D][J] is the block in block row J + D and block column J.
    let mut root: Vec<Vec<Mat<f64>>> = Vec::with_capacity(diagonals);
    root.push((0..blocks).into_par_iter().map(|j| diagonal_root(a, j)).collect());
    for lag in 1..diagonals {
        let next = (0..blocks - lag)
            .into_par_iter()
            .map(|j| {
                let i = j + lag;
                let mut rest = block_of(a, i, j);
                for l in j + 1..i {
                    let (left, right) = (root[i - l][l].as_ref(), root[l - j][j].as_ref());
                    matmul(rest.as_mut(), Accum::Add, left, right, -1.0, Par::Seq);
                }
                solve_sylvester(root[0][i].as_ref(), root[0][j].as_ref(), &mut rest);
                rest
            })
            .collect();
        root.push(next);
    }
    let mut c = BandedLower::zeros(n, p)?;
    for i in 0..n {
        for lag in 0..p.min(i + 1) {
            let j = i - lag;
            let block = &root[i / BLOCK - j / BLOCK][j / BLOCK];
            c.row_mut(i)[lag] = block[(i % BLOCK, j % BLOCK)];
        }
    }
    Ok(c)
}

/// Rows `BLOCK i..` and columns `BLOCK j..` of the band. Past the last row the identity is
/// continued, which has no influence on the rows before it.
fn block_of(a: &BandedLower, i: usize, j: usize) -> Mat<f64> {
    let n = a.steps();
    Mat::from_fn(BLOCK, BLOCK, |r, c| {
        let (row, column) = (i * BLOCK + r, j * BLOCK + c);
        if row < n && column < n { a.entry(row, column) } else { f64::from(row == column) }
    })
}

fn diagonal_root(a: &BandedLower, j: usize) -> Mat<f64> {
    let mut c = block_of(a, j, j);
    for i in 0..BLOCK {
        c[(i, i)] = c[(i, i)].sqrt();
    }
    for lag in 1..BLOCK {
        for i in lag..BLOCK {
            let j = i - lag;
            let sum: f64 = (j + 1..i).map(|l| c[(i, l)] * c[(l, j)]).sum();
            c[(i, j)] = (c[(i, j)] - sum) / (c[(i, i)] + c[(j, j)]);
        }
    }
    c
}

/// Solves `L X + X R = F` for lower-triangular `L` and `R` with positive diagonals, in place of `F`:
/// `X_ij = (F_ij - sum_{l<i} L_il X_lj - sum_{l>j} X_il R_lj) / (L_ii + R_jj)`, rows downward and
/// columns from the right.
fn solve_sylvester(left: MatRef<'_, f64>, right: MatRef<'_, f64>, x: &mut Mat<f64>) {
    for j in (0..BLOCK).rev() {
        for l in j + 1..BLOCK {
            let r = right[(l, j)];
            for i in 0..BLOCK {
                x[(i, j)] -= x[(i, l)] * r;
            }
        }
        for i in 0..BLOCK {
            x[(i, j)] /= left[(i, i)] + right[(j, j)];
            let solved = x[(i, j)];
            for below in i + 1..BLOCK {
                x[(below, j)] -= left[(below, i)] * solved;
            }
        }
    }
}
