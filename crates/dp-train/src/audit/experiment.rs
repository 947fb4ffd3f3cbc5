//! The experiment: runs in both worlds, a test chosen with the first of them and counted with the
//! rest.

use rayon::prelude::*;

use super::attack::{self, Fit, Test};
use super::canary::{CANARIES, Released, World};
use super::interval;
use super::report::AuditError;
use super::tally::{Direction, Tally, planned_statistic, project};
use crate::calibration;
use crate::plan::{DpPlan, PlanError};

/// What is to be tried, and how often.
#[derive(Debug)]
pub(super) struct Experiment<'a> {
    pub(super) plan: &'a DpPlan,
    /// `u`: 1 in the steps where the canaries take part.
    pub(super) updates: &'a [f64],
    /// Directions in which the noise is measured, the canary's first.
    pub(super) directions: &'a [Direction],
    /// Worlds in which it is.
    pub(super) measured: &'a [World],
    pub(super) expected: &'a Expected,
    pub(super) runs: u64,
    /// Probability with which each bound on epsilon holds.
    pub(super) confidence: f64,
}

/// What each canary adds to its column in a step where it takes part.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) with: [f64; CANARIES],
    pub(super) without: [f64; CANARIES],
}

impl Expected {
    pub(super) fn of(&self, world: World) -> &[f64; CANARIES] {
        match world {
            World::With => &self.with,
            World::Without => &self.without,
        }
    }
}

/// What came out.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) epsilon_lower_bound: f64,
    pub(super) epsilon_lower_bound_if_gaussian: f64,
    pub(super) with: Tally,
    pub(super) without: Tally,
    /// Runs in each world that were counted.
    pub(super) counted: u64,
}

impl Experiment<'_> {
    /// Carries it out; `sums` is one run of the mechanism. O(runs n CANARIES), and the runs.
    pub(super) fn outcome(
        &self,
        sums: impl Fn(u64, World) -> Result<Released, AuditError> + Sync,
    ) -> Result<Outcome, AuditError> {
        let Self { plan, updates, runs, .. } = *self;
        let chosen = runs / 5;
        let delta = plan.request().delta;

        // Choose the statistic and the threshold with the first fifth.
        let mut statistics = vec![planned_statistic(plan, updates)];
        if updates.len() <= attack::ESTIMATED_STEPS {
            let covariance =
                measured_covariance(chosen, updates.len(), |run| sums(run, World::Without))?;
            statistics.extend(attack::discriminant(covariance, updates));
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
            let (with, without) =
                (Fit::new(&values(World::With)?), Fit::new(&values(World::Without)?));
            let test = Test::best(with, without, delta, further);
            if best.as_ref().is_none_or(|(_, best, _, _)| test.promise > best.promise) {
                best = Some((weights, test, with, without));
            }
        }
        let Some((weights, test, with, without)) = best else {
            return Err(AuditError::Trials { trials: runs * CANARIES as u64 });
        };

        // Count with the rest.
        let middle = 0.5 * (with.mean + without.mean);
        let tallies = |world: World| -> Result<Tally, AuditError> {
            let each: Vec<Tally> = (chosen..runs)
                .into_par_iter()
                .map(|run| {
                    let rows = sums(run, world)?;
                    let mut tally = Tally::new(self.directions.len());
                    for statistic in project(&weights, &rows) {
                        tally.rare_or_often += u64::from(test.counts(statistic));
                        tally.above_middle += u64::from(statistic > middle);
                    }
                    if self.measured.contains(&world) {
                        tally.measure(self.directions, &rows, self.expected.of(world));
                    }
                    Ok(tally)
                })
                .collect::<Result<_, AuditError>>()?;
            // In the order of the runs, so that the sums do not depend on the threads.
            Ok(each.iter().fold(Tally::new(self.directions.len()), Tally::plus))
        };
        let (with, without) = (tallies(World::With)?, tallies(World::Without)?);
        let alpha = 0.5 * (1.0 - self.confidence);
        Ok(Outcome {
            epsilon_lower_bound: epsilon_bound(&test, (&with, &without), further, delta, alpha),
            epsilon_lower_bound_if_gaussian: gaussian_bound(
                (&with, &without),
                further,
                delta,
                alpha,
            )?,
            with,
            without,
            counted: runs - chosen,
        })
    }
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
/// other, each wrong with probability `alpha`.
pub(super) fn epsilon_bound(
    test: &Test,
    (with, without): (&Tally, &Tally),
    trials: u64,
    delta: f64,
    alpha: f64,
) -> f64 {
    let (often, rare) = if test.rare_above {
        (with.rare_or_often, without.rare_or_often)
    } else {
        (without.rare_or_often, with.rare_or_often)
    };
    let often = interval::lower_bound(often, trials, alpha) - delta;
    let rare = interval::upper_bound(rare, trials, alpha);
    if often > rare { (often / rare).ln() } else { 0.0 }
}

/// `mu` is at least what the errors of the test at the middle say; then `epsilon(1/mu, delta)`.
fn gaussian_bound(
    (with, without): (&Tally, &Tally),
    trials: u64,
    delta: f64,
    alpha: f64,
) -> Result<f64, AuditError> {
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
