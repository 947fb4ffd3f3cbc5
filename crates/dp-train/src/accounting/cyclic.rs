//! Banded strategies on cyclic Poisson batches.
//!
//! `C` has `p` diagonals. The examples are split into `p` groups; step `i` looks at group `i mod p` only and takes each
//! of its examples with probability `q = p B / N`, for an expected batch of `B` out of `N`. Steps `r p, .., r p + p - 1` are
//! round `r`: an example can take part in one step of every round, always the same one, and the columns of `C` there
//! have no row in common, so that they are orthogonal. Its pattern is the set `S` of rounds that took it, and in Theorem 1 of
//! the [module above](super) two patterns have the covariance
//!
//! ```text
//! K_{S,S'} = sum_{r in S and S'} |C e_{i_r}|^2 / sigma^2 <= sum_{r in S and S'} c_r^2 / sigma^2,   c_r = max_{i in round r} |C e_i|,
//! ```
//!
//! whichever group it is in. By Corollary (a) the right side is pessimistic. It is the covariance of independent rounds, the
//! `r`-th of which takes the example with probability `q` and shifts a normal of its own by `c_r`: with `u_S = sum_{r in S}
//! c_r y_r / sigma` for independent standard normals `y_r`, and since rounds take independently,
//! `W = prod_r (1 - q + q exp(c_r y_r / sigma - c_r^2 / (2 sigma^2)))`. So the pair is the product over all rounds of
//! [`Poisson`] pairs with the noise multipliers `sigma / c_r`, whose losses add up, each direction by itself. With equal
//! columns these are `ceil(n / p)` rounds with one multiplier (Choquette-Choo et al. 2023, arXiv:2306.08153); where the rate
//! falls, and columns with it, the later rounds cost less. Entries may have any sign.
//!
//! Many different `c_r` are raised to few: by Corollary (a) once more. All laws lie on the grid of the longest columns' round,
//! which is coarse for the others and pessimistic as any grid is.
//!
//! The groups may be public if the number of examples is (equal parts, neighbours by zeroing out); the accounting does
//! not use that they are secret.

use mf_core::Strategy;

use super::composition::{Aim, Composition};
use super::pld::Pld;
use super::poisson::Poisson;
use super::root::{Search, least_noise};
use super::{AccountingError, Direction, Directions, check_count, check_noise};
use crate::calibration::{MARGIN, Neighbouring};

/// The most examples.
const MOST_EXAMPLES: u64 = 1 << 52;

/// Kinds of rounds that are told apart: with squares of norms in so many equal parts, the noise is within some percent of
/// what it would be if all were.
const MOST_KINDS: usize = 24;

/// Rounds of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Kind {
    /// The largest norm of a column in them, rounded up.
    norm: f64,
    rounds: u64,
}

/// A banded strategy with cyclic Poisson sampling.
#[derive(Debug, Clone, PartialEq)]
pub struct CyclicPoisson {
    rounds: Poisson,
    /// From the longest columns down; one kind if all are as long.
    kinds: Vec<Kind>,
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
        let squares = match strategy.as_toeplitz() {
            // The first column is the longest, and shorter ones at the end are worth no kind of their own.
            Some(column) => vec![column.iter().map(|c| c * c).sum(); n],
            None => {
                let mut squares = vec![0.0; n];
                for i in 0..n {
                    for (lag, c) in strategy.row(i).iter().enumerate() {
                        squares[i - lag] += c * c;
                    }
                }
                squares
            }
        };
        Self::of_columns(neighbouring, probability, &squares, p)
    }

    /// The same for columns with these squares of norms, in order, in so many groups.
    pub(crate) fn of_columns(
        neighbouring: Neighbouring,
        probability: f64,
        squares: &[f64],
        groups: usize,
    ) -> Result<Self, AccountingError> {
        let largest = |squares: &[f64]| squares.iter().copied().fold(0.0, f64::max);
        let mut rounds: Vec<f64> = squares.chunks(groups.max(1)).map(largest).collect();
        rounds.sort_by(|a, b| b.total_cmp(a));
        let all = Poisson::new(neighbouring, probability, rounds.len() as u64)?;
        let width = largest(&rounds) / MOST_KINDS as f64;
        let mut kinds: Vec<(f64, Kind)> = Vec::new();
        for square in rounds {
            // Of those within one width the first is the largest, and columns that differ by rounding are of one kind.
            match kinds.last_mut() {
                Some((first, kind)) if *first - square < width => kind.rounds += 1,
                _ => {
                    // Larger by more than the rounding of a sum of squares.
                    let norm = f64::sqrt(square) * (1.0 + MARGIN);
                    check_noise("norm of the largest column of the strategy", norm)?;
                    kinds.push((square, Kind { norm, rounds: 1 }));
                }
            }
        }
        Ok(Self { rounds: all, kinds: kinds.into_iter().map(|(_, kind)| kind).collect() })
    }

    /// The rounds that an example can take part in.
    pub fn rounds(&self) -> &Poisson {
        &self.rounds
    }

    /// `max_i |C e_i|`, rounded up.
    pub fn column_norm(&self) -> f64 {
        self.kinds[0].norm
    }

    /// Whether all rounds cost the same.
    fn is_even(&self) -> bool {
        self.kinds.len() == 1
    }

    /// `delta(epsilon)` for noise of this standard deviation at clip norm 1, rounded up.
    ///
    /// # Errors
    /// As [`Poisson::delta`].
    pub fn delta(&self, noise_std: f64, epsilon: f64) -> Result<Directions, AccountingError> {
        if self.is_even() {
            return self.rounds.delta(noise_std / self.column_norm(), epsilon);
        }
        let of =
            |direction| self.composed(direction, noise_std, Aim::Epsilon(epsilon))?.delta(epsilon);
        Directions::both(of)
    }

    /// `epsilon` at `delta` for noise of this standard deviation at clip norm 1, rounded up.
    ///
    /// # Errors
    /// As [`Poisson::epsilon`].
    pub fn epsilon(&self, noise_std: f64, delta: f64) -> Result<Directions, AccountingError> {
        if self.is_even() {
            return self.rounds.epsilon(noise_std / self.column_norm(), delta);
        }
        let of = |direction| {
            let aimed = |aim| self.composed(direction, noise_std, aim)?.epsilon(delta);
            let first = aimed(Aim::Delta(delta))?;
            Ok::<f64, AccountingError>(first.min(aimed(Aim::Epsilon(first))?))
        };
        Directions::both(of)
    }

    /// The standard deviation of the noise `Z` at clip norm 1 that is `(epsilon, delta)`-private, rounded up. A second or
    /// two where columns differ.
    ///
    /// # Errors
    /// As [`Poisson::multiplier`].
    pub fn noise_std(&self, epsilon: f64, delta: f64) -> Result<f64, AccountingError> {
        // With the longest columns in all rounds.
        let enough = self.rounds.multiplier(epsilon, delta)? * self.column_norm();
        if self.is_even() {
            return Ok(enough);
        }
        let search = Search { enough, lower_by: 0.8, tolerance: 1e-6 };
        let found = least_noise(search, delta, |noise| {
            Ok((self.delta(noise, epsilon)?.worst() / delta).ln())
        })?;
        // The errors that are added make delta waver in its last digits: what is returned was itself looked at.
        let found = found * (1.0 + MARGIN);
        let is_enough = self.delta(found, epsilon)?.worst() <= delta;
        Ok(if is_enough { found } else { enough })
    }

    /// The losses of all rounds together.
    fn composed(
        &self,
        direction: Direction,
        noise_std: f64,
        aim: Aim,
    ) -> Result<Composition, AccountingError> {
        let step = self.rounds.loss(direction, noise_std / self.column_norm())?.step();
        let losses = self.kinds.iter().map(|kind| {
            let loss = self.rounds.loss_with_step(direction, noise_std / kind.norm, step)?;
            Ok((loss, kind.rounds))
        });
        let losses = losses.collect::<Result<Vec<(Pld, u64)>, AccountingError>>()?;
        let parts: Vec<(&Pld, u64)> = losses.iter().map(|(loss, rounds)| (loss, *rounds)).collect();
        Composition::new(&parts, aim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration;
    use mf_core::BandedLower;

    #[test]
    fn groups_give_the_probability_and_the_longest_column_the_norm() {
        let new = |strategy: &Strategy, batch| {
            CyclicPoisson::new(Neighbouring::ZeroOut, strategy, batch, 1000)
        };
        let toeplitz = Strategy::toeplitz(10, vec![1.0, -0.5, 0.25]).unwrap();
        let cyclic = new(&toeplitz, 100).unwrap();
        assert_eq!((cyclic.rounds().probability(), cyclic.rounds().rounds()), (0.3, 4));
        assert!((cyclic.column_norm() - 1.3125_f64.sqrt()).abs() < 1e-8 && cyclic.is_even());
        let rows = BandedLower::from_entries(3, 2, vec![1.0, 0.0, 2.0, 3.0, 1.0, -4.0]).unwrap();
        let longest = new(&Strategy::banded(rows).unwrap(), 1).unwrap().column_norm();
        assert!((longest - 20_f64.sqrt()).abs() < 1e-7, "{longest}");
        assert!(matches!(new(&toeplitz, 400), Err(AccountingError::Probability { .. })));
        assert!(matches!(new(&toeplitz, 0), Err(AccountingError::Probability { .. })));
        let replaced = CyclicPoisson::new(Neighbouring::ReplaceOne, &toeplitz, 1, 1000);
        assert_eq!(replaced, Err(AccountingError::ReplaceOne));
    }

    /// Two groups whose columns fall from round to round.
    fn falling(probability: f64, rounds: usize) -> (CyclicPoisson, Vec<f64>) {
        let norm = |r: usize| 1.0 - 0.9 * r as f64 / rounds as f64;
        let squares: Vec<f64> = (0..2 * rounds).map(|i| norm(i / 2).powi(2)).collect();
        let account = CyclicPoisson::of_columns(Neighbouring::ZeroOut, probability, &squares, 2);
        (account.unwrap(), squares)
    }

    #[test]
    fn every_round_costs_as_much_as_its_own_columns() {
        // Everyone in every round: one Gaussian release of the root of the sum of squares.
        let (everyone, squares) = falling(1.0, 10);
        assert_eq!(everyone.kinds.len(), 10);
        let sensitivity = (squares.iter().sum::<f64>() / 2.0).sqrt();
        let exact = calibration::multiplier(2.0, 1e-5).unwrap() * sensitivity;
        let found = everyone.noise_std(2.0, 1e-5).unwrap();
        assert!(found >= exact * (1.0 - 1e-6) && found < exact * (1.0 + 1e-3), "{found} {exact}");
        // Between the least and the largest columns in all rounds, and within some percent of what it would be if no
        // kind were raised.
        for rounds in [10, 100] {
            let (some, squares) = falling(0.1, rounds);
            let found = some.noise_std(2.0, 1e-5).unwrap();
            let even = some.rounds.multiplier(2.0, 1e-5).unwrap();
            let mean = (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
            assert!(found < 0.9 * even && found > mean * even * 0.98, "{rounds}: {found} {even}");
            let epsilons = some.epsilon(found, 1e-5).unwrap().worst();
            assert!((epsilons - 2.0).abs() < 1e-3, "{epsilons}");
            assert!(some.delta(found, 2.0).unwrap().worst() <= 1e-5);
        }
    }

    #[test]
    fn kinds_are_few_and_never_below_their_columns() {
        let (many, squares) = falling(0.1, 1000);
        assert!(many.kinds.len() <= MOST_KINDS && many.kinds.iter().all(|kind| kind.rounds > 0));
        assert_eq!(many.kinds.iter().map(|kind| kind.rounds).sum::<u64>(), 1000);
        let mut at = 0;
        for kind in &many.kinds {
            for round in at..at + kind.rounds as usize {
                assert!(kind.norm * kind.norm >= squares[2 * round]);
            }
            at += kind.rounds as usize;
        }
    }
}
