//! Balls-in-bins by sampling: an upper bound of delta that fails with a stated probability.
//!
//! By Theorem 1 of the [module above](super) delta is a mean over `b` normals with covariance `K = G / sigma^2`. Factor
//! `G = R R^T`; no step of the training is simulated. Plain sampling would see an event of probability 1e-5 hardly ever, so
//! both directions sample where it happens and weigh by the ratio of the densities.
//!
//! # Remove
//! Take a tilt `a >= 1`. Draw a slot `i` and `u = R z / sigma + a K e_i`: the law `P_a`, in which all slot means are `a`
//! times as long. With `L = ln (1/b) sum_j e^{u_j - K_jj/2} = ln dP/dQ` and
//! `L_a = ln (1/b) sum_j e^{a u_j - a^2 K_jj/2} = ln dP_a/dQ`,
//!
//! ```text
//! delta = E_P (1 - e^{epsilon - L})_+ = E_{P_a} X,        X = e^{L - L_a} (1 - e^{epsilon - L})_+
//! ```
//!
//! *Bound of the terms.* Put `y_j = e^{u_j - K_jj/2}` and `k = max K_jj`. Since `a u_j - a^2 K_jj/2 = a ln y_j - a(a-1) K_jj/2`,
//! the inequality of power means gives `e^{L_a} >= e^{-a(a-1)k/2} (1/b) sum y_j^a >= e^{-a(a-1)k/2} e^{aL}`. So
//! `X <= e^{a(a-1)k/2} e^{-(a-1)L} (1 - e^{epsilon - L})` for `L > epsilon`, which is largest at `e^{epsilon - L} = 1 - 1/a`:
//!
//! ```text
//! 0 <= X <= (1/a) (1 - 1/a)^{a-1} exp(-(a-1) epsilon + a(a-1) k/2)
//! ```
//!
//! # Add
//! Let `m` be the mean of the rows of `R`, `d = m / |m|`, and draw `z ~ N(-t d, I)`, `u = R z / sigma`, for some `t >= 0`:
//!
//! ```text
//! delta = E_Q (1 - e^{epsilon + L})_+ = E X,              X = e^{t <z,d> + t^2/2} (1 - e^{epsilon + L})_+
//! ```
//!
//! *Bound of the terms.* By Jensen's inequality `L >= mean_j (u_j - K_jj/2) = |m| <z,d> / sigma - mean_j K_jj/2`, so `X > 0` only if
//! `<z,d> < s = sigma (mean_j K_jj/2 - epsilon) / |m|`, and `0 <= X <= e^{t s + t^2/2}`.
//!
//! # From the terms to a bound
//! `N` independent terms in `[0, B]` with mean `X'` and sample variance `V` have, with probability at least `1 - f`,
//!
//! ```text
//! E X <= X' + sqrt(2 V ln(2/f) / N) + 7 B ln(2/f) / (3 (N - 1))
//! ```
//!
//! (Maurer & Pontil 2009, Theorem 4, arXiv:0907.3740). Each direction gets half of the failure probability. The same `z` serves
//! both: the two statements need not be independent.
//!
//! *Rounding.* The covariance that is factored is larger than `G` by a relative 1e-10 in every entry
//! (`G + eta g g^T + eta diag(G)`, `g_i = sqrt(G_ii)`), which Corollary (a) allows and which exceeds what the factorization
//! rounds; terms have a relative error far below the 1e-9 by which the result is raised.

use super::confidence::Estimate;
pub use super::factored::{Coins, Sampler};
use super::importance::Simulation;
use super::{AccountingError, check_count, check_epsilon, check_noise};

/// The most samples.
pub const MOST_SAMPLES: u64 = 1 << 32;

/// Both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MonteCarloBound {
    /// For removal.
    pub remove: Estimate,
    /// For addition.
    pub add: Estimate,
    /// The number of samples.
    pub samples: u64,
    /// The probability that one of the upper bounds does not hold.
    pub failure: f64,
}

impl MonteCarloBound {
    /// The larger upper bound.
    pub fn upper(&self) -> f64 {
        self.remove.upper.max(self.add.upper)
    }

    /// The `delta` of accounting and training together: the coins fail with some probability, and then nothing is
    /// promised.
    pub fn delta(&self) -> f64 {
        self.upper() + self.failure
    }
}

impl Sampler {
    /// Upper bounds of `delta(epsilon)` for noise of this standard deviation at clip norm 1, which hold but for the failure
    /// probability. O(samples b^2) on all threads; the result depends on the seed only. 1e6 samples of 100 slots take
    /// about 5 s on one core.
    ///
    /// # Errors
    /// [`AccountingError::Epsilon`], [`AccountingError::Noise`], [`AccountingError::Count`] for fewer than 2 samples
    /// or more than [`MOST_SAMPLES`], [`AccountingError::Probability`] for the failure probability.
    pub fn bound(
        &self,
        noise_std: f64,
        epsilon: f64,
        coins: &Coins,
    ) -> Result<MonteCarloBound, AccountingError> {
        check_epsilon(epsilon)?;
        check_noise("noise standard deviation", noise_std)?;
        check_count("samples less one", coins.samples.saturating_sub(1), MOST_SAMPLES)?;
        if !(coins.failure > 0.0 && coins.failure < 1.0) {
            return Err(AccountingError::Probability { probability: coins.failure });
        }
        let simulation = Simulation::new(self, noise_std, epsilon);
        let (remove, add) = simulation.run(coins);
        let samples = coins.samples;
        let each = 0.5 * coins.failure;
        Ok(MonteCarloBound {
            remove: remove.estimate(samples, simulation.remove.largest_term, each),
            add: add.estimate(samples, simulation.add.largest_term, each),
            samples,
            failure: coins.failure,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::factored::derived_seed;
    use crate::accounting::gram::Gram;
    use crate::calibration::Neighbouring;
    use mf_core::{Participation, Strategy};

    fn gram(strategy: &Strategy, b: usize) -> Gram {
        let n = strategy.steps();
        let participation = Participation::new(n, b, n.div_ceil(b)).unwrap();
        Gram::of(Neighbouring::ZeroOut, strategy, &participation).unwrap()
    }

    #[test]
    fn the_result_depends_on_the_seed_only() {
        let gram = gram(&Strategy::toeplitz(12, vec![1.0, 0.6, 0.2]).unwrap(), 6);
        let sampler = Sampler::new(&gram).unwrap();
        let coins = Coins { seed: [1; 32], samples: 5000, failure: 1e-6 };
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| sampler.bound(1.5, 1.0, &coins).unwrap())
        };
        assert_eq!(run(1), run(3));
        let other = sampler.bound(1.5, 1.0, &Coins { seed: [2; 32], ..coins }).unwrap();
        assert_ne!(other.remove.mean, run(1).remove.mean);
        assert_ne!(derived_seed([1; 32], "a", 0), derived_seed([1; 32], "b", 0));
    }

    #[test]
    fn arguments_outside_the_domain_are_refused_and_extreme_ones_do_not_panic() {
        let gram = gram(&Strategy::identity(4).unwrap(), 2);
        let sampler = Sampler::new(&gram).unwrap();
        let good = Coins { seed: [0; 32], samples: 100, failure: 0.1 };
        for coins in [Coins { samples: 1, ..good }, Coins { samples: u64::MAX, ..good }] {
            assert!(matches!(sampler.bound(1.0, 1.0, &coins), Err(AccountingError::Count { .. })));
        }
        for failure in [0.0, 1.0, f64::NAN] {
            let refused = sampler.bound(1.0, 1.0, &Coins { failure, ..good });
            assert!(matches!(refused, Err(AccountingError::Probability { .. })));
        }
        assert!(
            sampler.bound(0.0, 1.0, &good).is_err() && sampler.bound(1.0, f64::NAN, &good).is_err()
        );
        for noise in [1e-300, 1e-9, 1e9, 1e300] {
            for epsilon in [1e-6, 500.0] {
                let upper = sampler.bound(noise, epsilon, &good).unwrap().upper();
                assert!((0.0..=1.0).contains(&upper), "{noise} {epsilon}: {upper}");
            }
        }
        let indefinite = Gram::new(3, vec![1.0, 0.9, 0.0, 0.9, 1.0, 0.9, 0.0, 0.9, 1.0]).unwrap();
        assert!(matches!(Sampler::new(&indefinite), Err(AccountingError::Gram { side: 3 })));
    }
}
