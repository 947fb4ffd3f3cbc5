//! The attack on secret batches: the likelihood ratio of everything that was released, for who does not know when an
//! example took part.
//!
//! Each of the 64 canaries is an example of its own, in the batches that the sampler draws for it, with a gradient of full
//! norm `z` along its own coordinate. Released sums times `C` are `C u z` and white noise of deviation `s`. With `w_i = C^T C
//! e_i` and released sums `r`, its steps being `S` or none at all, the ratio is
//!
//! ```text
//! balls-in-bins   W = (1/b) sum_S exp(z <r, w_S> / s^2 - z^2 |C 1_S|^2 / 2 s^2),     w_S = sum_{i in S} w_i
//! Poisson         W = prod_i (1 - q + q exp(z <r, w_i> / s^2 - z^2 |C e_i|^2 / 2 s^2))      over the steps of its group
//! ```
//!
//! No test is better than a threshold on `ln W` (Neyman and Pearson); for gradients that point the same way it is the pair
//! that the accountant bounds, so a sampler or noise that gives away more shows here. The first fifth of the trials
//! chooses threshold and direction, the rest is counted.

use rayon::prelude::*;

use super::attack::{Test, promised_epsilon};
use super::canary::{CANARIES, Released, World, apply, apply_transposed};
use super::experiment::epsilon_bound;
use super::report::AuditError;
use super::sampler::Drawn;
use super::tally::{Tally, directions};
use crate::gradient::PerSampleGradients;
use crate::mechanism::Mechanism;
use crate::plan::{DpPlan, Sampling};
use crate::seeds::{NoiseKey, RunSeed};

/// Thresholds that are tried.
const THRESHOLDS: usize = 4000;

/// Runs the mechanism of a plan with the canaries in the batches that were drawn: the released sums.
///
/// # Errors
/// [`AuditError`] if the mechanism refuses a step, which it has no reason to.
pub(super) fn released(
    plan: &DpPlan,
    drawn: &Drawn,
    world: World,
    key: NoiseKey,
) -> Result<Released, AuditError> {
    let mut mechanism = Mechanism::new(plan, key)?;
    let (clip_norm, batch_size) = (plan.request().clip_norm, plan.request().batch_size as f32);
    let mut rows = Vec::with_capacity(drawn.len());
    for batch in drawn {
        let mut gradients = PerSampleGradients::new(CANARIES);
        for &canary in batch.iter().filter(|_| world == World::With) {
            let mut gradient = [0.0; CANARIES];
            // Ten times too long, so that clipping is part of what is tested.
            gradient[canary as usize] = 10.0 * clip_norm as f32;
            gradients.push(&gradient)?;
        }
        let gradient = mechanism.privatize(gradients.clip(clip_norm)?)?;
        let mut row = [0.0; CANARIES];
        for (sum, value) in row.iter_mut().zip(gradient.values()) {
            *sum = value * batch_size;
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The likelihood ratio of a plan.
struct Ratio {
    sampling: Sampling,
    /// For every pattern, or for every step, the weights of released sums in the exponent.
    weights: Vec<Vec<f64>>,
    /// What the exponent is less by.
    offsets: Vec<f64>,
    /// `q` and `p` of Poisson batches.
    probability: f64,
    groups: usize,
}

impl Ratio {
    fn new(plan: &DpPlan) -> Self {
        let request = plan.request();
        let (n, cycle) = (request.steps, request.min_separation);
        let scale = request.clip_norm / plan.noise_std();
        let patterns: Vec<Vec<usize>> = match request.sampling {
            Sampling::FixedOrder | Sampling::BallsInBins => {
                (0..cycle).map(|slot| (slot..n).step_by(cycle).collect()).collect()
            }
            Sampling::Poisson | Sampling::CyclicPoisson => (0..n).map(|step| vec![step]).collect(),
        };
        let (mut weights, mut offsets) = (Vec::new(), Vec::new());
        for pattern in patterns {
            let mut updates = vec![0.0; n];
            pattern.into_iter().for_each(|step| updates[step] = 1.0);
            let moved = apply(plan.strategy(), &updates);
            offsets.push(0.5 * scale * scale * moved.iter().map(|x| x * x).sum::<f64>());
            let mut weight = apply_transposed(plan.strategy(), &moved);
            weight.iter_mut().for_each(|w| *w *= scale / plan.noise_std());
            weights.push(weight);
        }
        let probability = request.probability().unwrap_or(1.0);
        Self { sampling: request.sampling, weights, offsets, probability, groups: cycle }
    }

    /// `ln W` of every canary. O(patterns n CANARIES).
    fn of(&self, rows: &Released) -> [f64; CANARIES] {
        let mut exponents = vec![[0.0; CANARIES]; self.weights.len()];
        for ((weights, offset), exponents) in
            self.weights.iter().zip(&self.offsets).zip(&mut exponents)
        {
            *exponents = [-offset; CANARIES];
            for (weight, row) in weights.iter().zip(rows).filter(|(weight, _)| **weight != 0.0) {
                for (exponent, x) in exponents.iter_mut().zip(row) {
                    *exponent += weight * f64::from(*x);
                }
            }
        }
        std::array::from_fn(|j| match self.sampling {
            Sampling::FixedOrder | Sampling::BallsInBins => {
                let largest = exponents.iter().map(|x| x[j]).fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = exponents.iter().map(|x| (x[j] - largest).exp()).sum();
                largest + (sum / exponents.len() as f64).ln()
            }
            Sampling::Poisson | Sampling::CyclicPoisson => {
                let own = exponents.iter().skip(j % self.groups).step_by(self.groups);
                let q = self.probability;
                own.map(|x| (q * x[j].exp_m1()).ln_1p()).sum()
            }
        })
    }
}

/// What came out: the bound, and the largest deviation of the noise without canaries.
pub(super) struct Outcome {
    pub(super) epsilon_lower_bound: f64,
    pub(super) noise_deviation: f64,
}

/// Attacks the mechanism with batches from `draw`, in `runs` runs of each world. O(runs n patterns).
pub(super) fn attack(
    plan: &DpPlan,
    runs: u64,
    confidence: f64,
    seed: RunSeed,
    draw: impl Fn(&NoiseKey) -> Result<Drawn, AuditError> + Sync,
) -> Result<Outcome, AuditError> {
    let ratio = Ratio::new(plan);
    let sums = |run: u64, world: World| {
        let key = || NoiseKey::for_audit(seed, 2 * run + u64::from(world == World::With));
        released(plan, &draw(&key())?, world, key())
    };
    let chosen = runs / 5;
    let further = (runs - chosen) * CANARIES as u64;
    let values = |world: World| -> Result<Vec<f64>, AuditError> {
        let runs: Vec<[f64; CANARIES]> = (0..chosen)
            .into_par_iter()
            .map(|run| Ok(ratio.of(&sums(run, world)?)))
            .collect::<Result<_, AuditError>>()?;
        Ok(runs.into_iter().flatten().collect())
    };
    let delta = plan.request().delta;
    let test = best_test(values(World::With)?, values(World::Without)?, delta, further);
    // Whatever direction the canaries have, without them all is noise.
    let mut first = vec![0.0; plan.request().steps];
    first[0] = 1.0;
    let directions = directions(plan, &first, seed);
    let tallies = |world: World| -> Result<Tally, AuditError> {
        let each: Vec<Tally> = (chosen..runs)
            .into_par_iter()
            .map(|run| {
                let rows = sums(run, world)?;
                let mut tally = Tally::new(directions.len());
                let counted = ratio.of(&rows).into_iter().filter(|value| test.counts(*value));
                tally.rare_or_often = counted.count() as u64;
                if world == World::Without {
                    tally.measure(&directions, &rows, &[0.0; CANARIES]);
                }
                Ok(tally)
            })
            .collect::<Result<_, AuditError>>()?;
        // In the order of the runs, so that the sums do not depend on the threads.
        Ok(each.iter().fold(Tally::new(directions.len()), Tally::plus))
    };
    let (with, without) = (tallies(World::With)?, tallies(World::Without)?);
    let alpha = 0.5 * (1.0 - confidence);
    Ok(Outcome {
        epsilon_lower_bound: epsilon_bound(&test, (&with, &without), further, delta, alpha),
        noise_deviation: without.largest_deviation(further as f64),
    })
}

/// The threshold and direction that promise the best bound by what was counted so far.
fn best_test(mut with: Vec<f64>, mut without: Vec<f64>, delta: f64, further: u64) -> Test {
    with.sort_by(f64::total_cmp);
    without.sort_by(f64::total_cmp);
    let above = |sorted: &[f64], threshold: f64| {
        let count = sorted.len() - sorted.partition_point(|value| *value <= threshold);
        // Half an event more on either side: what was never seen is not impossible.
        (count as f64 + 0.5) / (sorted.len() as f64 + 1.0)
    };
    let mut best = Test { threshold: 0.0, rare_above: true, promise: f64::NEG_INFINITY };
    let ranks = with.iter().chain(&without).step_by((2 * with.len() / THRESHOLDS).max(1));
    let ends = with.iter().rev().take(50).chain(without.iter().take(50));
    for &threshold in ranks.chain(ends) {
        let (hit, miss) = (above(&with, threshold), above(&without, threshold));
        for (rare_above, often, rare) in [(true, hit, miss), (false, 1.0 - miss, 1.0 - hit)] {
            let promise = promised_epsilon(often, rare, delta, further as f64);
            if promise > best.promise {
                best = Test { threshold, rare_above, promise };
            }
        }
    }
    best
}
