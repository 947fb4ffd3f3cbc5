//! Statistics of released sums, and what is counted of them.

use chacha20::rand_core::Rng;
use mf_core::Strategy;

use super::canary::{CANARIES, apply, apply_transposed};
use crate::plan::DpPlan;
use crate::seeds::{Purpose, RunSeed};

/// Weights of the steps such that planned noise has variance 1, and their sum over the canary's
/// steps.
pub(super) type Direction = (Vec<f64>, f64);

/// Random directions in which the noise is measured, besides that of the canary.
const DIRECTIONS: usize = 8;

/// `C^T C u / (||C u|| s)`: applied to released sums, the likelihood ratio's statistic, of variance
/// 1.
pub(super) fn planned_statistic(plan: &DpPlan, updates: &[f64]) -> Vec<f64> {
    whitened_direction(plan, &apply(plan.strategy(), updates))
}

/// `C^T r / (||r|| s)`: released sums times this are the direction `r` of the noise `Z`, of
/// variance 1.
fn whitened_direction(plan: &DpPlan, r: &[f64]) -> Vec<f64> {
    let norm = r.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut weights = apply_transposed(plan.strategy(), r);
    weights.iter_mut().for_each(|w| *w /= norm * plan.noise_std());
    weights
}

/// The canary's direction and random ones.
pub(super) fn directions(plan: &DpPlan, updates: &[f64], seed: RunSeed) -> Vec<Direction> {
    let mut rng = seed.stream(Purpose::Audit);
    let mut random = || -> Vec<f64> {
        (0..updates.len()).map(|_| if rng.next_u32() & 1 == 0 { 1.0 } else { -1.0 }).collect()
    };
    let mut all = vec![planned_statistic(plan, updates)];
    all.extend((0..DIRECTIONS).map(|_| whitened_direction(plan, &random())));
    all.into_iter().map(|weights| direction(weights, updates)).collect()
}

fn direction(weights: Vec<f64>, updates: &[f64]) -> Direction {
    let along = weights.iter().zip(updates).map(|(w, u)| w * u).sum();
    (weights, along)
}

/// Directions that show whether the stream went on as it should from `step` on: the difference to
/// the row before (a row used twice), that to the first row (a stream that starts again), and the
/// row's own entry of `Z`, which takes the right rows before it (a history that was lost).
pub(super) fn directions_at(plan: &DpPlan, updates: &[f64], step: usize) -> Vec<Direction> {
    let contrast = |other: usize| {
        let mut weights = vec![0.0; updates.len()];
        weights[step] += 1.0;
        weights[other] -= 1.0;
        weights
    };
    let mut own = vec![0.0; updates.len()];
    own[step] = 1.0;
    let mut all = vec![whitened_direction(plan, &own)];
    if step > 0 {
        for weights in [contrast(step - 1), contrast(0)] {
            all.push(whitened_direction(plan, &solve_transposed(plan.strategy(), weights)));
        }
    }
    all.into_iter().map(|weights| direction(weights, updates)).collect()
}

/// The statistic of each canary.
pub(super) fn project(weights: &[f64], rows: &[[f32; CANARIES]]) -> [f64; CANARIES] {
    let mut values = [0.0; CANARIES];
    for (w, row) in weights.iter().zip(rows) {
        for (value, x) in values.iter_mut().zip(row) {
            *value += w * f64::from(*x);
        }
    }
    values
}

/// Counts and sums over trials in one world.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    pub(super) rare_or_often: u64,
    pub(super) above_middle: u64,
    /// Sum and sum of squares of the noise in each direction.
    moments: Vec<(f64, f64)>,
    /// The same for each canary alone, in the first direction.
    single: [(f64, f64); CANARIES],
}

impl Tally {
    pub(super) fn new(directions: usize) -> Self {
        Self {
            rare_or_often: 0,
            above_middle: 0,
            moments: vec![(0.0, 0.0); directions],
            single: [(0.0, 0.0); CANARIES],
        }
    }

    pub(super) fn measure(
        &mut self,
        directions: &[Direction],
        rows: &[[f32; CANARIES]],
        contributions: &[f64; CANARIES],
    ) {
        for (index, ((weights, along), (sum, squares))) in
            directions.iter().zip(&mut self.moments).enumerate()
        {
            for (j, value) in project(weights, rows).into_iter().enumerate() {
                let noise = value - contributions[j] * along;
                *sum += noise;
                *squares += noise * noise;
                if index == 0 {
                    self.single[j].0 += noise;
                    self.single[j].1 += noise * noise;
                }
            }
        }
    }

    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.rare_or_often += other.rare_or_often;
        self.above_middle += other.above_middle;
        let mine = self.moments.iter_mut().chain(&mut self.single);
        for (mine, theirs) in mine.zip(other.moments.iter().chain(&other.single)) {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
        }
        self
    }

    /// Of means from 0 and variances from 1, in standard deviations.
    pub(super) fn largest_deviation(&self, trials: f64) -> f64 {
        let deviations = self.moments.iter().flat_map(|(sum, squares)| {
            [sum / trials.sqrt(), (squares / trials - 1.0) * (trials / 2.0).sqrt()]
        });
        deviations.map(f64::abs).fold(0.0, f64::max)
    }

    /// The same for each canary alone in its own direction, after so many runs. Finds noise that is
    /// wrong in a few coordinates only.
    ///
    /// The sum of squares is chi-squared; its cube root is normal as far out as counts here (Wilson
    /// & Hilferty 1931).
    pub(super) fn largest_single_deviation(&self, runs: f64) -> f64 {
        let spread = 2.0 / (9.0 * runs);
        let deviations = self.single.iter().flat_map(|(sum, squares)| {
            [sum / runs.sqrt(), ((squares / runs).cbrt() - 1.0 + spread) / spread.sqrt()]
        });
        deviations.map(f64::abs).fold(0.0, f64::max)
    }
}

/// `r` with `C^T r = x`. O(n p).
fn solve_transposed(strategy: &Strategy, mut x: Vec<f64>) -> Vec<f64> {
    for i in (0..x.len()).rev() {
        let row = strategy.row(i);
        x[i] /= row[0];
        for (lag, c) in row.iter().enumerate().skip(1) {
            x[i - lag] -= c * x[i];
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transposed_system_is_solved() {
        let strategy = Strategy::toeplitz(7, vec![1.0, 0.5, -0.25]).unwrap();
        let x = [1.0, -2.0, 0.0, 3.0, 0.5, 0.0, 1.0];
        let product = apply_transposed(&strategy, &solve_transposed(&strategy, x.to_vec()));
        for (found, expected) in product.iter().zip(x) {
            assert!((found - expected).abs() < 1e-14, "{found} {expected}");
        }
    }
}
