//! Banded strategies on cyclic Poisson batches.
//!
//! `C` has `p` diagonals. The examples are split into `p` groups; step `i` looks at group `i mod p` only and takes each
//! of its examples with probability `q = p B / N`, for an expected batch of `B` out of `N`. An example can take part every
//! `p` steps, `ceil(n / p)` times, and the columns of `C` there have no row in common: in Theorem 1 of the
//! [module above](super) two patterns have the covariance `sum_i |C e_i|^2 / sigma^2` over the steps `i` in both, at
//! most what it would be if all columns had the largest norm (Corollary a). That is the pair of `ceil(n / p)` rounds of
//! [`Poisson`] sampling with the noise multiplier `sigma / max_i |C e_i|` (Choquette-Choo et al. 2023,
//! arXiv:2306.08153). Entries may have any sign.
//!
//! The groups may be public if the number of examples is (equal parts, neighbours by zeroing out); the accounting does
//! not use that they are secret.

use mf_core::Strategy;

use super::poisson::Poisson;
use super::{AccountingError, Directions, check_count, check_noise};
use crate::calibration::{MARGIN, Neighbouring};

/// The most examples.
const MOST_EXAMPLES: u64 = 1 << 52;

/// A banded strategy with cyclic Poisson sampling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CyclicPoisson {
    rounds: Poisson,
    column_norm: f64,
}

impl CyclicPoisson {
    /// Expected batches of `batch_size` out of `examples`, in as many groups as the strategy has diagonals. O(n p).
    ///
    /// # Errors
    /// [`AccountingError::ReplaceOne`]; [`AccountingError::Count`] for no examples; [`AccountingError::Probability`]
    /// if the groups are smaller than a batch or there are none.
    pub fn new(
        neighbouring: Neighbouring,
        strategy: &Strategy,
        batch_size: u64,
        examples: u64,
    ) -> Result<Self, AccountingError> {
        check_count("examples", examples, MOST_EXAMPLES)?;
        let (n, p) = (strategy.steps(), strategy.bands());
        let probability = p as f64 * batch_size as f64 / examples as f64;
        let rounds = Poisson::new(neighbouring, probability, n.div_ceil(p) as u64)?;
        let squared = match strategy.as_toeplitz() {
            // The first column is the longest.
            Some(column) => column.iter().map(|c| c * c).sum(),
            None => {
                let mut squares = vec![0.0; n];
                for i in 0..n {
                    for (lag, c) in strategy.row(i).iter().enumerate() {
                        squares[i - lag] += c * c;
                    }
                }
                squares.into_iter().fold(0.0, f64::max)
            }
        };
        // Larger by more than the rounding of a sum of squares.
        let column_norm = f64::sqrt(squared) * (1.0 + MARGIN);
        check_noise("norm of the largest column of the strategy", column_norm)?;
        Ok(Self { rounds, column_norm })
    }

    /// The rounds that an example can take part in.
    pub fn rounds(&self) -> &Poisson {
        &self.rounds
    }

    /// `max_i |C e_i|`, rounded up.
    pub fn column_norm(&self) -> f64 {
        self.column_norm
    }

    /// `delta(epsilon)` for noise of this standard deviation at clip norm 1, rounded up.
    ///
    /// # Errors
    /// As [`Poisson::delta`].
    pub fn delta(&self, noise_std: f64, epsilon: f64) -> Result<Directions, AccountingError> {
        self.rounds.delta(noise_std / self.column_norm, epsilon)
    }

    /// `epsilon` at `delta` for noise of this standard deviation at clip norm 1, rounded up.
    ///
    /// # Errors
    /// As [`Poisson::epsilon`].
    pub fn epsilon(&self, noise_std: f64, delta: f64) -> Result<Directions, AccountingError> {
        self.rounds.epsilon(noise_std / self.column_norm, delta)
    }

    /// The standard deviation of the noise `Z` at clip norm 1 that is `(epsilon, delta)`-private, rounded up.
    ///
    /// # Errors
    /// As [`Poisson::multiplier`].
    pub fn noise_std(&self, epsilon: f64, delta: f64) -> Result<f64, AccountingError> {
        Ok(self.rounds.multiplier(epsilon, delta)? * self.column_norm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mf_core::BandedLower;

    #[test]
    fn groups_give_the_probability_and_the_longest_column_the_norm() {
        let new = |strategy: &Strategy, batch| {
            CyclicPoisson::new(Neighbouring::ZeroOut, strategy, batch, 1000)
        };
        let toeplitz = Strategy::toeplitz(10, vec![1.0, -0.5, 0.25]).unwrap();
        let cyclic = new(&toeplitz, 100).unwrap();
        assert_eq!((cyclic.rounds().probability(), cyclic.rounds().rounds()), (0.3, 4));
        assert!((cyclic.column_norm() - 1.3125_f64.sqrt()).abs() < 1e-8);
        let rows = BandedLower::from_entries(3, 2, vec![1.0, 0.0, 2.0, 3.0, 1.0, -4.0]).unwrap();
        let longest = new(&Strategy::banded(rows).unwrap(), 1).unwrap().column_norm();
        assert!((longest - 20_f64.sqrt()).abs() < 1e-7, "{longest}");
        assert!(matches!(new(&toeplitz, 400), Err(AccountingError::Probability { .. })));
        assert!(matches!(new(&toeplitz, 0), Err(AccountingError::Probability { .. })));
        let replaced = CyclicPoisson::new(Neighbouring::ReplaceOne, &toeplitz, 1, 1000);
        assert_eq!(replaced, Err(AccountingError::ReplaceOne));
    }
}
