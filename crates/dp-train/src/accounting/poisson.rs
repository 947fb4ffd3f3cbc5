//! DP-SGD on Poisson batches: every step takes each example with probability `q`, independently, and adds
//! independent noise.
//!
//! One round is Theorem 1 of the [module above](super) with two patterns, there and not there:
//!
//! ```text
//! P = (1 - q) N(0, s^2) + q N(1, s^2),   Q = N(0, s^2)      remove; add exchanges them
//! loss(x) = ln(1 - q + q e^{(2x - 1) / (2 s^2)}),           rising in x
//! ```
//!
//! and `T` rounds are the theorem with all `2^T` patterns, whose pair is the product of the `T` single ones: their losses
//! add up, *each direction by itself*. `s` is the noise multiplier, noise over clip norm.
//!
//! Keeping both masses of a cell adds at most `h^2 / 4` to the variance of a round's loss. The grid's step `h` is 1e-4, as
//! in Google's `dp_accounting`, so that the two agree at usual settings (at very small `q` and `delta` ours can be much the larger), but at least a 300th of the loss's standard
//! deviation, which costs a relative 2e-6 of epsilon, and a 50th of it where 1e-4 would be more than a fifth.

use super::composition::{Aim, Composition, MOST_ROUNDS};
use super::mixture::Pair;
use super::pld::{MOST_POINTS, Pld};
use super::root::{Search, least_noise};
use super::{
    AccountingError, Direction, Directions, check_count, check_delta, check_epsilon, check_noise,
    refuse_replace_one,
};
use crate::calibration::{self, MARGIN, Neighbouring};

/// The usual step of the grid.
const STEP: f64 = 1e-4;

/// Rounds in each of which an example is taken with the same probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Poisson {
    probability: f64,
    rounds: u64,
}

impl Poisson {
    /// `T` rounds with probability `q`.
    ///
    /// # Errors
    /// [`AccountingError::ReplaceOne`], [`AccountingError::Probability`] or [`AccountingError::Count`].
    pub fn new(
        neighbouring: Neighbouring,
        probability: f64,
        rounds: u64,
    ) -> Result<Self, AccountingError> {
        refuse_replace_one(neighbouring)?;
        if !(probability > 0.0 && probability <= 1.0) {
            return Err(AccountingError::Probability { probability });
        }
        check_count("rounds", rounds, MOST_ROUNDS)?;
        Ok(Self { probability, rounds })
    }

    /// `q`.
    pub fn probability(&self) -> f64 {
        self.probability
    }

    /// `T`.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// `delta(epsilon)` at this noise multiplier, rounded up. Some ten milliseconds.
    ///
    /// # Errors
    /// [`AccountingError::Epsilon`], [`AccountingError::Noise`] or [`AccountingError::Grid`].
    pub fn delta(&self, multiplier: f64, epsilon: f64) -> Result<Directions, AccountingError> {
        check_epsilon(epsilon)?;
        let of =
            |direction| self.delta_in(direction, multiplier, epsilon, (Aim::Epsilon(epsilon), 1.0));
        Directions::both(of)
    }

    /// `epsilon` at `delta` and this noise multiplier, rounded up. Some ten milliseconds.
    ///
    /// # Errors
    /// [`AccountingError::Delta`], [`AccountingError::Noise`] or [`AccountingError::Grid`];
    /// [`AccountingError::OutOfRange`] if none is enough.
    pub fn epsilon(&self, multiplier: f64, delta: f64) -> Result<Directions, AccountingError> {
        check_delta(delta)?;
        let of = |direction| {
            let pld = self.loss(direction, multiplier)?;
            let aimed = |aim| Composition::new(&[(&pld, self.rounds)], aim)?.epsilon(delta);
            // Where many rounds have far tails the first aim is off, and the second better.
            let first = aimed(Aim::Delta(delta))?;
            Ok::<f64, AccountingError>(first.min(aimed(Aim::Epsilon(first))?))
        };
        Directions::both(of)
    }

    /// The least noise multiplier found that is `(epsilon, delta)`-private, rounded up by a relative 1e-7 at most.
    /// About a dozen evaluations of [`delta`](Self::delta).
    ///
    /// # Errors
    /// [`AccountingError::Epsilon`], [`AccountingError::Delta`], [`AccountingError::Grid`] or
    /// [`AccountingError::OutOfRange`].
    pub fn multiplier(&self, epsilon: f64, delta: f64) -> Result<f64, AccountingError> {
        check_epsilon(epsilon)?;
        check_delta(delta)?;
        // Without sampling the rounds are one Gaussian release. Sampling only helps, and the grid costs little.
        let plain = 1.05 * calibration::multiplier(epsilon, delta)? * (self.rounds as f64).sqrt();
        let aim = Aim::Both { epsilon, delta };
        let solve = |direction, search, coarser| {
            least_noise(search, delta, |s| {
                Ok((self.delta_in(direction, s, epsilon, (aim, coarser))? / delta).ln())
            })
        };
        // One direction decides, usually removal; the other is looked at where that one ends.
        for direction in [Direction::Remove, Direction::Add] {
            // A coarse grid is fast and pessimistic: it gives noise that is enough and not much too much.
            let rough = Search { tolerance: 1e-4, ..Search::from(plain) };
            let near = solve(direction, rough, 8.0).and_then(|enough| {
                let search = Search { lower_by: 0.99, ..Search::from(enough) };
                solve(direction, search, 1.0)
            });
            let found = near.or_else(|_| solve(direction, Search::from(plain), 1.0))?;
            // The errors that are added make delta waver by a relative 1e-5.
            let mut found = found * (1.0 + MARGIN);
            for raise in [1e-8, 1e-7, 1e-6, 1e-5, 1e-4] {
                if self.delta_in(direction, found, epsilon, (aim, 1.0))? <= delta {
                    break;
                }
                found *= 1.0 + raise;
            }
            let worst = |other| self.delta_in(other, found, epsilon, (aim, 1.0));
            if Directions::both(worst)?.worst() <= delta {
                return Ok(found);
            }
        }
        Err(AccountingError::OutOfRange { delta })
    }

    /// `delta(epsilon)` in one direction, on a grid that is coarser by a factor.
    fn delta_in(
        &self,
        direction: Direction,
        multiplier: f64,
        epsilon: f64,
        (aim, coarser): (Aim, f64),
    ) -> Result<f64, AccountingError> {
        let pld = self.loss_on(direction, multiplier, coarser)?;
        Composition::new(&[(&pld, self.rounds)], aim)?.delta(epsilon)
    }

    /// The privacy loss of one round, on a grid that suits the number of rounds.
    ///
    /// # Errors
    /// [`AccountingError::Noise`] or [`AccountingError::Grid`].
    pub fn loss(&self, direction: Direction, multiplier: f64) -> Result<Pld, AccountingError> {
        self.loss_on(direction, multiplier, 1.0)
    }

    /// The same on a grid that is coarser by a factor, within reason.
    fn loss_on(
        &self,
        direction: Direction,
        multiplier: f64,
        coarser: f64,
    ) -> Result<Pld, AccountingError> {
        check_noise("noise multiplier", multiplier)?;
        let pair = Pair { q: self.probability, s: multiplier, direction };
        let (lowest, highest) = pair.range();
        let deviation = pair.deviation();
        // The window of very many rounds would be too wide for the finest step.
        let finest = deviation / 300.0 * (self.rounds as f64 / 1e5).sqrt().clamp(1.0, 15.0);
        let finest = finest.min(0.5);
        let step = if STEP > deviation / 5.0 { deviation / 50.0 } else { STEP }.max(finest);
        let step = (coarser * step).min(0.1 * deviation).max(step);
        let coarsened = step.max((highest - lowest) / (MOST_POINTS as f64 / 4.0));
        if !(coarsened <= 0.3 * deviation && coarsened > 0.0) {
            let points = (highest - lowest) / step;
            return Err(AccountingError::Grid { points, most: MOST_POINTS });
        }
        pair.discretized(coarsened)
    }

    /// The privacy loss of one round on the grid of a given step, so that it can be composed with others.
    ///
    /// # Errors
    /// [`AccountingError::Noise`], or [`AccountingError::Grid`] if the step is not in (0, 1] or too small.
    pub fn loss_with_step(
        &self,
        direction: Direction,
        multiplier: f64,
        step: f64,
    ) -> Result<Pld, AccountingError> {
        check_noise("noise multiplier", multiplier)?;
        Pair { q: self.probability, s: multiplier, direction }.discretized(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delta of one round by the midpoint rule over 200,000 cells.
    fn by_quadrature(q: f64, s: f64, direction: Direction, epsilon: f64) -> f64 {
        let (low, high) = (-12.0 * s, 1.0 + 12.0 * s);
        let width = (high - low) / 200_000.0;
        let density =
            |x: f64| (-0.5 * (x / s).powi(2)).exp() / (s * (2.0 * std::f64::consts::PI).sqrt());
        let cell = |i: i32| {
            let x = low + (f64::from(i) + 0.5) * width;
            let (without, mixed) = (density(x), (1.0 - q) * density(x) + q * density(x - 1.0));
            let (upper, lower) = match direction {
                Direction::Remove => (mixed, without),
                Direction::Add => (without, mixed),
            };
            (upper - epsilon.exp() * lower).max(0.0) * width
        };
        (0..200_000).map(cell).sum()
    }

    #[test]
    fn one_round_agrees_with_quadrature_from_above() {
        for (q, s) in [(0.01, 1.0), (0.3, 0.6), (1.0, 2.0), (0.999_999, 0.8), (1e-4, 0.4)] {
            for direction in [Direction::Remove, Direction::Add] {
                let pld =
                    Poisson::new(Neighbouring::ZeroOut, q, 1).unwrap().loss(direction, s).unwrap();
                let total: f64 = pld.masses.iter().sum::<f64>() + pld.infinite();
                assert!((total - 1.0).abs() < 1e-12, "{total}");
                for epsilon in [0.001, 0.003, 0.05, 0.7, 2.0] {
                    let expected = by_quadrature(q, s, direction, epsilon);
                    let found = pld.delta(epsilon).unwrap();
                    let case =
                        format!("{q} {s} {direction:?} {epsilon}: {found:e} for {expected:e}");
                    assert!(found > expected * (1.0 - 1e-7) - 1e-12, "{case}");
                    assert!(found < expected * (1.0 + 2e-3) + 1e-12, "{case}");
                }
            }
        }
    }

    #[test]
    fn every_grid_is_pessimistic_and_a_finer_one_less_so() {
        let poisson = Poisson::new(Neighbouring::ZeroOut, 0.05, 1).unwrap();
        for direction in [Direction::Remove, Direction::Add] {
            let of = |step| poisson.loss_with_step(direction, 0.9, step).unwrap();
            for epsilon in [0.013, 0.3] {
                let exact = by_quadrature(0.05, 0.9, direction, epsilon);
                let deltas: Vec<f64> =
                    [1.0, 0.1, 0.01, 1e-3].iter().map(|&h| of(h).delta(epsilon).unwrap()).collect();
                assert!(deltas.windows(2).all(|pair| pair[0] >= pair[1] - 1e-14), "{deltas:?}");
                assert!(deltas[3] >= exact * (1.0 - 1e-7), "{deltas:?} {exact}");
            }
        }
    }

    #[test]
    fn arguments_outside_the_domain_are_refused_and_extreme_ones_do_not_panic() {
        let new = |q, rounds| Poisson::new(Neighbouring::ZeroOut, q, rounds);
        for q in [0.0, -0.1, 1.1, f64::NAN] {
            assert!(matches!(new(q, 1), Err(AccountingError::Probability { .. })), "{q}");
        }
        assert!(matches!(new(0.1, 0), Err(AccountingError::Count { .. })));
        assert!(matches!(new(0.1, u64::MAX), Err(AccountingError::Count { .. })));
        let replaced = Poisson::new(Neighbouring::ReplaceOne, 0.1, 1);
        assert_eq!(replaced, Err(AccountingError::ReplaceOne));
        for q in [1e-300, 0.3, 1.0] {
            for s in [1e-300, 1e-3, 0.05, 1.0, 1e5, 1e300] {
                for rounds in [1, MOST_ROUNDS] {
                    let poisson = new(q, rounds).unwrap();
                    for epsilon in [1e-6, 500.0] {
                        if let Ok(found) = poisson.delta(s, epsilon) {
                            assert!(
                                (0.0..=1.0).contains(&found.worst()),
                                "{q} {s} {rounds}: {found:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}
