//! One round of Poisson sampling on a grid: the pair of a normal and its mixture with a shifted one.

use super::normal::Edge;
use super::pld::{Cell, Ends, MOST_POINTS, Pld};
use super::{AccountingError, Direction};

/// Standard deviations to which the normals are followed: e^-50 lies beyond.
const REACH: f64 = 9.7;

/// The largest loss on a grid: its exponential must not overflow. What is larger counts as infinite.
const EXTREME: f64 = 600.0;

/// The pair of one round.
pub(super) struct Pair {
    pub(super) q: f64,
    pub(super) s: f64,
    pub(super) direction: Direction,
}

impl Pair {
    /// The loss of removal at `x`. Rises.
    fn loss(&self, x: f64) -> f64 {
        let exponent = (2.0 * x - 1.0) / (2.0 * self.s * self.s);
        // ln(1 - q + q e^y) from its larger term, so that nothing overflows.
        if self.q == 1.0 {
            exponent
        } else if exponent > 30.0 {
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
    pub(super) fn range(&self) -> (f64, f64) {
        let extreme = |x: f64| self.loss(x).clamp(-EXTREME, EXTREME);
        let (low, high) = (extreme(-REACH * self.s), extreme(1.0 + REACH * self.s));
        match self.direction {
            Direction::Remove => (low, high),
            Direction::Add => (-high, -low),
        }
    }

    /// The standard deviation of the loss, from 400 cells.
    pub(super) fn deviation(&self) -> f64 {
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

    pub(super) fn discretized(&self, step: f64) -> Result<Pld, AccountingError> {
        let (low, high) = self.range();
        let (lowest, highest) = ((low / step).floor(), (high / step).ceil());
        let points = highest - lowest + 1.0;
        if !(step > 0.0 && step <= 1.0 && points <= MOST_POINTS as f64) {
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
