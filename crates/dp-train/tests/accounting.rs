//! The accountants against `dp_accounting` 0.6.0, and against each other where two must agree.

use dp_train::Neighbouring::ZeroOut;
use dp_train::accounting::Direction;
use dp_train::accounting::composition::{Aim, Composition};
use dp_train::accounting::cyclic::CyclicPoisson;
use dp_train::accounting::poisson::Poisson;
use dp_train::calibration;
use mf_core::Strategy;
use proptest::prelude::{ProptestConfig, prop_assert, proptest};

/// Probability, multiplier, rounds, delta, epsilon of removal and of addition, by `PLDAccountant()` with its default
/// grid of 1e-4.
const EPSILONS: [(f64, f64, u64, f64, f64, f64); 15] = [
    (0.01, 1.0, 1000, 1e-5, 1.8282436, 1.4166725),
    (0.01, 0.6, 1000, 1e-5, 7.4336161, 3.1775582),
    (0.01, 0.5, 1000, 1e-5, 13.3608257, 4.3159333),
    (0.01, 2.0, 2000, 1e-5, 0.9000441, 0.8547055),
    (0.01, 1.0, 100, 1e-5, 0.7180367, 0.3381603),
    (0.04, 1.0, 250, 1e-5, 4.1851532, 2.6986859),
    (0.1, 2.0, 100, 1e-5, 2.3374002, 1.8810366),
    (0.1, 1.0, 100, 1e-5, 7.0466029, 3.9891596),
    (0.2, 3.0, 500, 1e-6, 8.1663857, 7.5840239),
    (0.5, 2.0, 20, 1e-5, 5.6894578, 4.3064285),
    (1.0, 1.0, 10, 1e-5, 17.8565868, 17.8565868),
    (0.001, 0.8, 10000, 1e-6, 0.9473239, 0.7429216),
    (0.0005, 1.0, 20000, 1e-8, 0.4747848, 0.4398750),
    (0.02, 4.0, 5000, 1e-5, 1.3893240, 1.3683517),
    (0.3, 0.8, 3, 1e-5, 6.1903119, 0.9936793),
];

#[test]
fn fifteen_epsilons_of_dp_accounting() {
    for (q, multiplier, rounds, delta, remove, add) in EPSILONS {
        let poisson = Poisson::new(ZeroOut, q, rounds).unwrap();
        let found = poisson.epsilon(multiplier, delta).unwrap();
        println!(
            "q = {q}, s = {multiplier}, T = {rounds}: {:.7} ({:+.1e}), {:.7} ({:+.1e})",
            found.remove,
            found.remove / remove - 1.0,
            found.add,
            found.add / add - 1.0
        );
        for (found, expected) in [(found.remove, remove), (found.add, add)] {
            assert!((found / expected - 1.0).abs() < 1e-4, "{found} for {expected}");
            // The two grids agree, and dp_accounting's own is pessimistic.
            assert!(found > expected - 1e-6, "{found} for {expected}");
        }
        let back = poisson.delta(multiplier, found.worst()).unwrap().worst();
        assert!((back / delta - 1.0).abs() < 1e-3, "{back} for {delta}");
    }
}

/// What a grid costs falls with the square of its step, so two finer ones tell what none would give.
#[test]
fn epsilons_are_above_those_of_finer_grids() {
    for (q, multiplier, rounds, delta, remove, _) in EPSILONS.into_iter().step_by(2) {
        let poisson = Poisson::new(ZeroOut, q, rounds).unwrap();
        let usual = poisson.loss(Direction::Remove, multiplier).unwrap().step();
        let [found, fine, finer] = [1.0, 2.0, 4.0].map(|times| {
            let step = usual / times;
            let loss = poisson.loss_with_step(Direction::Remove, multiplier, step).unwrap();
            Composition::new(&[(&loss, rounds)], Aim::Delta(delta)).unwrap().epsilon(delta).unwrap()
        });
        let exact = finer - (fine - finer) / 3.0;
        println!(
            "q = {q}, s = {multiplier}, T = {rounds}: above the exact epsilon by {:.1e}",
            found - exact
        );
        assert!(found > fine && fine > finer && finer > exact, "{found} {fine} {finer}");
        assert!(found - exact < 2e-3 * exact && (remove - exact).abs() < 2e-3 * exact);
    }
}

/// Steps, bands, batch, delta, epsilon and multiplier, by `calibrate_dp_mechanism` with tolerance 1e-5, of 50,000 examples.
const MULTIPLIERS: [(usize, usize, u64, f64, f64); 10] = [
    (1000, 10, 500, 8.0, 0.935927),
    (1000, 20, 500, 8.0, 1.149150),
    (1000, 50, 500, 8.0, 1.552538),
    (1000, 10, 500, 2.0, 2.247712),
    (1000, 20, 500, 4.0, 1.811651),
    (2000, 10, 500, 2.0, 3.004497),
    (2000, 25, 500, 8.0, 1.571508),
    (100, 20, 500, 2.0, 1.462738),
    (2000, 100, 25, 4.0, 0.745555),
    (1000, 1, 500, 8.0, 0.586262),
];

#[test]
fn ten_multipliers_of_cyclic_poisson_sampling() {
    for (steps, bands, batch, epsilon, expected) in MULTIPLIERS {
        let column = vec![(bands as f64).sqrt().recip(); bands];
        let strategy = Strategy::toeplitz(steps, column).unwrap();
        let cyclic = CyclicPoisson::new(ZeroOut, &strategy, batch, 50_000).unwrap();
        let found = cyclic.noise_std(epsilon, 1e-5).unwrap();
        println!(
            "n = {steps}, p = {bands}, epsilon = {epsilon}: {found:.6} ({:+.1e})",
            found / expected - 1.0
        );
        assert!((found / expected - 1.0).abs() < 1e-4, "{found} for {expected}");
        assert!(cyclic.delta(found, epsilon).unwrap().worst() <= 1e-5);
        let epsilons = cyclic.epsilon(found, 1e-5).unwrap();
        assert!((epsilons.worst() / epsilon - 1.0).abs() < 1e-5, "{epsilons:?}");
    }
}

#[test]
fn certain_participation_is_the_gaussian() {
    for (rounds, epsilon, delta) in [(1, 1.0, 1e-5), (10, 4.0, 1e-8), (300, 0.3, 1e-3)] {
        let poisson = Poisson::new(ZeroOut, 1.0, rounds).unwrap();
        let plain = calibration::multiplier(epsilon, delta).unwrap() * (rounds as f64).sqrt();
        let found = poisson.multiplier(epsilon, delta).unwrap();
        assert!(
            (found / plain - 1.0).abs() < 3e-5 && found >= plain * (1.0 - 1e-8),
            "{found} {plain}"
        );
        let epsilons = poisson.epsilon(plain, delta).unwrap();
        assert!((epsilons.remove / epsilons.add - 1.0).abs() < 1e-4, "{epsilons:?}");
        assert!(epsilons.worst() >= epsilon * (1.0 - 1e-8), "{epsilons:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    // The grid's step may change between two arguments, which costs up to 1e-3 of epsilon.
    #[test]
    fn more_noise_fewer_rounds_and_rarer_sampling_are_more_private(
        q in 0.001..1.0_f64, multiplier in 0.7..4.0_f64, rounds in 1_u64..200, more in 1.05..2.0_f64
    ) {
        let epsilon = |q: f64, multiplier: f64, rounds: u64| {
            Poisson::new(ZeroOut, q, rounds).unwrap().epsilon(multiplier, 1e-5).unwrap()
        };
        let usual = epsilon(q, multiplier, rounds);
        let others = [
            epsilon(q, multiplier * more, rounds),
            epsilon(q / more, multiplier, rounds),
            epsilon(q, multiplier, rounds.div_ceil(2)),
        ];
        for other in others {
            prop_assert!(other.remove <= usual.remove * 1.002 && other.add <= usual.add * 1.002);
        }
        // Epsilons from 1e-6 to 500 can be asked for.
        let asked = usual.worst().clamp(1e-6, 500.0);
        let delta = Poisson::new(ZeroOut, q, rounds).unwrap().delta(multiplier, asked).unwrap();
        prop_assert!(delta.worst() < 1e-5 * 1.01 || usual.worst() > 500.0, "{delta:?}");
    }
}

/// Everyone in every round is one Gaussian release, also where its losses are large.
#[test]
fn without_sampling_large_losses_are_those_of_the_gaussian() {
    for (rounds, epsilon) in [(1, 12.0), (10, 20.0), (10, 50.0), (3, 100.0)] {
        let account = Poisson::new(ZeroOut, 1.0, rounds).unwrap();
        let multiplier = account.multiplier(epsilon, 1e-5).unwrap();
        let plain = calibration::multiplier(epsilon, 1e-5).unwrap() * (rounds as f64).sqrt();
        assert!(
            (multiplier / plain - 1.0).abs() < 1e-3 && multiplier > plain * (1.0 - 1e-6),
            "{epsilon}"
        );
    }
}
