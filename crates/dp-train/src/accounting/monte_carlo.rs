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

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::gram::Gram;
use super::{AccountingError, check_count, check_epsilon, check_noise};

/// The most samples.
pub const MOST_SAMPLES: u64 = 1 << 32;

/// Samples that share one stream of the cipher.
const PER_STREAM: u64 = 1024;

/// Samples whose products with `R` are computed together.
const BLOCK: usize = 8;

/// By which relative amount the covariance and the result are raised.
const RAISED: f64 = 1e-10;
const RESULT_RAISED: f64 = 1e-9;

/// The coins of a simulation, and how sure its result shall be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coins {
    /// Which coins: different seeds are independent. Whoever picks a seed after seeing results loses the guarantee.
    pub seed: [u8; 32],
    /// The number of samples, from 2 on.
    pub samples: u64,
    /// The probability that the upper bounds do not hold, in (0, 1).
    pub failure: f64,
}

/// What the samples say of one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean of the terms: unbiased.
    pub mean: f64,
    /// The standard error of the mean, estimated.
    pub standard_error: f64,
    /// `B`: what no term exceeds.
    pub largest_term: f64,
    /// The upper confidence bound.
    pub upper: f64,
}

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

/// A factored Gram matrix.
#[derive(Debug, Clone)]
pub struct Sampler {
    slots: usize,
    /// The raised matrix by rows, and the rows of its lower-triangular root one after the other.
    raised: Vec<f64>,
    root: Vec<f64>,
    /// `|m|`, `d` and `R d`.
    mean_norm: f64,
    towards_mean: Vec<f64>,
    root_towards_mean: Vec<f64>,
}

impl Sampler {
    /// Factors the matrix. O(b^3).
    ///
    /// # Errors
    /// [`AccountingError::Gram`] if it is not positive semidefinite.
    pub fn new(gram: &Gram) -> Result<Self, AccountingError> {
        let b = gram.slots();
        let norms: Vec<f64> = (0..b).map(|i| gram.entry(i, i).sqrt()).collect();
        let mut raised = vec![0.0; b * b];
        for i in 0..b {
            for j in 0..b {
                let twice = if i == j { 2.0 } else { 1.0 };
                raised[i * b + j] = gram.entry(i, j) + twice * RAISED * norms[i] * norms[j];
            }
        }
        let root = lower_root(&raised, b).ok_or(AccountingError::Gram { side: b })?;
        let mut mean = vec![0.0; b];
        for i in 0..b {
            let row = &root[i * (i + 1) / 2..(i + 1) * (i + 2) / 2];
            mean.iter_mut().zip(row).for_each(|(m, r)| *m += r / b as f64);
        }
        let mean_norm = mean.iter().map(|m| m * m).sum::<f64>().sqrt();
        let towards_mean: Vec<f64> = mean.iter().map(|m| m / mean_norm).collect();
        let along = |i: usize| {
            let row = &root[i * (i + 1) / 2..(i + 1) * (i + 2) / 2];
            row.iter().zip(&towards_mean).map(|(r, d)| r * d).sum()
        };
        let root_towards_mean = (0..b).map(along).collect();
        Ok(Self { slots: b, raised, root, mean_norm, towards_mean, root_towards_mean })
    }

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
        let at = At::new(self, noise_std, epsilon);
        let (remove, add) = at.simulate(coins);
        let samples = coins.samples;
        let each = 0.5 * coins.failure;
        Ok(MonteCarloBound {
            remove: remove.estimate(samples, at.remove.largest_term, each),
            add: add.estimate(samples, at.add.largest_term, each),
            samples,
            failure: coins.failure,
        })
    }
}

/// The lower-triangular root of a matrix, row after row without the zeros, if there is one.
fn lower_root(matrix: &[f64], side: usize) -> Option<Vec<f64>> {
    let mut root: Vec<f64> = Vec::with_capacity(side * (side + 1) / 2);
    for i in 0..side {
        let start = i * (i + 1) / 2;
        for j in 0..=i {
            let other = j * (j + 1) / 2;
            let known: f64 = root[start..start + j]
                .iter()
                .zip(&root[other..other + j])
                .map(|(x, y)| x * y)
                .sum();
            let rest = matrix[i * side + j] - known;
            if i == j {
                if !(rest > 0.0 && rest.is_finite()) {
                    return None;
                }
                root.push(rest.sqrt());
            } else {
                root.push(rest / root[other + j]);
            }
        }
    }
    Some(root)
}

/// A sampler at one noise and epsilon.
struct At<'a> {
    sampler: &'a Sampler,
    noise: f64,
    epsilon: f64,
    /// `K_jj / 2`.
    half_variances: Vec<f64>,
    remove: Tilt,
    add: Tilt,
}

/// How far a direction is tilted (`a` or `t`), and what no term then exceeds.
struct Tilt {
    amount: f64,
    largest_term: f64,
}

impl<'a> At<'a> {
    fn new(sampler: &'a Sampler, noise: f64, epsilon: f64) -> Self {
        let b = sampler.slots;
        let half = |j: usize| 0.5 * sampler.raised[j * b + j] / noise / noise;
        let half_variances: Vec<f64> = (0..b).map(half).collect();
        let largest = 2.0 * half_variances.iter().copied().fold(0.0, f64::max);
        let mean = half_variances.iter().sum::<f64>() / b as f64;
        let farthest = noise * (mean - epsilon) / sampler.mean_norm;
        let t = (-farthest).clamp(0.0, 5.0);
        let add = Tilt { amount: t, largest_term: (t * farthest + 0.5 * t * t).exp().min(1.0) };
        // Without a tilt no term exceeds 1; with t > 0, s < 0 and t <= -s neither does the bound.
        let add = if t > 0.0 { add } else { Tilt { amount: 0.0, largest_term: 1.0 } };
        Self { sampler, noise, epsilon, half_variances, remove: best_tilt(epsilon, largest), add }
    }

    /// Both directions' sums, chunk by chunk in a fixed order.
    fn simulate(&self, coins: &Coins) -> (Moments, Moments) {
        let chunks: Vec<(Moments, Moments)> = (0..coins.samples.div_ceil(PER_STREAM))
            .into_par_iter()
            .map(|chunk| {
                let mut rng = ChaCha12Rng::from_seed(coins.seed);
                rng.set_stream(chunk);
                let first = chunk * PER_STREAM;
                self.chunk(&mut rng, (coins.samples - first).min(PER_STREAM) as usize)
            })
            .collect();
        chunks.iter().fold((Moments::default(), Moments::default()), |sums, chunk| {
            (sums.0.plus(chunk.0), sums.1.plus(chunk.1))
        })
    }

    fn chunk(&self, rng: &mut ChaCha12Rng, samples: usize) -> (Moments, Moments) {
        let b = self.sampler.slots;
        let (mut remove, mut add) = (Moments::default(), Moments::default());
        let mut normals = vec![[0.0; BLOCK]; b];
        let mut products = vec![[0.0; BLOCK]; b];
        let mut exponents = vec![0.0; b];
        let mut done = 0;
        while done < samples {
            let block = BLOCK.min(samples - done);
            for lane in 0..block {
                normals.iter_mut().for_each(|z| z[lane] = StandardNormal.sample(rng));
            }
            self.multiply(&normals, &mut products);
            for lane in 0..block {
                let slot = ((u128::from(rng.next_u64()) * b as u128) >> 64) as usize;
                remove.push(self.remove_term(&products, lane, slot, &mut exponents));
                add.push(self.add_term(&normals, &products, lane, &mut exponents));
            }
            done += block;
        }
        (remove, add)
    }

    /// `R z / sigma` for a block of samples.
    fn multiply(&self, normals: &[[f64; BLOCK]], products: &mut [[f64; BLOCK]]) {
        let mut rest = &self.sampler.root[..];
        let scale = 1.0 / self.noise;
        for (i, product) in products.iter_mut().enumerate() {
            let (row, after) = rest.split_at(i + 1);
            let mut sums = [0.0; BLOCK];
            for (r, z) in row.iter().zip(normals) {
                for lane in 0..BLOCK {
                    sums[lane] += r * z[lane];
                }
            }
            *product = sums.map(|sum| sum * scale);
            rest = after;
        }
    }

    fn remove_term(
        &self,
        products: &[[f64; BLOCK]],
        lane: usize,
        slot: usize,
        exponents: &mut [f64],
    ) -> f64 {
        let (b, a) = (self.sampler.slots, self.remove.amount);
        let row = &self.sampler.raised[slot * b..(slot + 1) * b];
        let scale = a / self.noise / self.noise;
        for j in 0..b {
            exponents[j] = products[j][lane] + scale * row[j] - self.half_variances[j];
        }
        let log_ratio = log_mean_exp(exponents);
        if log_ratio <= self.epsilon {
            return 0.0;
        }
        let tilted = a * (a - 1.0);
        for j in 0..b {
            exponents[j] = a * exponents[j] - tilted * self.half_variances[j];
        }
        let log_tilted = log_mean_exp(exponents);
        (log_ratio - log_tilted).exp() * -(self.epsilon - log_ratio).exp_m1()
    }

    fn add_term(
        &self,
        normals: &[[f64; BLOCK]],
        products: &[[f64; BLOCK]],
        lane: usize,
        exponents: &mut [f64],
    ) -> f64 {
        let (sampler, t) = (self.sampler, self.add.amount);
        let along: f64 = normals.iter().zip(&sampler.towards_mean).map(|(z, d)| z[lane] * d).sum();
        let scale = t / self.noise;
        let mut mean = 0.0;
        for j in 0..sampler.slots {
            let shift = scale * sampler.root_towards_mean[j];
            exponents[j] = products[j][lane] - shift - self.half_variances[j];
            mean += exponents[j];
        }
        // Jensen's inequality: no need for the exponentials. The margin is for rounding.
        if mean / sampler.slots as f64 > -self.epsilon + 1e-9 {
            return 0.0;
        }
        let log_ratio = log_mean_exp(exponents);
        if self.epsilon + log_ratio >= 0.0 {
            return 0.0;
        }
        // z was drawn around 0 and stands for z - t d.
        (t * along - 0.5 * t * t).exp() * -(self.epsilon + log_ratio).exp_m1()
    }
}

/// `ln (1/b) sum_j e^{x_j}`.
fn log_mean_exp(exponents: &[f64]) -> f64 {
    let largest = exponents.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = exponents.iter().map(|x| (x - largest).exp()).sum();
    largest + (sum / exponents.len() as f64).ln()
}

/// The `a` that makes the bound of removal's terms least, to a few digits: it is also close to the least variance.
fn best_tilt(epsilon: f64, largest_variance: f64) -> Tilt {
    let log_bound = |a: f64| {
        let shape = if a > 1.0 { (a - 1.0) * (-1.0 / a).ln_1p() } else { 0.0 };
        shape - a.ln() - (a - 1.0) * epsilon + 0.5 * a * (a - 1.0) * largest_variance
    };
    // Convex in a: all but the first two terms obviously, and those have the second derivative 1 / (a (a - 1)).
    let (mut low, mut high) = (1.0, 2.0 + (1.0 + epsilon) / largest_variance.max(1e-3));
    for _ in 0..60 {
        let (left, right) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if log_bound(left) < log_bound(right) {
            high = right;
        } else {
            low = left;
        }
    }
    let amount = 0.5 * (low + high);
    Tilt { amount, largest_term: log_bound(amount).exp() }
}

/// Sums of terms and of their squares.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    sum: f64,
    squares: f64,
}

impl Moments {
    fn push(&mut self, term: f64) {
        self.sum += term;
        self.squares += term * term;
    }

    fn plus(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, squares: self.squares + other.squares }
    }

    fn estimate(self, samples: u64, largest_term: f64, failure: f64) -> Estimate {
        let n = samples as f64;
        let mean = self.sum / n;
        let variance = ((self.squares - n * mean * mean) / (n - 1.0)).max(0.0);
        let surprise = (2.0 / failure).ln();
        let spread = (2.0 * variance * surprise / n).sqrt();
        let range = 7.0 * largest_term * surprise / (3.0 * (n - 1.0));
        // A mean that is no number (an infinite bound times nothing) says nothing.
        let upper = (mean + spread + range) * (1.0 + RESULT_RAISED);
        let upper = if upper.is_nan() { 1.0 } else { upper.min(1.0) };
        Estimate { mean, standard_error: (variance / n).sqrt(), largest_term, upper }
    }
}

/// The seed of one use of a seed: uses with different names have independent coins.
pub(super) fn derived_seed(seed: [u8; 32], name: &str, index: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update((name.len() as u64).to_le_bytes());
    hash.update(name.as_bytes());
    hash.update(seed);
    hash.update(index.to_le_bytes());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::allocation::Allocation;
    use crate::accounting::deterministic;
    use crate::calibration::{self, Neighbouring};
    use mf_core::factorization::{bisr, bsr};
    use mf_core::{BandedLower, Participation, Sgd, Strategy};
    use proptest::prelude::*;

    fn gram(strategy: &Strategy, b: usize) -> Gram {
        let n = strategy.steps();
        let participation = Participation::new(n, b, n.div_ceil(b)).unwrap();
        Gram::of(Neighbouring::ZeroOut, strategy, &participation).unwrap()
    }

    fn bound(gram: &Gram, noise: f64, epsilon: f64, samples: u64) -> MonteCarloBound {
        let coins = Coins { seed: [17; 32], samples, failure: 2e-9 };
        Sampler::new(gram).unwrap().bound(noise, epsilon, &coins).unwrap()
    }

    /// What the true value exceeds but for 1e-9: the upper bound for `B - X` instead of `X`.
    fn lower(estimate: Estimate) -> f64 {
        2.0 * estimate.mean - estimate.upper
    }

    #[test]
    fn four_runs_of_the_prototype() {
        // Noise, epsilon; removal: mean, standard error, largest possible term, upper bound; addition: mean, upper bound. By
        // the numpy prototype of the design notes, 1e6 samples. A false alarm needs 5 standard errors of a difference
        // of two independent means: 6e-7 for each of eight.
        let sgd = Sgd::new(0.999, 0.9).unwrap();
        let banded = |n| Strategy::toeplitz(n, bsr::coefficients(&sgd, 100)).unwrap();
        let inverse = Strategy::inverse_toeplitz(1000, bisr::coefficients(&sgd, 4)).unwrap();
        let known = [
            (
                banded(1000),
                6.393688,
                8.0,
                [8.508e-6, 0.028e-6, 1.06e-3, 8.75e-6],
                [6.456e-6, 6.61e-6],
            ),
            (
                inverse.clone(),
                4.894405,
                8.0,
                [8.586e-6, 0.031e-6, 5.05e-3, 9.05e-6],
                [5.5e-8, 7.5e-8],
            ),
            (inverse, 13.579922, 2.0, [7.165e-6, 0.068e-6, 8.26e-3, 8.05e-6], [4.901e-6, 5.27e-6]),
            (
                banded(2000),
                9.136977,
                8.0,
                [8.446e-6, 0.027e-6, 8.8e-4, 8.67e-6],
                [6.911e-6, 7.07e-6],
            ),
        ];
        for (strategy, noise, epsilon, remove, add) in known {
            let found = bound(&gram(&strategy, 100), noise, epsilon, 1_000_000);
            println!("{noise} {epsilon}: {found:?}");
            let [mean, error, largest, upper] = remove;
            assert!(
                (found.remove.mean - mean).abs() < 5.0 * error.hypot(found.remove.standard_error)
            );
            assert!((found.remove.largest_term / largest - 1.0).abs() < 0.01);
            assert!((found.remove.upper / upper - 1.0).abs() < 0.03);
            // The prototype took another tilt for addition; its standard error follows from its upper bound.
            let [mean, upper] = add;
            let error = (upper - mean) / 6.6;
            assert!((found.add.mean - mean).abs() < 5.0 * error.hypot(found.add.standard_error));
            assert!(found.add.upper < upper * 1.01);
            // And the bound without sampling is above what sampling says.
            let deterministic =
                deterministic::delta(&gram(&strategy, 100), noise, epsilon).unwrap();
            assert!(deterministic.delta.remove > lower(found.remove));
            assert!(deterministic.delta.add > lower(found.add));
        }
    }

    #[test]
    fn one_slot_is_the_gaussian() {
        let gram = gram(&Strategy::toeplitz(4, vec![1.0, 0.5]).unwrap(), 1);
        for (noise, epsilon) in [(2.0, 1.0), (1.0, 8.0), (4.0, 0.1)] {
            let exact =
                calibration::delta(epsilon, noise / gram.largest_diagonal().sqrt()).unwrap();
            let found = bound(&gram, noise, epsilon, 20_000);
            for estimate in [found.remove, found.add] {
                // Wrong by chance with probability 2e-9.
                assert!(lower(estimate) < exact && exact < estimate.upper, "{exact} {estimate:?}");
                assert!(estimate.upper < 1.5 * exact, "{exact} {estimate:?}");
            }
        }
    }

    #[test]
    fn independent_noise_in_one_epoch_is_an_allocation() {
        for (b, noise, epsilon) in [(2, 1.0, 1.0), (10, 0.7, 0.5), (30, 0.6, 1.0)] {
            let exact = Allocation::new(b, 1.0 / noise, 0.01).unwrap().delta(epsilon).unwrap();
            let b = b as usize;
            let found = bound(&gram(&Strategy::identity(b).unwrap(), b), noise, epsilon, 100_000);
            for (estimate, exact) in [(found.remove, exact.remove), (found.add, exact.add)] {
                // The grid may be above by a relative 1e-3; wrong by chance with probability 2e-9.
                assert!(
                    lower(estimate) < exact && exact < estimate.upper * 1.001,
                    "{exact} {estimate:?}"
                );
                let off = (estimate.mean - exact).abs();
                assert!(off < 6.0 * estimate.standard_error + 1e-3 * exact, "{exact} {estimate:?}");
            }
        }
    }

    /// Theorem 1 on a training that adapts: updates of norm 1 in the plane whose direction depends on what was
    /// released. Both deltas, by plain sampling, with their standard errors.
    fn adaptive(
        c: &BandedLower,
        b: usize,
        noise: f64,
        epsilon: f64,
        samples: u32,
    ) -> [(f64, f64); 2] {
        let n = c.steps();
        let mut rng = ChaCha12Rng::from_seed([3; 32]);
        let mut sums = [(0.0, 0.0); 2];
        for _ in 0..samples {
            let mut updates: Vec<[f64; 2]> = Vec::new();
            let mut logs = vec![0.0; b];
            let mut angle: f64 = 0.3;
            for t in 0..n {
                updates.push([angle.cos(), angle.sin()]);
                let z: [f64; 2] =
                    [StandardNormal.sample(&mut rng), StandardNormal.sample(&mut rng)];
                for (slot, log) in logs.iter_mut().enumerate() {
                    let mut v = [0.0; 2];
                    for s in (slot..=t).step_by(b) {
                        v[0] += c.entry(t, s) * updates[s][0];
                        v[1] += c.entry(t, s) * updates[s][1];
                    }
                    let (inner, square) = (v[0] * z[0] + v[1] * z[1], v[0] * v[0] + v[1] * v[1]);
                    *log += inner / noise - 0.5 * square / noise / noise;
                }
                // Turn towards what the noise looked like, or away from it.
                angle = z[1].atan2(z[0]) + if z[0] > 0.5 { 0.0 } else { 2.0 };
            }
            let ratio = log_mean_exp(&logs).exp();
            let terms = [(ratio - epsilon.exp()).max(0.0), (1.0 - epsilon.exp() * ratio).max(0.0)];
            for (sum, term) in sums.iter_mut().zip(terms) {
                sum.0 += term;
                sum.1 += term * term;
            }
        }
        let n = f64::from(samples);
        sums.map(|(sum, squares)| (sum / n, ((squares / n - (sum / n).powi(2)) / n).sqrt()))
    }

    #[test]
    fn adaptive_training_with_any_signs_stays_below_the_pair() {
        let entries = vec![1.0, 0.0, 0.0, 0.9, -0.8, 0.0, 1.1, 0.7, -0.5, 0.8, -0.6, 0.9];
        let c = BandedLower::from_entries(4, 3, entries).unwrap();
        let gram = gram(&Strategy::banded(c.clone()).unwrap(), 2);
        for epsilon in [0.2, 1.0] {
            let pair = bound(&gram, 2.0, epsilon, 100_000);
            let found = adaptive(&c, 2, 2.0, epsilon, 100_000);
            for ((mean, error), estimate) in found.into_iter().zip([pair.remove, pair.add]) {
                println!("{epsilon}: {mean} +- {error} below {}", estimate.mean);
                // False alarms: 3e-7 for each of four.
                assert!(mean - 5.0 * error < estimate.upper, "{mean} {error} {estimate:?}");
            }
        }
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        // A false alarm has probability 1e-9 in each of 96 comparisons.
        #[test]
        fn sampling_stays_below_the_deterministic_bound_and_grows_with_the_entries(
            n in 2_usize..16, b in 1_usize..8, noise in 0.5..4.0_f64, epsilon in 0.1..3.0_f64,
            more in 0.0..0.5_f64, entries in prop::collection::vec(0.0..1.0_f64, 16 * 16)
        ) {
            let b = b.min(n);
            let mut rows = BandedLower::from_entries(n, n, entries[..n * n].to_vec()).unwrap();
            (0..n).for_each(|i| rows.row_mut(i)[0] += 0.5);
            let gram = gram(&Strategy::banded(rows).unwrap(), b);
            let noise = noise * gram.largest_diagonal().sqrt();
            let found = bound(&gram, noise, epsilon, 10_000);
            let deterministic = deterministic::delta(&gram, noise, epsilon).unwrap().delta;
            prop_assert!(lower(found.remove) <= deterministic.remove, "{found:?} {deterministic:?}");
            prop_assert!(lower(found.add) <= deterministic.add, "{found:?} {deterministic:?}");
            // A common part in all slot means raises every entry.
            let raised = (0..b * b).map(|at| gram.entry(at / b, at % b) + more).collect();
            let raised = Gram::new(b, raised).unwrap();
            let larger = bound(&raised, noise, epsilon, 10_000);
            prop_assert!(lower(found.remove) <= larger.remove.upper);
            prop_assert!(lower(found.add) <= larger.add.upper);
            let bounds = deterministic::delta(&raised, noise, epsilon).unwrap().delta;
            prop_assert!(deterministic.worst() <= bounds.worst() * 1.01 + 1e-12);
        }
    }
}
