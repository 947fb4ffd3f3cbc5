//! Balls-in-bins accounting: sampling against its prototype, against exact values, and against the bound without sampling.

use chacha20::ChaCha12Rng;
use chacha20::rand_core::SeedableRng;
use dp_train::accounting::allocation::Allocation;
use dp_train::accounting::confidence::Estimate;
use dp_train::accounting::deterministic;
use dp_train::accounting::gram::Gram;
use dp_train::accounting::monte_carlo::{Coins, MonteCarloBound, Sampler};
use dp_train::calibration::{self, Neighbouring};
use mf_core::factorization::{bisr, bsr};
use mf_core::{BandedLower, Participation, Sgd, Strategy};
use proptest::prelude::{ProptestConfig, prop, prop_assert, proptest};
use rand_distr::{Distribution, StandardNormal};

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
        (banded(1000), 6.393688, 8.0, [8.508e-6, 0.028e-6, 1.06e-3, 8.75e-6], [6.456e-6, 6.61e-6]),
        (inverse.clone(), 4.894405, 8.0, [8.586e-6, 0.031e-6, 5.05e-3, 9.05e-6], [5.5e-8, 7.5e-8]),
        (inverse, 13.579922, 2.0, [7.165e-6, 0.068e-6, 8.26e-3, 8.05e-6], [4.901e-6, 5.27e-6]),
        (banded(2000), 9.136977, 8.0, [8.446e-6, 0.027e-6, 8.8e-4, 8.67e-6], [6.911e-6, 7.07e-6]),
    ];
    for (strategy, noise, epsilon, remove, add) in known {
        let found = bound(&gram(&strategy, 100), noise, epsilon, 1_000_000);
        println!("{noise} {epsilon}: {found:?}");
        let [mean, error, largest, upper] = remove;
        assert!((found.remove.mean - mean).abs() < 5.0 * error.hypot(found.remove.standard_error));
        assert!((found.remove.largest_term / largest - 1.0).abs() < 0.01);
        assert!((found.remove.upper / upper - 1.0).abs() < 0.03);
        // The prototype took another tilt for addition; its standard error follows from its upper bound.
        let [mean, upper] = add;
        let error = (upper - mean) / 6.6;
        assert!((found.add.mean - mean).abs() < 5.0 * error.hypot(found.add.standard_error));
        assert!(found.add.upper < upper * 1.01);
        // And the bound without sampling is above what sampling says.
        let deterministic = deterministic::delta(&gram(&strategy, 100), noise, epsilon).unwrap();
        assert!(deterministic.delta.remove > lower(found.remove));
        assert!(deterministic.delta.add > lower(found.add));
    }
}

#[test]
fn one_slot_is_the_gaussian() {
    let gram = gram(&Strategy::toeplitz(4, vec![1.0, 0.5]).unwrap(), 1);
    for (noise, epsilon) in [(2.0, 1.0), (1.0, 8.0), (4.0, 0.1)] {
        let exact = calibration::delta(epsilon, noise / gram.largest_diagonal().sqrt()).unwrap();
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
fn adaptive(c: &BandedLower, b: usize, noise: f64, epsilon: f64, samples: u32) -> [(f64, f64); 2] {
    let n = c.steps();
    let mut rng = ChaCha12Rng::from_seed([3; 32]);
    let mut sums = [(0.0, 0.0); 2];
    for _ in 0..samples {
        let mut updates: Vec<[f64; 2]> = Vec::new();
        let mut logs = vec![0.0; b];
        let mut angle: f64 = 0.3;
        for t in 0..n {
            updates.push([angle.cos(), angle.sin()]);
            let z: [f64; 2] = [StandardNormal.sample(&mut rng), StandardNormal.sample(&mut rng)];
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
        let ratio = logs.iter().map(|log: &f64| log.exp()).sum::<f64>() / b as f64;
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
