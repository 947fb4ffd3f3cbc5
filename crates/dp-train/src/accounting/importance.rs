//! Importance sampling: the terms of [`monte_carlo`](super::monte_carlo), drawn in blocks on all threads.

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;

use super::confidence::Moments;
use super::factored::{Coins, Sampler};

/// Samples that share one stream of the cipher.
const PER_STREAM: u64 = 1024;

/// Samples whose products with `R` are computed together.
const BLOCK: usize = 8;

/// A sampler at one noise and epsilon.
pub(super) struct Simulation<'a> {
    sampler: &'a Sampler,
    noise: f64,
    epsilon: f64,
    /// `K_jj / 2`.
    half_variances: Vec<f64>,
    pub(super) remove: Tilt,
    pub(super) add: Tilt,
}

/// How far a direction is tilted (`a` or `t`), and what no term then exceeds.
pub(super) struct Tilt {
    amount: f64,
    pub(super) largest_term: f64,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(sampler: &'a Sampler, noise: f64, epsilon: f64) -> Self {
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
    pub(super) fn run(&self, coins: &Coins) -> (Moments, Moments) {
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
