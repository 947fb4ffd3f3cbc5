//! Random allocation: one release out of `t`, drawn at random, contains the example.
//!
//! All `t` releases are Gaussian with means `mu` apart (in units of the noise) and unrelated to each other. By Theorem
//! 1 of the [module above](super) the likelihood ratio is an average of `t` independent log-normals,
//!
//! ```text
//! W = (1/t) sum_i exp(mu z_i - mu^2 / 2),    z_i standard normal
//! ```
//!
//! whose law is computed here on the grid `{0} u {e^{jh}}`.
//!
//! *Never below the truth.* Whenever a value falls between two grid points its mass is split between them such that
//! mass *and mean* are kept. That replaces a random variable by one that is larger in convex order: by Jensen's inequality,
//! `E h` does not fall for any convex `h`. The order is kept when independent variables are added, and both directions of
//! `delta` are means of convex functions of `W`. Below the grid the neighbours are 0 and the lowest point. Above it they
//! are the top and a point that moves to infinity: the mass goes to the top, the missing mean is kept in a scalar, of
//! which removal (slope 1 at infinity) counts all and addition (slope 0) nothing. The excess over the exact `delta` is
//! O(h^2).
//!
//! Sums of such laws are made in `log_normal.rs`: `t` terms by doubling.

use super::log_normal::{Grid, Law};
use super::normal::divergence;
use super::pld::Pld;
use super::{AccountingError, Direction, Directions, check_count, check_noise};

/// The most points of a grid.
const MOST_POINTS: f64 = 40_000.0;

/// The most slots.
pub const MOST_SLOTS: u64 = 1 << 40;

/// The relative rounding error of every mass: sums of some thousand positive terms, some tens of times.
const ROUNDING: f64 = 1e-10;

/// The law of the likelihood ratio of a one-in-`t` allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    slots: u64,
    step: f64,
    /// `W = e^{(lowest + j) h}` has mass `masses[j]`.
    lowest: i64,
    law: Law,
}

impl Allocation {
    /// One of `slots` releases whose means are `separation` standard deviations from 0, on a grid of step `step`.
    ///
    /// O(log(t) G ln(1/h)/h) with `G` about `(separation^2 + 14 separation) / step` points.
    ///
    /// # Errors
    /// [`AccountingError::Count`], [`AccountingError::Noise`] for a separation or step that is not positive, or
    /// [`AccountingError::Grid`].
    pub fn new(slots: u64, separation: f64, step: f64) -> Result<Self, AccountingError> {
        check_count("slots", slots, MOST_SLOTS)?;
        check_noise("separation of the means", separation)?;
        check_noise("step of the grid", step)?;
        let (mu, t) = (separation, slots as f64);
        // All slots low at once, or some of them high under the alternative of one: 1e-17 each. That `k` slots are `8.4 /
        // sqrt(k)` high at once makes the average `k e^{8.4 mu / sqrt(k)} / t`, which is largest for one slot or for all.
        let (down, up) = ((8.4 / t.sqrt()).max(5.0), 8.4);
        let low = -0.5 * mu * mu - down * mu - t.ln();
        let high = 0.5 * mu * mu + (up * mu - t.ln()).max(up * mu / t.sqrt());
        let high = high.max(0.5);
        let (lowest, highest) = ((low / step).floor(), (high / step).ceil());
        let points = highest - lowest + 1.0;
        if !(points <= MOST_POINTS && high - low < 1000.0 && step < 1.0) {
            return Err(AccountingError::Grid { points, most: MOST_POINTS as usize });
        }
        let (lowest, points) = (lowest as i64, points as usize);
        let one = Law::log_normal(mu, points, |j| t.ln() + (lowest + j as i64) as f64 * step, step);
        let law = one.times(slots, &Grid::new(points, t, lowest, step));
        Ok(Self { slots, step, lowest, law })
    }

    /// `delta(epsilon)`. O(G).
    ///
    /// # Errors
    /// [`AccountingError::Epsilon`] for an epsilon that is negative or not finite.
    pub fn delta(&self, epsilon: f64) -> Result<Directions, AccountingError> {
        self.delta_beside(0.0, epsilon)
    }

    /// `delta(epsilon)` together with a Gaussian release whose means are `separation` apart: the ratio is `V W` with an
    /// independent `V = exp(separation z - separation^2 / 2)`. With `D(y) = E (V - e^y)_+ = E (1 - e^y V)_+`,
    ///
    /// ```text
    /// remove: E W D(epsilon - ln W)        add: E D(epsilon + ln W)
    /// ```
    ///
    /// O(G).
    ///
    /// # Errors
    /// [`AccountingError::Epsilon`] or [`AccountingError::Noise`] for a negative number or one that is not finite.
    pub fn delta_beside(
        &self,
        separation: f64,
        epsilon: f64,
    ) -> Result<Directions, AccountingError> {
        if !(epsilon >= 0.0 && epsilon.is_finite()) {
            return Err(AccountingError::Epsilon { epsilon });
        }
        if !(separation >= 0.0 && separation.is_finite()) {
            let what = "separation of the means";
            return Err(AccountingError::Noise { what, value: separation });
        }
        let earlier = epsilon - ROUNDING;
        let (mut remove, mut add) = (self.law.excess / self.slots as f64, self.law.zero);
        for (j, mass) in self.law.masses.iter().enumerate() {
            let loss = self.loss_at(j);
            remove += mass * loss.exp() * divergence(earlier - loss, separation);
            add += mass * divergence(earlier + loss, separation);
        }
        let up = |delta: f64| (delta * (1.0 + ROUNDING)).min(1.0);
        Ok(Directions { remove: up(remove), add: up(add) })
    }

    /// The privacy loss, to compose with others: `ln W` under the alternative, where `W` weighs the masses, or `-ln W`.
    pub fn loss(&self, direction: Direction) -> Pld {
        let (lowest, masses, infinite) = match direction {
            Direction::Remove => {
                let weighed = |(j, mass): (usize, &f64)| mass * self.loss_at(j).exp();
                let masses: Vec<f64> = self.law.masses.iter().enumerate().map(weighed).collect();
                (self.lowest, masses, self.law.excess / self.slots as f64)
            }
            Direction::Add => {
                let masses: Vec<f64> = self.law.masses.iter().rev().copied().collect();
                (1 - self.lowest - masses.len() as i64, masses, self.law.zero)
            }
        };
        Pld { step: self.step, lowest, masses, infinite: infinite.min(1.0), rounding: ROUNDING }
    }

    /// `ln W` at the `j`-th point.
    fn loss_at(&self, j: usize) -> f64 {
        (self.lowest + j as i64) as f64 * self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::composition::{Aim, Composition};
    use crate::calibration;

    #[test]
    fn mass_and_mean_are_kept() {
        for (slots, mu) in [(1, 2.0), (2, 0.3), (7, 1.1), (100, 2.4), (1000, 0.8)] {
            let allocation = Allocation::new(slots, mu, 0.03).unwrap();
            let law = &allocation.law;
            let mass: f64 = law.zero + law.masses.iter().sum::<f64>();
            let mean: f64 = (0..law.masses.len())
                .map(|j| law.masses[j] * allocation.loss_at(j).exp())
                .sum::<f64>()
                + law.excess / slots as f64;
            assert!((mass - 1.0).abs() < 1e-11 && (mean - 1.0).abs() < 1e-11, "{mass} {mean}");
        }
    }

    #[test]
    fn what_is_cut_off_above_is_nothing() {
        for (slots, mu) in [(2, 0.1), (4, 0.2), (4, 2.0), (16, 0.3), (100, 0.5), (1000, 3.0)] {
            let excess = Allocation::new(slots, mu, 0.01).unwrap().law.excess / slots as f64;
            assert!(excess < 1e-14, "{slots} {mu}: {excess:e}");
        }
    }

    #[test]
    fn deltas_of_one_in_a_hundred() {
        // The numpy prototype of the design notes on grids of the same steps, whose points lie elsewhere between.
        let known = [
            (2.41, 8.0, [1.00951e-5, 1.00924e-5, 1.00911e-5]),
            (1.766, 4.0, [9.99943e-6, 9.98007e-6, 9.97163e-6]),
            (1.393, 2.0, [1.00389e-5, 9.96576e-6, 9.94294e-6]),
        ];
        for (mu, epsilon, expected) in known {
            for (step, expected) in [0.04, 0.02, 0.01].into_iter().zip(expected) {
                let found = Allocation::new(100, mu, step).unwrap().delta(epsilon).unwrap();
                println!(
                    "{mu} {step}: {:.6e} for {expected:e}; add {:.3e}",
                    found.remove, found.add
                );
                assert!(
                    (found.remove / expected - 1.0).abs() < 0.04 * step,
                    "{found:?} for {expected}"
                );
                assert!(found.add < found.remove);
            }
        }
    }

    #[test]
    fn one_slot_is_the_gaussian_alone_and_beside_another() {
        for (mu, other, epsilon) in [(1.0, 0.0, 0.5), (0.4, 0.3, 1.0), (2.0, 1.5, 6.0)] {
            let found = Allocation::new(1, mu, 0.01).unwrap().delta_beside(other, epsilon).unwrap();
            let total = f64::hypot(mu, other);
            let exact = calibration::delta(epsilon, 1.0 / total).unwrap();
            for delta in [found.remove, found.add] {
                assert!(delta >= exact && delta < exact * (1.0 + 2e-3), "{delta} {exact}");
            }
        }
    }

    #[test]
    fn a_fresh_slot_in_every_epoch_composes() {
        // The prototype's noise for ten epochs of 100 steps, delta 1e-5, to three digits.
        for (epsilon, sigma) in [(2.0, 0.929), (4.0, 0.716), (8.0, 0.570)] {
            let delta = |sigma: f64| {
                let allocation = Allocation::new(100, 1.0 / sigma, 0.01).unwrap();
                let of = |direction| {
                    let loss = allocation.loss(direction);
                    let ten = Composition::new(&[(&loss, 10)], Aim::Epsilon(epsilon)).unwrap();
                    ten.delta(epsilon).unwrap()
                };
                f64::max(of(Direction::Remove), of(Direction::Add))
            };
            assert!(delta(sigma * 1.002) < 1e-5 && delta(sigma * 0.998) > 1e-5, "{epsilon}");
        }
    }

    #[test]
    fn grids_that_cannot_be_are_refused() {
        assert!(matches!(Allocation::new(0, 1.0, 0.1), Err(AccountingError::Count { .. })));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Allocation::new(2, bad, 0.1).is_err() && Allocation::new(2, 1.0, bad).is_err());
        }
        assert!(matches!(Allocation::new(2, 1e3, 0.1), Err(AccountingError::Grid { .. })));
        assert!(matches!(Allocation::new(2, 1.0, 1e-9), Err(AccountingError::Grid { .. })));
        let tiny = Allocation::new(MOST_SLOTS, 1e-300, 0.1).unwrap().delta(1.0).unwrap();
        assert!(tiny.worst() <= 1.0);
    }
}
