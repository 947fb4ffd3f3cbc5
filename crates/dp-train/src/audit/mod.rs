//! The audit: attacks the noise as it really is, and says how much privacy it can have at most.
//!
//! A canary with a gradient of full norm takes part in the worst allowed steps. Many independent
//! runs of the mechanism release their sums with and without it, and a test on a linear statistic
//! of all released sums guesses which is which. Differential privacy bounds every test:
//!
//! ```text
//! P(guess "with" | with) <= e^epsilon P(guess "with" | without) + delta
//! ```
//!
//! so Clopper-Pearson bounds on the two probabilities are a lower bound on `epsilon`, whatever the
//! mechanism does inside. A bound above the claim proves the claim wrong (up to the confidence); a
//! bound far below it proves nothing.
//!
//! # The statistic
//! What is released is `X + C^-1 Z`; the likelihood ratio of the two worlds depends on its inner
//! product with `C^T C u` alone, with `u` the canary's updates. Where `n <= 128` the best statistic
//! for the *measured* covariance is tried as well.
//!
//! # Validity
//! The first fifth of the trials chooses statistic, threshold and direction of the test; the bound
//! is made from the other four fifths, which had no part in the choice. The two probabilities are
//! bounded at 97.5 % each, 95 % together.
//!
//! # More than a bound
//! With `delta` at 1e-5 a bound near `epsilon` takes millions of trials. Two further results need
//! fewer: the bound that holds if the release is Gaussian as claimed (any `mu` of Gaussian
//! differential privacy, Dong, Roth & Su 2019), and whether the noise has the size and correlation
//! of the plan in nine directions, with a false-alarm rate below 1e-6. A stream that fails the
//! latter is wrong even if no attack profits from it.

use rayon::prelude::*;

use crate::calibration;
use crate::plan::{DpPlan, PlanError};
use crate::seeds::{NoiseKey, RunSeed};

pub mod canary;

mod attack;

mod interval;

mod tally;

mod report;

use attack::{Fit, Test};
use canary::{CANARIES, Canary, Released, World, indicator};
pub use report::{AuditError, AuditReport};
use tally::{Tally, directions, planned_statistic, project};

/// Confidence of each lower bound on epsilon.
const CONFIDENCE: f64 = 0.95;

/// Largest deviation of a mean or variance, in its standard deviations. Eighteen normal numbers
/// exceed it with probability 18 x 3.8e-8 < 1e-6.
const LARGEST_DEVIATION: f64 = 5.5;

/// Audits the mechanism of a plan with (at least) `trials` trials in each world. The seed decides
/// the noise: an audit can be repeated.
///
/// O(trials n p). For BSR with `n = 50` a million trials take seconds.
///
/// # Errors
/// [`AuditError::Trials`] for fewer than 640; others mean that the mechanism refused to run.
pub fn audit(plan: &DpPlan, trials: u64, seed: RunSeed) -> Result<AuditReport, AuditError> {
    audit_mechanism(plan, trials, seed, canary::released_sums)
}

/// Audits any mechanism against the claim of a plan.
///
/// `mechanism` runs once through all steps of the plan it is given (the plan at [`CANARIES`]
/// coordinates) with the canary's batches and a key of its own, and returns what it released, as
/// sums.
///
/// # Errors
/// As [`audit`], and those of the mechanism.
pub fn audit_mechanism(
    plan: &DpPlan,
    trials: u64,
    seed: RunSeed,
    mechanism: impl Fn(&DpPlan, &Canary, World, NoiseKey) -> Result<Released, AuditError> + Sync,
) -> Result<AuditReport, AuditError> {
    let runs = trials.div_ceil(CANARIES as u64);
    if runs < 10 {
        return Err(AuditError::Trials { trials });
    }
    let chosen = runs / 5;
    let plan = plan.with_dim(CANARIES);
    let canary = Canary::worst(&plan);
    let (epsilon_claimed, delta) = (plan.request().epsilon, plan.request().delta);
    let sums = |run: u64, world: World| {
        let index = 2 * run + u64::from(world == World::With);
        mechanism(&plan, &canary, world, NoiseKey::for_audit(seed, index))
    };

    // Choose the statistic and the threshold with the first fifth.
    let updates = indicator(&canary.takes_part);
    let mut statistics = vec![planned_statistic(&plan, &updates)];
    if updates.len() <= attack::ESTIMATED_STEPS {
        let covariance =
            measured_covariance(chosen, updates.len(), |run| sums(run, World::Without))?;
        statistics.extend(attack::discriminant(covariance, &updates));
    }
    let further = (runs - chosen) * CANARIES as u64;
    let mut best: Option<(Vec<f64>, Test, Fit, Fit)> = None;
    for weights in statistics {
        let values = |world: World| -> Result<Vec<f64>, AuditError> {
            let runs: Vec<[f64; CANARIES]> = (0..chosen)
                .into_par_iter()
                .map(|run| Ok(project(&weights, &sums(run, world)?)))
                .collect::<Result<_, AuditError>>()?;
            Ok(runs.into_iter().flatten().collect())
        };
        let (with, without) = (Fit::new(&values(World::With)?), Fit::new(&values(World::Without)?));
        let test = Test::best(with, without, delta, further);
        if best.as_ref().is_none_or(|(_, best, _, _)| test.promise > best.promise) {
            best = Some((weights, test, with, without));
        }
    }
    let Some((weights, test, with, without)) = best else {
        return Err(AuditError::Trials { trials });
    };

    // Count with the rest.
    let middle = 0.5 * (with.mean + without.mean);
    let directions = directions(&plan, &updates, seed);
    let tallies = |world: World| -> Result<Tally, AuditError> {
        let each: Vec<Tally> = (chosen..runs)
            .into_par_iter()
            .map(|run| {
                let rows = sums(run, world)?;
                let mut tally = Tally::new(directions.len());
                for statistic in project(&weights, &rows) {
                    tally.rare_or_often += u64::from(test.counts(statistic));
                    tally.above_middle += u64::from(statistic > middle);
                }
                if world == World::Without {
                    tally.measure(&directions, &rows, canary.contribution(world));
                }
                Ok(tally)
            })
            .collect::<Result<_, AuditError>>()?;
        // In the order of the runs, so that the sums do not depend on the threads.
        Ok(each.iter().fold(Tally::new(directions.len()), Tally::plus))
    };
    let (with, without) = (tallies(World::With)?, tallies(World::Without)?);
    let noise_deviation = without.largest_deviation(further as f64);
    Ok(AuditReport {
        epsilon_claimed,
        delta,
        epsilon_lower_bound: epsilon_bound(&test, &with, &without, further, delta),
        epsilon_lower_bound_if_gaussian: gaussian_bound(&with, &without, further, delta)?,
        trials: runs * CANARIES as u64,
        confidence: CONFIDENCE,
        noise_deviation,
        noise_as_planned: noise_deviation <= LARGEST_DEVIATION,
    })
}

/// The sample covariance of the released sums between steps. O(runs n^2).
fn measured_covariance(
    runs: u64,
    n: usize,
    sums: impl Fn(u64) -> Result<Released, AuditError> + Sync,
) -> Result<Vec<Vec<f64>>, AuditError> {
    // A fixed number of parts, added in order: the same sums for any number of threads.
    let parts: Vec<Vec<f64>> = (0..32)
        .into_par_iter()
        .map(|part| {
            let mut products = vec![0.0; n * n];
            for run in (part..runs).step_by(32) {
                let rows = sums(run)?;
                for i in 0..n {
                    for j in 0..=i {
                        let dot: f32 = rows[i].iter().zip(&rows[j]).map(|(a, b)| a * b).sum();
                        products[i * n + j] += f64::from(dot);
                    }
                }
            }
            Ok(products)
        })
        .collect::<Result<_, AuditError>>()?;
    let total = (runs * CANARIES as u64) as f64;
    let entry = |i: usize, j: usize| {
        let at = i.max(j) * n + i.min(j);
        parts.iter().map(|part| part[at]).sum::<f64>() / total
    };
    Ok((0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect())
}

/// `ln((often - delta) / rare)` with the lower bound of one probability and the upper bound of the
/// other.
fn epsilon_bound(test: &Test, with: &Tally, without: &Tally, trials: u64, delta: f64) -> f64 {
    let (often, rare) = if test.rare_above {
        (with.rare_or_often, without.rare_or_often)
    } else {
        (without.rare_or_often, with.rare_or_often)
    };
    let alpha = 0.5 * (1.0 - CONFIDENCE);
    let often = interval::lower_bound(often, trials, alpha) - delta;
    let rare = interval::upper_bound(rare, trials, alpha);
    if often > rare { (often / rare).ln() } else { 0.0 }
}

/// `mu` is at least what the errors of the test at the middle say; then `epsilon(1/mu, delta)`.
fn gaussian_bound(
    with: &Tally,
    without: &Tally,
    trials: u64,
    delta: f64,
) -> Result<f64, AuditError> {
    let alpha = 0.5 * (1.0 - CONFIDENCE);
    let false_alarm = interval::upper_bound(without.above_middle, trials, alpha);
    let miss = interval::upper_bound(trials - with.above_middle, trials, alpha);
    let mu = interval::normal_tail_inverse(false_alarm) + interval::normal_tail_inverse(miss);
    if mu <= 0.0 {
        return Ok(0.0);
    }
    // Rounded up by the calibration, which a lower bound must not be; the last digits do not count
    // here.
    Ok(calibration::epsilon(1.0 / mu, delta).map_err(PlanError::from)? * (1.0 - 1e-9))
}
