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
//!
//! # Secret batches
//! Where the plan is for sampled batches the attacker does not know the canary's steps: the statistic is then the likelihood
//! ratio (`secret`), and the batches themselves are looked at ([`sampler`]). There are no parts then: the noise is the same
//! code.
//!
//! # The parts
//! The main attack runs the mechanism at 64 coordinates. What else is shipped is attacked with a
//! hundredth of its trials or less, which is enough for the noise and for gross leaks: noise of
//! several tiles ([`spread`]), the same after saving and loading, and sums that the CPU engine
//! clipped ([`examples`]). See [`part`].

use crate::plan::{DpPlan, Sampling};
use crate::seeds::{NoiseKey, RunSeed};

pub mod canary;
mod attack;
mod interval;
mod tally;
mod experiment;
pub mod part;
pub mod spread;
pub mod examples;
pub mod sampler;
mod secret;
mod report;

use canary::{CANARIES, Canary, Released, World, indicator};
use examples::Examples;
use experiment::{Expected, Experiment};
use part::Target;
pub use report::{AuditError, AuditReport, PartReport};
use sampler::Drawn;
use tally::directions;

/// Confidence of each lower bound on epsilon.
const CONFIDENCE: f64 = 0.95;

/// Largest deviation of a mean or variance, in its standard deviations. Eighteen normal numbers
/// exceed it with probability 18 x 3.8e-8 < 1e-6.
const LARGEST_DEVIATION: f64 = 5.5;

/// Trials of the main attack for one of a part: a run of a part takes 30 times the noise.
const PART_SHARE: u64 = 300;

/// Least number of trials of a part. With fewer, variances are not normal enough for the false-alarm
/// rate.
const LEAST_PART: u64 = 6400;

/// Audits the mechanism of a plan with (at least) `trials` trials in each world. The seed decides
/// the noise: an audit can be repeated.
///
/// The parts are attacked with a share of the trials, but at least 6400.
///
/// O(trials n p). For BSR with `n = 50` a million trials take seconds.
///
/// # Errors
/// [`AuditError::Trials`] for fewer than 640; others mean that the mechanism refused to run.
pub fn audit(plan: &DpPlan, trials: u64, seed: RunSeed) -> Result<AuditReport, AuditError> {
    if plan.request().sampling != Sampling::FixedOrder {
        return audit_sampler(plan, trials, seed, sampler::drawn);
    }
    let mut report = audit_mechanism(plan, trials, seed, canary::released_sums)?;
    let share = (trials / PART_SHARE).max(LEAST_PART);
    for target in [Target::Tiles, Target::Resume] {
        let part = spread::spread(target, plan)?;
        let run = |world, key| spread::released(&part, world, key);
        report.parts.push(part.attack(share, seed, run)?);
    }
    let examples = Examples::new(plan.request().clip_norm)?;
    let part = examples.part(plan)?;
    let run = |world, key| examples.released(&part, world, key);
    report.parts.push(part.attack(share, seed, run)?);
    Ok(report)
}

/// Audits any mechanism against the claim of a plan; the main attack alone.
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
    let sampling = plan.request().sampling;
    if sampling != Sampling::FixedOrder {
        return Err(AuditError::Sampling { sampling });
    }
    if runs < 10 {
        return Err(AuditError::Trials { trials });
    }
    let plan = plan.with_dim(CANARIES);
    let canary = Canary::worst(&plan);
    let updates = indicator(&canary.takes_part);
    let experiment = Experiment {
        plan: &plan,
        updates: &updates,
        directions: &directions(&plan, &updates, seed),
        measured: &[World::Without],
        expected: &Expected {
            with: [canary.contribution(World::With); CANARIES],
            without: [canary.contribution(World::Without); CANARIES],
        },
        runs,
        confidence: CONFIDENCE,
    };
    let outcome = experiment.outcome(|run, world| {
        let index = 2 * run + u64::from(world == World::With);
        mechanism(&plan, &canary, world, NoiseKey::for_audit(seed, index))
    })?;
    let further = (outcome.counted * CANARIES as u64) as f64;
    let noise_deviation = outcome.without.largest_deviation(further);
    Ok(AuditReport {
        epsilon_claimed: plan.request().epsilon,
        delta: plan.request().delta,
        epsilon_lower_bound: outcome.epsilon_lower_bound,
        epsilon_lower_bound_if_gaussian: Some(outcome.epsilon_lower_bound_if_gaussian),
        trials: runs * CANARIES as u64,
        confidence: CONFIDENCE,
        noise_deviation,
        noise_as_planned: noise_deviation <= LARGEST_DEVIATION,
        batches_as_planned: None,
        parts: Vec::new(),
    })
}

/// Audits a plan for secret batches, with any sampler: what it draws for 64 examples, and what the mechanism releases
/// then (`secret`, [`sampler`]).
///
/// `draw` gives the canaries in the batch of every step, by the key of a run.
///
/// # Errors
/// As [`audit`], and those of the sampler.
pub fn audit_sampler(
    plan: &DpPlan,
    trials: u64,
    seed: RunSeed,
    draw: impl Fn(&DpPlan, &NoiseKey) -> Result<Drawn, AuditError> + Sync,
) -> Result<AuditReport, AuditError> {
    let runs = trials.div_ceil(CANARIES as u64);
    if runs < 10 {
        return Err(AuditError::Trials { trials });
    }
    let plan = plan.with_dim(CANARIES);
    let findings = sampler::findings(&plan, seed, |key| draw(&plan, key))?;
    let outcome = secret::attack(&plan, runs, CONFIDENCE, seed, |key| draw(&plan, key))?;
    Ok(AuditReport {
        epsilon_claimed: plan.request().epsilon,
        delta: plan.request().delta,
        epsilon_lower_bound: outcome.epsilon_lower_bound,
        epsilon_lower_bound_if_gaussian: None,
        trials: runs * CANARIES as u64,
        confidence: CONFIDENCE,
        noise_deviation: outcome.noise_deviation,
        noise_as_planned: outcome.noise_deviation <= LARGEST_DEVIATION,
        batches_as_planned: Some(findings.are_as_planned()),
        parts: Vec::new(),
    })
}
