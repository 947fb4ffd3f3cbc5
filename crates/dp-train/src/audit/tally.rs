//! Statistics of released sums, and what is counted of them.

use chacha20::rand_core::Rng;

use super::canary::{CANARIES, apply, apply_transposed};
use crate::plan::DpPlan;
use crate::seeds::{Purpose, RunSeed};

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

/// The canary's direction and random ones, each with the sum of its weights over the canary's
/// steps.
pub(super) fn directions(plan: &DpPlan, updates: &[f64], seed: RunSeed) -> Vec<(Vec<f64>, f64)> {
    let mut rng = seed.stream(Purpose::Audit);
    let mut random = || -> Vec<f64> {
        (0..updates.len()).map(|_| if rng.next_u32() & 1 == 0 { 1.0 } else { -1.0 }).collect()
    };
    let mut all = vec![planned_statistic(plan, updates)];
    all.extend((0..DIRECTIONS).map(|_| whitened_direction(plan, &random())));
    all.into_iter()
        .map(|weights| {
            let along = weights.iter().zip(updates).map(|(w, u)| w * u).sum();
            (weights, along)
        })
        .collect()
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
}

impl Tally {
    pub(super) fn new(directions: usize) -> Self {
        Self { rare_or_often: 0, above_middle: 0, moments: vec![(0.0, 0.0); directions] }
    }

    pub(super) fn measure(
        &mut self,
        directions: &[(Vec<f64>, f64)],
        rows: &[[f32; CANARIES]],
        contribution: f64,
    ) {
        for ((weights, along), (sum, squares)) in directions.iter().zip(&mut self.moments) {
            for value in project(weights, rows) {
                let noise = value - contribution * along;
                *sum += noise;
                *squares += noise * noise;
            }
        }
    }

    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.rare_or_often += other.rare_or_often;
        self.above_middle += other.above_middle;
        for (mine, theirs) in self.moments.iter_mut().zip(&other.moments) {
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
}
