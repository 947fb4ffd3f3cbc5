//! The numbers of a certificate's plan, derived again.

use mf_core::Strategy;

use super::reference::SlowStrategy;
use super::{TOLERANCE, Verdict, close, divergence};
use crate::accounting::confidence::Estimate;
use crate::accounting::cyclic::CyclicPoisson;
use crate::accounting::gram::Gram;
use crate::accounting::monte_carlo::{Coins, MonteCarloBound, Sampler};
use crate::accounting::verified::{USUAL_SAMPLES, few_slots};
use crate::accounting::{AccountingError, Directions, deterministic};
use crate::certificate::{Certificate, FORMAT_1};
use crate::gradient::SUM_ROUNDING;
use crate::plan::{Accountant, Amplification, DpPlan, PlanRecord, PlanRequest, Sampling};

/// Standard errors that a mean of samples is above the truth by less than once in 1e14 times.
const CHANCE: f64 = 8.0;

/// Slots that are sampled at most: a plan with more has the noise of the bound without sampling.
const MOST_SAMPLED: usize = 512;

impl Verdict {
    /// All numbers of the plan that its request and its strategy give.
    pub(super) fn check_numbers(&mut self, certificate: &Certificate, strategy: Strategy) {
        let claimed = &certificate.plan;
        let derived = match DpPlan::of_strategy(claimed.request.clone(), strategy) {
            Ok(plan) => PlanRecord::from(plan),
            Err(error) => return self.find(false, format!("request: it has no plan: {error}")),
        };
        let sum_rounding = if certificate.format == FORMAT_1 { 0.0 } else { SUM_ROUNDING };
        // Format 1 did not allow for the rounding of sums, which is in all that depends on the noise.
        let without = (1.0 + sum_rounding) / (1.0 + SUM_ROUNDING);
        let numbers = [
            ("sum_rounding", claimed.sum_rounding, sum_rounding),
            ("noise_multiplier", claimed.noise_multiplier, derived.noise_multiplier),
            ("noise_std", claimed.noise_std, without * derived.noise_std),
            ("sensitivity.value", claimed.sensitivity.value, derived.sensitivity.value),
            ("loss.expected_error", claimed.loss.expected_error, derived.loss.expected_error),
            ("loss.max_error", claimed.loss.max_error, derived.loss.max_error),
            ("loss.final_error", claimed.loss.final_error, derived.loss.final_error),
            ("iterate_noise_std", claimed.iterate_noise_std, without * derived.iterate_noise_std),
            (
                "final_iterate_noise_std",
                claimed.final_iterate_noise_std,
                without * derived.final_iterate_noise_std,
            ),
        ];
        let wrong = numbers.iter().filter(|(_, claimed, derived)| !close(*claimed, *derived));
        let wrong: Vec<String> = wrong
            .map(|(name, claimed, derived)| format!("{name}: {claimed} claimed, {derived} derived"))
            .collect();
        let exact = [
            ("bands", claimed.bands == derived.bands),
            ("history_bytes", claimed.history_bytes == derived.history_bytes),
            ("amplification", is_same(claimed.amplification, derived.amplification)),
            ("sensitivity.exact", claimed.sensitivity.exact == derived.sensitivity.exact),
            ("sensitivity.method", claimed.sensitivity.method == derived.sensitivity.method),
        ];
        let other =
            exact.iter().filter(|(_, same)| !same).map(|(name, _)| format!("{name}: another"));
        let wrong: Vec<String> = wrong.into_iter().chain(other).collect();
        let detail = match wrong.is_empty() {
            true => format!("plan: {} numbers as derived", numbers.len() + exact.len()),
            false => format!("plan: {}", wrong.join("; ")),
        };
        self.find(wrong.is_empty(), detail);
    }

    /// Sensitivity, noise and epsilon for a strategy of as many rows as the pattern has steps.
    pub(super) fn check_noise(&mut self, certificate: &Certificate, strategy: &SlowStrategy) {
        let (plan, request) = (&certificate.plan, &certificate.plan.request);
        let derived = strategy.sensitivity(&plan.participation);
        let kind = if derived.exact { "exact" } else { "upper bound" };
        self.find(
            close(plan.sensitivity.value, derived.value)
                && (derived.exact || !plan.sensitivity.exact),
            format!(
                "sensitivity.value: {:.9} claimed, {:.9} derived ({kind})",
                plan.sensitivity.value, derived.value
            ),
        );
        let moved = request.clip_norm * (1.0 + plan.sum_rounding);
        let unit = derived.value * moved * request.neighbouring.factor();
        let multiplier = plan.noise_std / unit;
        self.find(
            close(plan.noise_multiplier, multiplier),
            format!(
                "noise_multiplier: {:.9} claimed, {multiplier:.9} derived from noise_std",
                plan.noise_multiplier
            ),
        );
        let found = match request.sampling {
            Sampling::FixedOrder => self.check_gaussian(multiplier, request),
            Sampling::BallsInBins => self.check_slots_noise(plan, strategy, plan.noise_std / moved),
            Sampling::Poisson | Sampling::CyclicPoisson => {
                self.check_poisson_noise(plan, strategy, plan.noise_std / moved)
            }
        };
        self.sensitivity = Some(derived.value);
        self.noise_multiplier = Some(multiplier);
        self.epsilon = found;
    }

    /// That one Gaussian release with this multiplier is as private as claimed: the epsilon found.
    fn check_gaussian(&mut self, multiplier: f64, request: &PlanRequest) -> Option<f64> {
        let (epsilon, delta) = (request.epsilon, request.delta);
        let found = divergence::epsilon(multiplier, delta, TOLERANCE);
        self.find(
            found.is_some_and(|found| found <= epsilon * (1.0 + TOLERANCE)),
            match found {
                Some(found) => {
                    format!("epsilon: {epsilon} claimed, {found:.9} derived at delta {delta:e} in two ways")
                }
                None => format!("epsilon: {epsilon} claimed, none derived: two ways do not agree on one"),
            },
        );
        let private = divergence::is_private(epsilon * (1.0 + TOLERANCE), delta, multiplier);
        self.find(
            private,
            format!("delta: the integral at epsilon {epsilon} is at most {delta:e}"),
        );
        found
    }

    /// The same for Poisson batches, with the columns of the strategy by their definition.
    fn check_poisson_noise(
        &mut self,
        plan: &PlanRecord,
        strategy: &SlowStrategy,
        noise_std: f64,
    ) -> Option<f64> {
        let PlanRequest { epsilon, delta, neighbouring, .. } = plan.request;
        let groups = plan.participation.min_separation();
        let apart = strategy.rows.iter().all(|row| row.len() <= groups);
        self.find(
            apart,
            format!("bands: columns of the strategy {groups} steps apart have no row in common"),
        );
        let noise_std = noise_std * (1.0 + TOLERANCE);
        let rounds = plan.participation.steps().div_ceil(groups);
        let probability = plan.request.probability().unwrap_or(f64::NAN);
        let squares = strategy.squared_columns();
        let found = CyclicPoisson::of_columns(neighbouring, probability, &squares, groups)
            .and_then(|account| {
                // With the longest column in all rounds first: that is all where the others are as long.
                let longest = account.column_norm();
                let simple = account.rounds().delta(noise_std / longest, epsilon)?;
                if simple.worst() <= delta { Ok(simple) } else { account.delta(noise_std, epsilon) }
            });
        let private = apart && found.as_ref().is_ok_and(|found| found.worst() <= delta);
        self.find(
            private,
            match found {
                Ok(Directions { remove, add }) => format!(
                    "delta: at epsilon {epsilon} at most {remove:.6e} (remove) and {add:.6e} (add) in {rounds} rounds of \
                     probability {probability}, allowed {delta:e}"
                ),
                Err(error) => format!("delta: {error}"),
            },
        );
        private.then_some(epsilon)
    }

    /// That noise of this standard deviation at clip norm 1 is as private as claimed for examples in secret slots: the
    /// epsilon claimed, if it is. A plan whose noise was verified by sampling is sampled again, with coins of the
    /// operating system and four times as many: a true claim fails with a probability of about 1e-9. The bound without
    /// sampling is evaluated too: it holds with certainty, so that samples whose mean exceeds it by more than chance (eight
    /// standard errors, a probability below 1e-14) show that one of the two ways to account is wrong.
    fn check_slots_noise(
        &mut self,
        plan: &PlanRecord,
        strategy: &SlowStrategy,
        noise_std: f64,
    ) -> Option<f64> {
        let PlanRequest { epsilon, delta, .. } = plan.request;
        let slots = plan.participation.min_separation();
        let noise_std = noise_std * (1.0 + TOLERANCE);
        let found = Gram::new(slots, strategy.gram(slots)).and_then(|gram| {
            let certain = deterministic::delta(&gram, noise_std, epsilon)?.delta;
            let is_sampled = plan.request.accountant == Accountant::Verified;
            if certain.worst() <= delta || !is_sampled {
                return Ok((certain, "the bound without sampling".to_owned()));
            }
            let few = few_slots(&gram);
            let slots = few.slots();
            if slots > MOST_SAMPLED {
                return Err(AccountingError::Count {
                    what: "slots to sample",
                    value: slots as u64,
                    most: MOST_SAMPLED as u64,
                });
            }
            let mut seed = [0; 32];
            getrandom::fill(&mut seed).map_err(|_| AccountingError::NoEntropy)?;
            let coins = Coins { seed, samples: 4 * USUAL_SAMPLES, failure: 1e-4 * delta };
            let bound = Sampler::new(&few)?.bound(noise_std, epsilon, &coins)?;
            // Of what was sampled, which may be a class of the slots.
            let certain = deterministic::delta(&few, noise_std, epsilon)?.delta;
            self.check_certainty(&bound, certain);
            let failure = bound.failure;
            let sampled =
                Directions { remove: bound.remove.upper + failure, add: bound.add.upper + failure };
            Ok((sampled, format!("{} samples of its own", bound.samples)))
        });
        let private = found.as_ref().is_ok_and(|(bound, _)| bound.worst() <= delta);
        self.find(
            private,
            match found {
                Ok((Directions { remove, add }, how)) => format!(
                    "delta: at epsilon {epsilon} at most {remove:.6e} (remove) and {add:.6e} (add) by {how}, allowed \
                     {delta:e}"
                ),
                Err(error) => format!("delta: {error}"),
            },
        );
        private.then_some(epsilon)
    }

    /// That samples do not contradict the bound that holds without them.
    fn check_certainty(&mut self, sampled: &MonteCarloBound, certain: Directions) {
        let [remove, add] = [(sampled.remove, certain.remove), (sampled.add, certain.add)].map(
            |(estimate, certain)| {
                let Estimate { mean, standard_error, .. } = estimate;
                (mean - CHANCE * standard_error <= certain, mean, certain)
            },
        );
        self.find(
            remove.0 && add.0,
            format!(
                "delta: the mean of the samples is {:.6e} (remove) and {:.6e} (add), not above {:.6e} and {:.6e} by the bound \
                 without sampling",
                remove.1, add.1, remove.2, add.2
            ),
        );
    }
}

/// Whether two accounts agree, up to the rounding of different machines.
fn is_same(claimed: Option<Amplification>, derived: Option<Amplification>) -> bool {
    match (claimed, derived) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            close(a.unamplified_multiplier, b.unamplified_multiplier)
                && (a.samples, a.failure) == (b.samples, b.failure)
                // Plans from before it was stated have none.
                && a.largest_column.is_none_or(|a| b.largest_column.is_some_and(|b| close(a, b)))
                // The noise is found to a relative 1e-9, where delta moves 30 times as much.
                && [(a.delta_remove, b.delta_remove), (a.delta_add, b.delta_add)]
                    .iter()
                    .all(|(a, b)| a == b || (a / b - 1.0).abs() <= 1e-6)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_above_a_bound_that_is_certain_are_noticed() {
        let estimate = |mean, standard_error| Estimate {
            mean,
            standard_error,
            largest_term: 1e-3,
            upper: mean + 7.0 * standard_error,
        };
        let holds = |remove, add| {
            let mut verdict = Verdict {
                findings: Vec::new(),
                sensitivity: None,
                noise_multiplier: None,
                epsilon: None,
                secret_key: true,
            };
            let sampled = MonteCarloBound { remove, add, samples: 1000, failure: 1e-9 };
            verdict.check_certainty(&sampled, Directions { remove: 1.1e-5, add: 2e-6 });
            verdict.findings[0].holds
        };
        let (below, chance) = (estimate(1e-5, 1e-7), estimate(1.17e-5, 1e-7));
        let above = estimate(1.2e-5, 1e-7);
        assert!(holds(below, estimate(1e-6, 1e-8)) && holds(chance, estimate(1e-6, 1e-8)));
        assert!(!holds(above, estimate(1e-6, 1e-8)));
        assert!(!holds(below, estimate(3e-6, 1e-8)));
    }
}
