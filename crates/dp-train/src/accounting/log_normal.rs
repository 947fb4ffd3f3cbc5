//! Sums of independent log-normals on a logarithmic grid, each value split between its neighbours.
//!
//! For grid points `x_i >= x_k`, `d = i - k`, the sum `x_i (1 + e^{-dh})` lies at the same offset
//! `ln(1 + e^{-dh}) / h` above `i` for every `i`: one shifted product per `d`. Once `e^{-dh} <= e^h - 1` it lies between
//! `x_i` and `x_{i+1}`, and the share that goes up, `x_k / (x_{i+1} - x_i)`, is linear in `x_k`, so that all further `k` are
//! dealt with by two running sums. For `G` points that is `G ln(1/h) / h` products instead of `G^2`; `t` terms by doubling.

use super::normal::Edge;

/// A law on `{0}` and the grid, with the mean that lies beyond it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Law {
    pub(super) zero: f64,
    pub(super) masses: Vec<f64>,
    pub(super) excess: f64,
}

/// Offsets of sums of grid points.
pub(super) struct Grid {
    /// `e^h - 1`.
    growth: f64,
    /// The points themselves, for a sum of `t` terms.
    pub(super) values: Vec<f64>,
    /// For `d = 0, 1, ...`: `1 + e^{-dh}`, whole points up from the larger, and the share that goes one further.
    near: Vec<(f64, usize, f64)>,
}

impl Grid {
    pub(super) fn new(points: usize, t: f64, lowest: i64, step: f64) -> Self {
        let growth = step.exp_m1();
        let value = |j: usize| (t.ln() + (lowest + j as i64) as f64 * step).exp();
        let offset = |d: usize| {
            let factor = 1.0 + (-(d as f64) * step).exp();
            let whole = (factor.ln() / step).floor();
            let share = ((factor * (-whole * step).exp() - 1.0) / growth).clamp(0.0, 1.0);
            (factor, whole as usize, share)
        };
        let count = (-growth.ln() / step).ceil().max(0.0) as usize + 1;
        Self {
            growth,
            values: (0..points).map(value).collect(),
            near: (0..count.min(points)).map(offset).collect(),
        }
    }
}

impl Law {
    /// `exp(mu z - mu^2 / 2)` on the points with these logarithms.
    pub(super) fn log_normal(
        mu: f64,
        points: usize,
        log: impl Fn(usize) -> f64,
        step: f64,
    ) -> Self {
        // Masses under N(0, 1), and means: masses under N(mu, 1).
        let edge = |j: usize| {
            let z = log(j) / mu + 0.5 * mu;
            (Edge::new(z), Edge::new(z - mu))
        };
        let growth = step.exp_m1();
        let mut law = Self { zero: 0.0, masses: vec![0.0; points], excess: 0.0 };
        let mut from = edge(0);
        let (mass, mean) = (from.0.below(), from.1.below());
        let up = (mean * (-log(0)).exp()).min(mass);
        law.masses[0] += up;
        law.zero += mass - up;
        for j in 0..points - 1 {
            let to = edge(j + 1);
            let (mass, mean) = (from.0.mass_to(to.0).0, from.1.mass_to(to.1).0);
            let up = ((mean * (-log(j)).exp() - mass) / growth).clamp(0.0, mass);
            law.masses[j] += mass - up;
            law.masses[j + 1] += up;
            from = to;
        }
        let (mass, mean) = (from.0.above(), from.1.above());
        law.masses[points - 1] += mass;
        law.excess += (mean - mass * log(points - 1).exp()).max(0.0);
        law
    }

    /// The sum of `count` independent copies, by doubling.
    pub(super) fn times(&self, count: u64, grid: &Grid) -> Self {
        let mut sum = self.clone();
        for bit in (0..count.ilog2()).rev() {
            sum = sum.plus(&sum, grid);
            if count >> bit & 1 == 1 {
                sum = sum.plus(self, grid);
            }
        }
        sum
    }

    /// The sum of two independent variables.
    pub(super) fn plus(&self, other: &Self, grid: &Grid) -> Self {
        let (a, b, points) = (&self.masses, &other.masses, self.masses.len());
        let mut out = vec![0.0; points];
        let mut excess = self.excess + other.excess;
        let top = points - 1;
        let top_value = grid.values[top];
        for (d, &(factor, whole, share)) in grid.near.iter().enumerate() {
            // Pairs (i, i - d) and (i - d, i); once if they are the same.
            let twice = f64::from(u8::from(d > 0));
            let inside = top.saturating_sub(whole).max(d);
            let pairs = a[d..inside].iter().zip(&b[..inside - d]);
            let pairs = pairs.zip(b[d..inside].iter().zip(&a[..inside - d]));
            let weights = pairs.map(|((x, y), (v, w))| x * y + twice * v * w);
            // Two passes: each is a shifted sum without overlap. With nothing inside they may start beyond the end.
            let low = (d + whole).min(top);
            for (out, weight) in out[low..].iter_mut().zip(weights.clone()) {
                *out += (1.0 - share) * weight;
            }
            for (out, weight) in out[low + 1..].iter_mut().zip(weights) {
                *out += share * weight;
            }
            for i in inside..points {
                let weight = a[i] * b[i - d] + twice * b[i] * a[i - d];
                out[top] += weight;
                excess += weight * (grid.values[i] * factor - top_value).max(0.0);
            }
        }
        let far = grid.near.len();
        for (large, small) in [(self, other), (other, self)] {
            let (mut mass, mut mean) = (small.zero, 0.0);
            for i in 0..points {
                if i >= far {
                    mass += small.masses[i - far];
                    mean += small.masses[i - far] * grid.values[i - far];
                }
                let weight = large.masses[i];
                if i == top {
                    out[top] += weight * mass;
                    excess += weight * mean;
                } else {
                    let up = (mean / (grid.values[i] * grid.growth)).min(mass);
                    out[i] += weight * (mass - up);
                    out[i + 1] += weight * up;
                }
            }
        }
        Self { zero: self.zero * other.zero, masses: out, excess }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The law of a sum by the definition: every pair of values, split between its neighbours.
    fn by_definition(a: &Law, b: &Law, values: &[f64]) -> Law {
        let mut sum =
            Law { zero: 0.0, masses: vec![0.0; values.len()], excess: a.excess + b.excess };
        let points = |law: &Law| {
            let mut points = vec![(0.0, law.zero)];
            points.extend(values.iter().copied().zip(law.masses.iter().copied()));
            points
        };
        for (x, p) in points(a) {
            for (y, q) in points(b) {
                let (value, mass) = (x + y, p * q);
                let above = values.iter().position(|v| *v > value);
                match above {
                    Some(0) => {
                        sum.masses[0] += mass * value / values[0];
                        sum.zero += mass * (1.0 - value / values[0]);
                    }
                    Some(j) => {
                        let share = (value - values[j - 1]) / (values[j] - values[j - 1]);
                        sum.masses[j - 1] += mass * (1.0 - share);
                        sum.masses[j] += mass * share;
                    }
                    None => {
                        let top = values.len() - 1;
                        sum.masses[top] += mass;
                        sum.excess += mass * (value - values[top]);
                    }
                }
            }
        }
        sum
    }

    #[test]
    fn sums_agree_with_the_sum_over_all_pairs() {
        for (points, step, lowest) in [(60, 0.1, -30), (45, 0.3, -20), (7, 0.05, -3)] {
            let grid = Grid::new(points, 3.0, lowest, step);
            let log = |j: usize| 3_f64.ln() + (lowest + j as i64) as f64 * step;
            let one = Law::log_normal(0.8, points, log, step);
            let two = one.plus(&one, &grid);
            for (found, expected) in [
                (&two, by_definition(&one, &one, &grid.values)),
                (&two.plus(&one, &grid), by_definition(&two, &one, &grid.values)),
            ] {
                for (x, y) in found.masses.iter().zip(&expected.masses) {
                    assert!((x - y).abs() < 1e-14, "{x} {y}");
                }
                assert!((found.excess - expected.excess).abs() < 1e-13 * (1.0 + expected.excess));
                assert!((found.zero - expected.zero).abs() < 1e-14);
            }
        }
    }
}
