//! What a certificate says of the runs that it was chosen among.

use super::{TOLERANCE, Verdict, close, divergence};
use crate::accounting::stopping::{Selection, StoppingLaw};
use crate::accounting::tuning::{self, Release, Tried};
use crate::certificate::Certificate;

impl Verdict {
    /// That all runs together, and the best of a random number of them, cost what the certificate says.
    pub(super) fn check_tuning(&mut self, certificate: &Certificate) {
        let Certificate { trials, tried, epsilon_all_trials, selection, .. } = certificate;
        match (epsilon_all_trials, tried.is_empty()) {
            (None, true) => {}
            (None, false) => self.find(false, "epsilon_all_trials: missing beside tried".into()),
            (Some(all), true) => {
                let single = certificate.plan.request.epsilon;
                let same = *trials <= 1 && *all == single;
                let detail = format!("epsilon_all_trials: {all} of {trials} runs, {single} of one");
                self.find(same, detail);
            }
            (Some(all), false) => self.check_all_trials(certificate, *all),
        }
        if let Some(selection) = selection {
            let uncounted = epsilon_all_trials.is_none() && tried.is_empty();
            let detail = "epsilon_all_trials: nobody counts the runs of a selection";
            self.find(uncounted, detail.to_string());
            self.check_selection(certificate, selection);
        }
    }

    fn check_all_trials(&mut self, certificate: &Certificate, all: f64) {
        let Certificate { trials, tried, plan, held_out_examples, .. } = certificate;
        let runs = tried.iter().map(|tried| tried.runs).fold(0, u64::saturating_add);
        self.find(runs == *trials, format!("tried: {runs} runs of {trials} trials"));
        let held_out = *held_out_examples > 0;
        let is_own = |found: &Tried| {
            found.held_out == held_out
                && plan.release().is_some_and(|own| is_same(own, found.release))
        };
        self.find(tried.iter().any(is_own), "tried: this run is one of them".into());
        let delta = plan.request.delta;
        // Refuses runs that there cannot be.
        let derived =
            tuning::epsilon(tried, delta).ok().and_then(|found| match multiplier(tried) {
                // The integral, which shares nothing with the closed form that it was computed by.
                Some(multiplier) => divergence::epsilon(multiplier, delta, TOLERANCE),
                None => Some(found),
            });
        let derived = derived.map(|epsilon| epsilon.max(plan.request.epsilon));
        self.find(
            derived.is_some_and(|derived| close(all, derived)),
            match derived {
                Some(derived) => format!(
                    "epsilon_all_trials: {all} claimed, {derived:.9} derived from tried, whose noise is as the \
                     certificate says"
                ),
                None => format!("epsilon_all_trials: {all} claimed, none derived"),
            },
        );
    }

    fn check_selection(&mut self, certificate: &Certificate, selection: &Selection) {
        let Certificate { plan, held_out_examples, .. } = certificate;
        let Selection { mean, shape, score_noise, score, epsilon, .. } = *selection;
        self.find(score.is_finite(), format!("selection.score: {score}"));
        let own = match plan.release() {
            Some(Release::Gaussian { multiplier }) if *held_out_examples > 0 => {
                Some(multiplier.min(score_noise))
            }
            _ => None,
        };
        let delta = plan.request.delta;
        let derived = own.zip(StoppingLaw::new(mean, shape).ok()).and_then(|(multiplier, law)| {
            let single = divergence::epsilon(multiplier, delta / mean, TOLERANCE)?;
            let farthest = divergence::epsilon(multiplier, delta / mean * law.gamma(), TOLERANCE)?;
            let profile = |first| divergence::integrated_delta(first, multiplier).high();
            Some(single + law.price(farthest, profile))
        });
        self.find(
            // Both try the free number of the bound at the same places.
            derived.is_some_and(|derived| close(epsilon, derived)),
            match derived {
                Some(derived) => format!(
                    "selection.epsilon: {epsilon} claimed, {derived:.9} derived for the best of {mean} runs in the mean"
                ),
                None => format!(
                    "selection.epsilon: {epsilon} claimed, none derived: it needs held-out examples, noise on their \
                     number, and a run that is one Gaussian release"
                ),
            },
        );
    }
}

/// The multiplier of the one Gaussian release that these runs are together, if they are.
fn multiplier(tried: &[Tried]) -> Option<f64> {
    let precision = tried.iter().map(|tried| match tried.release {
        Release::Gaussian { multiplier } => Some(tried.runs as f64 / multiplier.powi(2)),
        Release::Poisson { .. } => None,
    });
    Some(1.0 / precision.sum::<Option<f64>>()?.sqrt())
}

/// Whether two releases are the same up to rounding.
fn is_same(own: Release, found: Release) -> bool {
    match (own, found) {
        (Release::Gaussian { multiplier: own }, Release::Gaussian { multiplier: found }) => {
            close(own, found)
        }
        (
            Release::Poisson { probability: p, rounds: t, multiplier: own },
            Release::Poisson { probability: q, rounds: n, multiplier: found },
        ) => close(p, q) && t == n && close(own, found),
        _ => false,
    }
}
