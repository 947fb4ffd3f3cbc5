//! Balls-in-bins noise by sampling: calibrated on one set of coins, verified on others.
//!
//! 1. *Pilot*: on few samples, the same for every noise, find the noise at which verification should succeed.
//! 2. *Verify* with fresh coins: accept if the upper bound and the failure probability together are at most `delta`.
//! 3. Otherwise take a little more noise, fresh coins and half the failure probability, a few times; at last the noise of the
//!    [deterministic bound](super::deterministic), which needs no coins.
//!
//! **The result is `(epsilon, delta)`-private, coins included.** Attempt `j` is made with noise that depends on earlier coins
//! only, so its upper bound is wrong with probability at most `f_j`, whatever the noise; that some accepted bound is wrong has
//! probability at most `sum_j f_j <= f`. The coins are independent of the data. On good ones training has delta at most the
//! upper bound, on bad ones at most 1, and `delta` is convex: together at most `upper + f`, which was checked. QED
//!
//! The proof is for one plan. Whoever looks at the noise of several and takes the best has the failures of all of them; so
//! plans are chosen by coins that verify none of them ([`DpPlan::rehearsed`](crate::DpPlan::rehearsed)), as `noise.bands = "best"` of
//! the program does. `verify` draws coins of its own, too.
//!
//! Of more than 256 slots a [class](Gram::of_class) is sampled that may stand for all.
//!
//! The pilot's coins never verify: they were used to choose the noise, for which they look better than they are.

use std::borrow::Cow;

use super::confidence::Estimate;
use super::deterministic::{self, DeterministicNoise};
use super::factored::{Coins, Sampler, derived_seed};
use super::gram::Gram;
use super::monte_carlo::MonteCarloBound;
use super::root::{Search, least_noise};
use super::{AccountingError, check_delta, check_epsilon};

/// Samples that verify well within ten seconds at 100 slots.
pub const USUAL_SAMPLES: u64 = 1 << 20;

/// Slots beyond which a class of them is sampled instead, if one may stand for all.
const MANY_SLOTS: usize = 256;

/// The share of delta that goes to the failure of the coins.
const FAILURE_SHARE: f64 = 1e-4;

/// The share of the samples that the pilot takes, and the standard errors of the pilot that are allowed for.
const PILOT_SHARE: u64 = 16;
const PILOT_ERRORS: f64 = 2.0;

/// How often verification is tried, and by how much the noise grows in between.
const ATTEMPTS: u32 = 6;
const GROWTH: f64 = 1.004;

/// Noise that was verified.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VerifiedNoise {
    /// The standard deviation of the entries of `Z` at clip norm 1.
    pub noise_std: f64,
    /// The bound that verified it; none if the deterministic one is as good.
    pub bound: Option<MonteCarloBound>,
    /// The failure probability of all attempts that may have been made together.
    pub failure: f64,
    /// The noise that needs no coins.
    pub deterministic: DeterministicNoise,
}

/// The noise for `(epsilon, delta)`, verified by `samples` samples in one attempt most of the time. Two to three times
/// the cost of [`Sampler::bound`].
///
/// # Errors
/// [`AccountingError::Epsilon`], [`AccountingError::Delta`], [`AccountingError::Gram`], [`AccountingError::Count`] for fewer than
/// 1024 samples or too many, [`AccountingError::Calibration`].
pub fn noise_std(
    gram: &Gram,
    epsilon: f64,
    delta: f64,
    seed: [u8; 32],
    samples: u64,
) -> Result<VerifiedNoise, AccountingError> {
    check_epsilon(epsilon)?;
    check_delta(delta)?;
    let most = super::monte_carlo::MOST_SAMPLES;
    if samples < 1024 {
        return Err(AccountingError::Count {
            what: "samples, at least 1024,",
            value: samples,
            most,
        });
    }
    let deterministic = deterministic::noise_std(gram, epsilon, delta)?;
    let failure = FAILURE_SHARE * delta;
    let unsampled = VerifiedNoise {
        noise_std: deterministic.noise_std,
        bound: None,
        failure: 0.0,
        deterministic,
    };
    // One slot is the Gaussian.
    if gram.slots() == 1 {
        return Ok(unsampled);
    }
    let few = few_slots(gram);
    // Half an hour rather than seconds: no class of the slots may stand for all.
    if few.slots() > 2 * MANY_SLOTS {
        return Ok(unsampled);
    }
    let sampler = Sampler::new(&few)?;
    let first = Coins { seed, samples, failure: 0.5 * failure };
    let Some(mut noise) = pilot(&sampler, epsilon, delta, &first, deterministic.noise_std)? else {
        return Ok(unsampled);
    };
    for attempt in 0..ATTEMPTS {
        if noise >= deterministic.noise_std {
            break;
        }
        let coins = Coins {
            seed: derived_seed(seed, "bandroot/1/accounting/verification", u64::from(attempt)),
            samples,
            failure: failure * 0.5_f64.powi(attempt as i32 + 1),
        };
        let bound = sampler.bound(noise, epsilon, &coins)?;
        if bound.upper() + failure <= delta {
            let bound = Some(bound);
            return Ok(VerifiedNoise { noise_std: noise, bound, failure, deterministic });
        }
        noise *= GROWTH;
    }
    Ok(unsampled)
}

/// The matrix itself, or if it is large that of a class of its slots which may stand for all.
pub(crate) fn few_slots(gram: &Gram) -> Cow<'_, Gram> {
    let b = gram.slots();
    let class = (b.div_ceil(MANY_SLOTS)..=b / 2).find_map(|classes| gram.of_class(classes));
    match class {
        Some(class) if b > MANY_SLOTS => Cow::Owned(class),
        _ => Cow::Borrowed(gram),
    }
}

/// The noise at which verification with these coins should succeed; none if that is not less than `enough`.
fn pilot(
    sampler: &Sampler,
    epsilon: f64,
    delta: f64,
    coins: &Coins,
    enough: f64,
) -> Result<Option<f64>, AccountingError> {
    let samples = (coins.samples / PILOT_SHARE).max(1024);
    let seed = derived_seed(coins.seed, "bandroot/1/accounting/pilot", 0);
    let own = Coins { seed, samples, failure: coins.failure };
    let surprise = (4.0 / coins.failure).ln();
    let expected = |estimate: Estimate| {
        let deviation = estimate.standard_error * (samples as f64).sqrt();
        let spread = deviation * (2.0 * surprise / coins.samples as f64).sqrt();
        let range = 7.0 * estimate.largest_term * surprise / (3.0 * coins.samples as f64);
        estimate.mean + spread + range + PILOT_ERRORS * estimate.standard_error
    };
    let allowed = delta * (1.0 - 2.0 * FAILURE_SHARE);
    let search = Search { enough, lower_by: 0.93, tolerance: 1e-5 };
    let found = least_noise(search, delta, |noise| {
        let bound = sampler.bound(noise, epsilon, &own)?;
        Ok((expected(bound.remove).max(expected(bound.add)) / allowed).ln())
    });
    match found {
        Ok(noise) => Ok(Some(noise)),
        Err(AccountingError::OutOfRange { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::{self, Neighbouring};
    use mf_core::factorization::bsr;
    use mf_core::{Participation, Sgd, Strategy};

    fn gram(strategy: &Strategy, k: usize, b: usize) -> Gram {
        let participation = Participation::epochs(k, b).unwrap();
        Gram::of(Neighbouring::ZeroOut, strategy, &participation).unwrap()
    }

    #[test]
    fn ten_epochs_of_bsr_at_epsilon_eight() {
        let sgd = Sgd::new(0.999, 0.9).unwrap();
        let gram = gram(&Strategy::toeplitz(1000, bsr::coefficients(&sgd, 100)).unwrap(), 10, 100);
        let start = std::time::Instant::now();
        let found = noise_std(&gram, 8.0, 1e-5, [42; 32], USUAL_SAMPLES).unwrap();
        println!("{:?}: {found:?}", start.elapsed());
        let bound = found.bound.unwrap();
        // By 1e5 samples of the prototype the exact noise is 6.351, to about 0.1 %.
        assert!((6.34..6.40).contains(&found.noise_std), "{}", found.noise_std);
        assert!(
            found.deterministic.noise_std <= 6.70
                && found.deterministic.noise_std > found.noise_std
        );
        assert!(bound.upper() + found.failure <= 1e-5 && found.failure <= 1e-9);
    }

    #[test]
    fn of_many_slots_a_class_is_sampled() {
        let many = gram(&Strategy::toeplitz(520, vec![1.0, 0.5]).unwrap(), 1, 520);
        assert_eq!(few_slots(&many).slots(), 130, "the least divisor from 3 on");
        let few = gram(&Strategy::identity(100).unwrap(), 1, 100);
        assert_eq!(few_slots(&few).slots(), 100);
        let prime = gram(&Strategy::identity(257).unwrap(), 1, 257);
        assert_eq!(few_slots(&prime).slots(), 257);
    }

    #[test]
    fn where_sampling_gains_nothing_the_noise_is_the_deterministic_one() {
        let one = gram(&Strategy::toeplitz(6, vec![1.0, 0.5]).unwrap(), 6, 1);
        let found = noise_std(&one, 2.0, 1e-5, [0; 32], 2048).unwrap();
        let plain = calibration::multiplier(2.0, 1e-5).unwrap() * one.largest_diagonal().sqrt();
        assert_eq!((found.noise_std, found.bound, found.failure), (plain, None, 0.0));
        // Independent slots: the deterministic bound is exact.
        let independent = gram(&Strategy::identity(20).unwrap(), 1, 20);
        let found = noise_std(&independent, 2.0, 1e-5, [0; 32], 4096).unwrap();
        assert_eq!((found.noise_std, found.bound), (found.deterministic.noise_std, None));
        assert!(matches!(
            noise_std(&one, 2.0, 1e-5, [0; 32], 10),
            Err(AccountingError::Count { .. })
        ));
        assert!(noise_std(&one, 0.0, 1e-5, [0; 32], 2048).is_err());
        assert!(noise_std(&one, 1.0, 1.0, [0; 32], 2048).is_err());
    }
}
