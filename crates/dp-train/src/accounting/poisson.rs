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
//! in Google's `dp_accounting`, so that the two agree to seven digits, but at least a 300th of the loss's standard
//! deviation, which costs a relative 2e-6 of epsilon, and a 50th of it where 1e-4 would be more than a fifth.

use super::composition::{Aim, Composition, MOST_ROUNDS};
use super::normal::Edge;
use super::pld::{Cell, Ends, MOST_POINTS, Pld};
use super::root::{Search, least_noise};
use super::{
    AccountingError, Direction, Directions, check_count, check_delta, check_epsilon, check_noise,
    refuse_replace_one,
};
use crate::calibration::{self, MARGIN, Neighbouring};

/// Standard deviations to which the normals are followed: e^-50 lies beyond.
const REACH: f64 = 9.7;

/// The usual step of the grid.
const STEP: f64 = 1e-4;

/// The largest loss on a grid: its exponential must not overflow. What is larger counts as infinite.
const EXTREME: f64 = 600.0;

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
        Ok(Directions {
            remove: self.delta_in(Direction::Remove, multiplier, epsilon)?,
            add: self.delta_in(Direction::Add, multiplier, epsilon)?,
        })
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
            Composition::new(&[(&pld, self.rounds)], Aim::Delta(delta))?.epsilon(delta)
        };
        Ok(Directions { remove: of(Direction::Remove)?, add: of(Direction::Add)? })
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
        let plain = calibration::multiplier(epsilon, delta)?;
        let enough = 1.05 * plain * (self.rounds as f64).sqrt();
        // One direction decides, usually removal; the other is looked at where that one ends.
        let mut direction = Direction::Remove;
        for _ in 0..8 {
            let found = least_noise(Search::from(enough), delta, |s| {
                Ok((self.delta_in(direction, s, epsilon)? / delta).ln())
            })? * (1.0 + MARGIN);
            if self.delta(found, epsilon)?.worst() <= delta {
                return Ok(found);
            }
            direction = match direction {
                Direction::Remove => Direction::Add,
                Direction::Add => Direction::Remove,
            };
        }
        Err(AccountingError::OutOfRange { delta })
    }

    fn delta_in(
        &self,
        direction: Direction,
        multiplier: f64,
        epsilon: f64,
    ) -> Result<f64, AccountingError> {
        let pld = self.loss(direction, multiplier)?;
        Composition::new(&[(&pld, self.rounds)], Aim::Epsilon(epsilon))?.delta(epsilon)
    }

    /// The privacy loss of one round, on a grid that suits the number of rounds.
    ///
    /// # Errors
    /// [`AccountingError::Noise`] or [`AccountingError::Grid`].
    pub fn loss(&self, direction: Direction, multiplier: f64) -> Result<Pld, AccountingError> {
        check_noise("noise multiplier", multiplier)?;
        let pair = Pair { q: self.probability, s: multiplier, direction };
        let (lowest, highest) = pair.range();
        let deviation = pair.deviation();
        // The window of very many rounds would be too wide for the finest step.
        let finest = deviation / 300.0 * (self.rounds as f64 / 1e5).sqrt().clamp(1.0, 15.0);
        let step = if STEP > deviation / 5.0 { deviation / 50.0 } else { STEP }.max(finest);
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
    /// [`AccountingError::Noise`], or [`AccountingError::Grid`] if the step is not positive or too small.
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

/// The pair of one round.
struct Pair {
    q: f64,
    s: f64,
    direction: Direction,
}

impl Pair {
    /// The loss of removal at `x`. Rises.
    fn loss(&self, x: f64) -> f64 {
        let exponent = (2.0 * x - 1.0) / (2.0 * self.s * self.s);
        // ln(1 - q + q e^y) from its larger term, so that nothing overflows.
        if exponent > 30.0 {
            exponent + self.q.ln() + ((1.0 - self.q) / self.q * (-exponent).exp()).ln_1p()
        } else {
            (self.q * exponent.exp_m1()).ln_1p()
        }
    }

    /// Where the loss of removal is `loss`; minus infinity if it is never as low.
    fn place(&self, loss: f64) -> f64 {
        let (q, variance) = (self.q, self.s * self.s);
        // ln((e^loss - 1 + q) / q), with the subtraction where it is exact.
        let logarithm = if q == 1.0 {
            loss
        } else if loss > 30.0 {
            loss - q.ln() + (-(1.0 - q) * (-loss).exp()).ln_1p()
        } else if loss > -0.5 {
            (loss.exp_m1() / q).max(-1.0).ln_1p()
        } else {
            ((loss.exp() - (1.0 - q)).max(0.0) / q).ln()
        };
        variance * logarithm + 0.5
    }

    /// The losses, of removal or addition, between which all but e^-50 of either side lies; none beyond
    /// [`EXTREME`].
    fn range(&self) -> (f64, f64) {
        let extreme = |x: f64| self.loss(x).clamp(-EXTREME, EXTREME);
        let (low, high) = (extreme(-REACH * self.s), extreme(1.0 + REACH * self.s));
        match self.direction {
            Direction::Remove => (low, high),
            Direction::Add => (-high, -low),
        }
    }

    /// The standard deviation of the loss, from 400 cells.
    fn deviation(&self) -> f64 {
        let (low, high) = (-REACH * self.s, 1.0 + REACH * self.s);
        let place = |i: u32| low + (high - low) * f64::from(i) / 400.0;
        let (mut mass, mut first, mut second) = (0.0, 0.0, 0.0);
        for i in 0..400 {
            let (a, b) = (place(i), place(i + 1));
            let without = Edge::new(a / self.s).mass_to(Edge::new(b / self.s)).0;
            let with = Edge::new((a - 1.0) / self.s).mass_to(Edge::new((b - 1.0) / self.s)).0;
            let weight = match self.direction {
                Direction::Remove => (1.0 - self.q) * without + self.q * with,
                Direction::Add => without,
            };
            let loss = self.loss(0.5 * (a + b));
            mass += weight;
            first += weight * loss;
            second += weight * loss * loss;
        }
        // The variance, from a mean that is small beside it or of its size: no cancellation that matters here.
        (second / mass - (first / mass).powi(2)).max(0.0).sqrt()
    }

    fn discretized(&self, step: f64) -> Result<Pld, AccountingError> {
        let (low, high) = self.range();
        let (lowest, highest) = ((low / step).floor(), (high / step).ceil());
        let points = highest - lowest + 1.0;
        if !(step > 0.0 && points <= MOST_POINTS as f64 && lowest.abs().max(highest.abs()) < 1e15) {
            return Err(AccountingError::Grid { points, most: MOST_POINTS });
        }
        let (lowest, count) = (lowest as i64, (highest - lowest) as usize);
        // Each edge is used by two cells: with and without the example.
        let edge = |j: usize| {
            let loss = (lowest + j as i64) as f64 * step;
            let x = self.place(if self.direction == Direction::Remove { loss } else { -loss });
            (loss, Edge::new(x / self.s), Edge::new((x - 1.0) / self.s))
        };
        let edges: Vec<_> = (0..=count).map(edge).collect();
        let cells = edges.windows(2).map(|pair| self.cell(pair[0], pair[1]));
        let ends = self.ends(edges[0], edges[count]);
        Ok(Pld::from_cells(step, lowest, cells, ends))
    }

    fn cell(&self, from: (f64, Edge, Edge), to: (f64, Edge, Edge)) -> Cell {
        let (loss, q) = (from.0, self.q);
        match self.direction {
            Direction::Remove => {
                let (without, size) = from.1.mass_to(to.1);
                let (with, with_size) = from.2.mass_to(to.2);
                // e^loss - 1 + q = q e^{(2x - 1) / (2 s^2)}; negative at the lowest edge, which no x reaches.
                let (change, ratio) = (loss.exp_m1(), loss.exp_m1() + q);
                Cell {
                    upper: (1.0 - q) * without + q * with,
                    rest: q * with - ratio * without,
                    noise: 16.0 * f64::EPSILON * (q * with_size + ratio.abs() * size)
                        + 4.0 * f64::EPSILON * (change.abs() + q) * without,
                }
            }
            Direction::Add => {
                let (without, size) = to.1.mass_to(from.1);
                let (with, with_size) = to.2.mass_to(from.2);
                let (kept, ratio) = (1.0 - loss.exp() * (1.0 - q), loss.exp() * q);
                Cell {
                    upper: without,
                    rest: kept * without - ratio * with,
                    noise: 16.0 * f64::EPSILON * (kept.abs() * size + ratio * with_size)
                        + 4.0 * f64::EPSILON * (1.0 + loss.exp()) * without,
                }
            }
        }
    }

    fn ends(&self, first: (f64, Edge, Edge), last: (f64, Edge, Edge)) -> Ends {
        let q = self.q;
        let (below, above, other) = match self.direction {
            Direction::Remove => {
                let mixed = |without: f64, with: f64| (1.0 - q) * without + q * with;
                let below = mixed(first.1.below(), first.2.below());
                (below, mixed(last.1.above(), last.2.above()), last.1.above())
            }
            Direction::Add => {
                let other = (1.0 - q) * last.1.below() + q * last.2.below();
                (first.1.above(), last.1.below(), other)
            }
        };
        // The rounding error of the difference goes to infinity too.
        let explained = other * last.0.exp();
        let infinite = (above - explained + 16.0 * f64::EPSILON * (above + explained)).max(0.0);
        Ends { below, top: (above - infinite).max(0.0), infinite: infinite.min(above) }
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
        for q in [1e-12, 1e-300, 0.3, 1.0] {
            for s in [1e-300, 1e-3, 0.05, 1.0, 1e5, 1e300] {
                for rounds in [1, MOST_ROUNDS] {
                    let poisson = new(q, rounds).unwrap();
                    for epsilon in [1e-6, 1.0, 500.0] {
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
