//! A Gram matrix as the sampler needs it: factored, and the coins that it draws with.

use sha2::{Digest, Sha256};

use super::AccountingError;
use super::gram::Gram;

/// By which relative amount the covariance is raised.
const RAISED: f64 = 1e-10;

/// The coins of a simulation, and how sure its result shall be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coins {
    /// Which coins: different seeds are independent. Whoever picks a seed after seeing results loses the guarantee.
    pub seed: [u8; 32],
    /// The number of samples, from 2 on.
    pub samples: u64,
    /// The probability that the upper bounds do not hold, in (0, 1).
    pub failure: f64,
}

/// A factored Gram matrix.
#[derive(Debug, Clone)]
pub struct Sampler {
    pub(super) slots: usize,
    /// The raised matrix by rows, and the rows of its lower-triangular root one after the other.
    pub(super) raised: Vec<f64>,
    pub(super) root: Vec<f64>,
    /// `|m|`, `d` and `R d`.
    pub(super) mean_norm: f64,
    pub(super) towards_mean: Vec<f64>,
    pub(super) root_towards_mean: Vec<f64>,
}

impl Sampler {
    /// Factors the matrix. O(b^3).
    ///
    /// # Errors
    /// [`AccountingError::Gram`] if it is not positive semidefinite.
    pub fn new(gram: &Gram) -> Result<Self, AccountingError> {
        let b = gram.slots();
        let norms: Vec<f64> = (0..b).map(|i| gram.entry(i, i).sqrt()).collect();
        let mut raised = vec![0.0; b * b];
        for i in 0..b {
            for j in 0..b {
                let twice = if i == j { 2.0 } else { 1.0 };
                raised[i * b + j] = gram.entry(i, j) + twice * RAISED * norms[i] * norms[j];
            }
        }
        let root = lower_root(&raised, b).ok_or(AccountingError::Gram { side: b })?;
        let mut mean = vec![0.0; b];
        for i in 0..b {
            let row = &root[i * (i + 1) / 2..(i + 1) * (i + 2) / 2];
            mean.iter_mut().zip(row).for_each(|(m, r)| *m += r / b as f64);
        }
        let mean_norm = mean.iter().map(|m| m * m).sum::<f64>().sqrt();
        let towards_mean: Vec<f64> = mean.iter().map(|m| m / mean_norm).collect();
        let along = |i: usize| {
            let row = &root[i * (i + 1) / 2..(i + 1) * (i + 2) / 2];
            row.iter().zip(&towards_mean).map(|(r, d)| r * d).sum()
        };
        let root_towards_mean = (0..b).map(along).collect();
        Ok(Self { slots: b, raised, root, mean_norm, towards_mean, root_towards_mean })
    }
}

/// The lower-triangular root of a matrix, row after row without the zeros, if there is one.
fn lower_root(matrix: &[f64], side: usize) -> Option<Vec<f64>> {
    let mut root: Vec<f64> = Vec::with_capacity(side * (side + 1) / 2);
    for i in 0..side {
        let start = i * (i + 1) / 2;
        for j in 0..=i {
            let other = j * (j + 1) / 2;
            let known: f64 = root[start..start + j]
                .iter()
                .zip(&root[other..other + j])
                .map(|(x, y)| x * y)
                .sum();
            let rest = matrix[i * side + j] - known;
            if i == j {
                if !(rest > 0.0 && rest.is_finite()) {
                    return None;
                }
                root.push(rest.sqrt());
            } else {
                root.push(rest / root[other + j]);
            }
        }
    }
    Some(root)
}

/// The seed of one use of a seed: uses with different names have independent coins.
pub(super) fn derived_seed(seed: [u8; 32], name: &str, index: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update((name.len() as u64).to_le_bytes());
    hash.update(name.as_bytes());
    hash.update(seed);
    hash.update(index.to_le_bytes());
    hash.finalize().into()
}
