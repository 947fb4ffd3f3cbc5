//! The best of a random number of runs, nothing else of which is shown.
//!
//! A search draws `K` from a law on `1, 2, ..`, makes `K` independent runs, each with settings drawn from the same law,
//! and releases the one with the best score. That costs far less than showing all of them (Papernot and Steinke 2022,
//! arXiv:2110.03620), if `K` and the other runs stay secret and the score is itself private.
//!
//! **Theorem** (as in Koskela, Redberg and Wang 2024, arXiv:2402.06701). Let one run be `Q` or, on the neighbouring data,
//! `Q'`, its output with its score, and `delta_Q(epsilon)` the larger of the divergences between them in both directions. Let
//! `K` have the truncated negative binomial law with shape `eta > -1`, `gamma` in (0, 1) and mean `m`:
//!
//! ```text
//! Pr[K = k] = (1 - gamma)^k / (gamma^-eta - 1) prod_{l < k} (l + eta) / (l + 1)
//! ```
//!
//! Then for every `e_1 >= 0` the best run is `(epsilon, delta)`-private with
//!
//! ```text
//! epsilon = epsilon_Q(delta / m) + (1 + eta) ln(e^{e_1} + (1 - gamma) / gamma delta_Q(e_1)).
//! ```
//!
//! *Proof.* Ties are broken by a uniform number that is drawn with each output `y`, so no two are equal. Let `q(y)` be the
//! probability under `Q` that another run scores below `y`, and `phi` the generating function of `K`. The best of `K`
//! has the density `Q(y) E[K q(y)^{K-1}] = Q(y) phi'(q(y))`. Here
//! `phi(q) = ((1 - (1 - gamma) q)^-eta - 1) / (gamma^-eta - 1)`, so `phi'` is proportional to
//! `(1 - (1 - gamma) q)^{-(1 + eta)}`, rising, and at most `phi'(1) = m`.
//! Scoring at least `y` is an event, so `1 - q' <= e^{e_1} (1 - q) + d_1` with `d_1 = delta_Q(e_1)`. Hence
//! `1 - (1 - gamma) q' = gamma + (1 - gamma)(1 - q') <= e^{e_1} (1 - (1 - gamma) q) + (1 - gamma) d_1`, and since
//! `1 - (1 - gamma) q >= gamma`,
//!
//! ```text
//! phi'(q) / phi'(q') = ((1 - (1 - gamma) q') / (1 - (1 - gamma) q))^{1 + eta}
//!                   <= (e^{e_1} + (1 - gamma) / gamma d_1)^{1 + eta} =: L.
//! ```
//!
//! So the positive part of `Q phi'(q) - e^epsilon Q' phi'(q')` is at most `phi'(q)` times that of `Q - e^epsilon / L Q'`, and
//! its integral at most `m delta_Q(epsilon - ln L)`. The neighbours can be exchanged. ∎
//!
//! *The score* is the number of held-out training examples that a run gets right, plus Gaussian noise. One example moves it
//! by 1, and is either held out or trained on: a run has the worse of the two guarantees, not their sum.

use serde::{Deserialize, Serialize};

use super::{AccountingError, check_delta, check_noise};
use crate::calibration;
use crate::fingerprint::Fingerprint;

/// The largest mean number of runs.
pub const LARGEST_MEAN: f64 = 10_000.0;

/// The least shape but 0: with smaller ones differences of numbers that are almost 1 are lost.
pub const LEAST_SHAPE: f64 = 1e-6;

/// The largest shape.
pub const LARGEST_SHAPE: f64 = 10.0;

/// Places at which the free number of the theorem is tried.
const PLACES: usize = 500;

/// The law of the number of runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoppingLaw {
    mean: f64,
    shape: f64,
    gamma: f64,
}

impl StoppingLaw {
    /// The truncated negative binomial law of this mean `m` and shape `eta`: 0 is the logarithmic law, 1 the geometric one.
    ///
    /// # Errors
    /// [`AccountingError::Stopping`] unless `1 < m <= 10,000` and `eta` is 0 or from 1e-6 to 10.
    pub fn new(mean: f64, shape: f64) -> Result<Self, AccountingError> {
        let is_shape = shape == 0.0 || (LEAST_SHAPE..=LARGEST_SHAPE).contains(&shape);
        let fits = mean > 1.0 && mean <= LARGEST_MEAN && is_shape;
        if !fits {
            return Err(AccountingError::Stopping { mean, shape });
        }
        // The mean falls in gamma. A smaller gamma is the safe side of the bound, and costs nothing that shows.
        let (mut low, mut high) = (-700.0_f64, -1e-12_f64);
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            match mean_of(middle.exp(), shape) > mean {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok(Self { mean, shape, gamma: low.exp() })
    }

    /// The mean number of runs.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The shape `eta`.
    pub fn shape(&self) -> f64 {
        self.shape
    }

    /// The number `gamma` that the mean and the shape give.
    pub fn gamma(&self) -> f64 {
        self.gamma
    }

    /// The number of runs at `unit` in [0, 1) of the way through the law. O(K).
    pub fn at(&self, unit: f64) -> u64 {
        let (mut k, mut probability) = (1_u64, self.of_one());
        let mut below = probability;
        // Rounded sums may never reach the last numbers below 1, and what is left there is less than they can tell.
        while below <= unit && probability > f64::EPSILON.powi(2) {
            probability *= (1.0 - self.gamma) * (k as f64 + self.shape) / (k as f64 + 1.0);
            k += 1;
            below += probability;
        }
        k
    }

    /// `Pr[K = 1]`.
    fn of_one(&self) -> f64 {
        let Self { shape, gamma, .. } = *self;
        match shape {
            0.0 => (1.0 - gamma) / -gamma.ln(),
            // eta / (gamma^-eta - 1), which has the case above as its limit.
            shape => (1.0 - gamma) * shape / (-shape * gamma.ln()).exp_m1(),
        }
    }

    /// What the choice adds to `epsilon_Q(delta / m)`: the least of the theorem's second terms over many `e_1` up to
    /// `farthest`, given a bound on `delta_Q`.
    pub fn price(&self, farthest: f64, profile: impl Fn(f64) -> f64) -> f64 {
        let factor = (1.0 - self.gamma) / self.gamma;
        let place = |i: usize| farthest * i as f64 / PLACES as f64;
        let term = |first: f64| {
            let delta = profile(first);
            // ln(e^a + b) without the overflow of e^a.
            first + (factor * delta * (-first).exp()).ln_1p()
        };
        (1.0 + self.shape) * (0..=PLACES).map(|i| term(place(i))).fold(f64::INFINITY, f64::min)
    }
}

/// The mean of the law with this `gamma`; falls in `gamma`.
fn mean_of(gamma: f64, shape: f64) -> f64 {
    let odds = (1.0 - gamma) / gamma;
    match shape {
        0.0 => odds / -gamma.ln(),
        shape => shape * odds / -(shape * gamma.ln()).exp_m1(),
    }
}

/// A choice among a random number of runs, as a certificate states it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// The mean of the law of the number of runs, which is itself secret.
    pub mean: f64,
    /// Its shape.
    pub shape: f64,
    /// Deviation of the noise on the number of held-out examples that a run gets right.
    pub score_noise: f64,
    /// That number with its noise, over all held-out examples.
    pub score: f64,
    /// The `epsilon` of the best run, at the `delta` of the plan.
    pub epsilon: f64,
    /// SHA-256 of everything that could be drawn, for who compares searches.
    pub settings_sha256: Fingerprint,
}

/// The `epsilon` at `delta` of the best of a random number of runs, each of which is a Gaussian release with this
/// multiplier, its score included. About 600 evaluations of [`calibration::delta`].
///
/// # Errors
/// [`AccountingError::Noise`], [`AccountingError::Delta`] or [`AccountingError::Calibration`].
pub fn epsilon(law: &StoppingLaw, multiplier: f64, delta: f64) -> Result<f64, AccountingError> {
    check_delta(delta)?;
    check_noise("noise multiplier", multiplier)?;
    let single = calibration::epsilon(multiplier, delta / law.mean)?;
    // Beyond it the profile is so small that larger places cost more than they bring.
    let farthest = calibration::epsilon(multiplier, delta / law.mean * law.gamma)?;
    let profile = |first| calibration::delta(first, multiplier).unwrap_or(1.0);
    Ok((single + law.price(farthest, profile)) * (1.0 + calibration::MARGIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Pr[K = k]` by its definition.
    fn probability(law: &StoppingLaw, k: u64) -> f64 {
        let (eta, gamma) = (law.shape, law.gamma);
        let product: f64 = (0..k).map(|l| (l as f64 + eta) / (l as f64 + 1.0)).product();
        match eta {
            0.0 => (1.0 - gamma).powi(k as i32) / (k as f64 * -gamma.ln()),
            _ => (1.0 - gamma).powi(k as i32) / (gamma.powf(-eta) - 1.0) * product,
        }
    }

    #[test]
    fn the_law_has_its_mean_and_is_drawn_by_its_probabilities() {
        for (mean, shape, gamma) in
            [(5.0, 0.0, 0.0699), (20.0, 0.0, 0.01096), (5.0, 1.0, 0.2), (20.0, 1.0, 0.05)]
        {
            let law = StoppingLaw::new(mean, shape).unwrap();
            assert!((law.gamma() / gamma - 1.0).abs() < 2e-3, "{law:?}");
        }
        for (mean, shape) in [(1.001, 0.0), (3.0, 0.5), (7.0, 3.0), (40.0, 1.0)] {
            let law = StoppingLaw::new(mean, shape).unwrap();
            let (mut total, mut first) = (0.0, 0.0);
            for k in 1..2000 {
                let p = probability(&law, k);
                // The middle of the part of [0, 1) that is k's.
                if p > 1e-9 {
                    assert_eq!(law.at(total + 0.5 * p), k, "{law:?}");
                }
                total += p;
                first += k as f64 * p;
            }
            assert!(
                (total - 1.0).abs() < 1e-9 && (first / mean - 1.0).abs() < 1e-6,
                "{law:?}: {total} {first}"
            );
            assert_eq!(law.at(0.0), 1);
            assert!(law.at(1.0 - f64::EPSILON) < 1 << 20);
        }
    }

    /// The columns (B) of the table that the design notes have of it.
    #[test]
    fn the_best_of_gaussian_runs_costs_what_is_known() {
        for (single, mean, logarithmic, geometric) in [
            (1.0, 5.0, 1.58, 1.73),
            (1.0, 20.0, 1.86, 2.22),
            (2.0, 5.0, 3.03, 3.28),
            (2.0, 20.0, 3.54, 4.17),
            (4.0, 5.0, 5.73, 6.08),
            (4.0, 20.0, 6.66, 7.67),
            (8.0, 5.0, 10.65, 11.03),
            (8.0, 20.0, 12.26, 13.65),
        ] {
            let s = calibration::multiplier(single, 1e-5).unwrap();
            for (shape, known) in [(0.0, logarithmic), (1.0, geometric)] {
                let law = StoppingLaw::new(mean, shape).unwrap();
                let found = epsilon(&law, s, 1e-5).unwrap();
                assert!((found - known).abs() < 0.0051, "{single} {mean} {shape}: {found}");
            }
        }
    }

    /// Two runs on three outputs: the law of the best is a finite sum, and the theorem must bound its divergence.
    #[test]
    fn the_bound_holds_for_laws_of_the_best_that_can_be_summed() {
        let mut state = 7_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        for case in 0..60 {
            let outputs = 2 + case % 5;
            let mut law_of = |sharpness: f64| {
                let weights: Vec<f64> =
                    (0..outputs).map(|_| (sharpness * (uniform() - 0.5)).exp()).collect();
                let sum: f64 = weights.iter().sum();
                weights.iter().map(|w| w / sum).collect::<Vec<f64>>()
            };
            let (one, other) = (law_of(4.0), law_of(4.0));
            let divergence = |p: &[f64], q: &[f64], epsilon: f64| -> f64 {
                p.iter().zip(q).map(|(p, q)| (p - epsilon.exp() * q).max(0.0)).sum()
            };
            let profile = |epsilon: f64| {
                divergence(&one, &other, epsilon).max(divergence(&other, &one, epsilon))
            };
            let law =
                StoppingLaw::new(1.5 + 4.0 * f64::from(case) / 60.0, f64::from(case % 3)).unwrap();
            let law_of_runs: Vec<f64> = (1..400).map(|k| probability(&law, k)).collect();
            // Outputs in the order of their scores: the best is y with probability phi(F(y)) - phi(F(y - 1)).
            let best = |single: &[f64]| {
                let generating = |q: f64| -> f64 {
                    let terms = law_of_runs.iter().zip(1..);
                    terms.map(|(probability, k)| probability * q.powi(k)).sum()
                };
                let (mut below, mut reached) = (0.0, 0.0);
                let part = |p: &f64| {
                    below += p;
                    let upper = generating(below);
                    let part = upper - reached;
                    reached = upper;
                    part
                };
                single.iter().map(part).collect::<Vec<f64>>()
            };
            let (best_one, best_other) = (best(&one), best(&other));
            let price = law.price(4.0, profile);
            for epsilon in [0.0, 0.3, 1.0, 2.0] {
                let bound = law.mean() * profile(epsilon);
                for (p, q) in [(&best_one, &best_other), (&best_other, &best_one)] {
                    let found = divergence(p, q, epsilon + price);
                    assert!(found <= bound + 1e-7, "{case} {epsilon}: {found} > {bound}");
                }
            }
        }
    }

    #[test]
    fn laws_that_are_none_are_refused() {
        for (mean, shape) in [
            (1.0, 1.0),
            (0.0, 1.0),
            (f64::NAN, 1.0),
            (1e5, 1.0),
            (5.0, -0.1),
            (5.0, 11.0),
            (5.0, 1e-9),
            (5.0, f64::NAN),
        ] {
            let refused = StoppingLaw::new(mean, shape);
            assert!(matches!(refused, Err(AccountingError::Stopping { .. })), "{mean} {shape}");
        }
        let law = StoppingLaw::new(5.0, 1.0).unwrap();
        assert!(epsilon(&law, 0.0, 1e-5).is_err() && epsilon(&law, 1.0, 0.0).is_err());
        assert!(epsilon(&law, 1e-3, 1e-5).is_ok() && epsilon(&law, 1e3, 1e-5).is_ok());
    }
}
