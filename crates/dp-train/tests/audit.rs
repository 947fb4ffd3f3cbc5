//! The audit finds nothing in the mechanism and something in every broken one.
//!
//! The broken mechanisms are built here from the public pieces; production code has no switch for
//! them.

use dp_train::audit::canary::{CANARIES, Canary, Released, World, released_sums};
use dp_train::audit::{AuditError, audit, audit_mechanism};
use dp_train::mechanism::MechanismError;
use dp_train::noise::NoiseStream;
use dp_train::plan::{DpPlan, PlanRequest, StrategyFor};
use dp_train::seeds::{NoiseKey, RunSeed};
use mf_core::{Method, Sgd, Strategy};

const TRIALS: u64 = 100_000;

fn plan(method: Method, steps: usize, min_separation: usize, clip_norm: f64) -> DpPlan {
    DpPlan::new(PlanRequest {
        sgd: Sgd::new(0.999, 0.9).unwrap(),
        learning_rates: None,
        workload_column: None,
        strategy_for: StrategyFor::ConstantRate,
        method,
        steps,
        min_separation,
        max_participations: None,
        clip_norm,
        batch_size: 16,
        epsilon: 4.0,
        delta: 1e-5,
        neighbouring: Default::default(),
        sampling: Default::default(),
        examples: None,
        accountant: Default::default(),
        dim: 1_000_000,
        keep_rows: None,
    })
    .unwrap()
}

/// The sums of the canary's batches, with noise from a stream that a bug has its hands on.
fn with_noise(
    plan: &DpPlan,
    canary: &Canary,
    world: World,
    mut noise: impl FnMut(usize, &mut [f64]) -> Result<(), MechanismError>,
) -> Result<Released, AuditError> {
    (0..plan.request().steps)
        .map(|step| {
            let sum = if canary.takes_part[step] { canary.contribution(world) } else { 0.0 };
            let mut row = [sum; CANARIES];
            noise(step, &mut row)?;
            Ok(row.map(|x| x as f32))
        })
        .collect()
}

fn stream(strategy: &Strategy, key: NoiseKey) -> NoiseStream {
    NoiseStream::new(strategy.clone(), CANARIES, key).unwrap()
}

#[test]
fn bsr_at_epsilon_4_with_10_participations_is_audited_tightly() {
    let report = audit(&plan(Method::Bsr { bands: 5 }, 50, 5, 1.0), 2_500_000, RunSeed(1)).unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
    assert!(report.epsilon_lower_bound > 3.0, "{report}");
    assert!((3.8..4.0).contains(&report.epsilon_lower_bound_if_gaussian.unwrap()), "{report}");
}

#[test]
fn correct_mechanisms_of_all_kinds_pass() {
    for (method, steps, separation) in [
        (Method::Identity, 20, 5),
        (Method::SquareRoot, 20, 5),
        (Method::Bsr { bands: 8 }, 20, 5),
        (Method::Input, 12, 12),
        (Method::Bsr { bands: 20 }, 200, 20),
        (Method::Bisr { bands: 4 }, 20, 5),
        (Method::LambdaCgd { lambda: None }, 20, 5),
        (Method::Blt { buffers: 2 }, 20, 5),
    ] {
        let plan = plan(method, steps, separation, 0.5);
        let report = audit(&plan, 40_000, RunSeed(2)).unwrap();
        assert!(report.passed(), "{method}:\n{report}");
        assert!(report.epsilon_lower_bound_if_gaussian.unwrap() > 3.4, "{method}:\n{report}");
        assert!(report.epsilon_lower_bound_if_gaussian.unwrap() < 4.1, "{method}:\n{report}");
    }
}

#[test]
fn replacing_an_example_is_audited_at_twice_the_distance() {
    let mut request = plan(Method::Bsr { bands: 4 }, 16, 4, 1.0).request().clone();
    request.neighbouring = dp_train::calibration::Neighbouring::ReplaceOne;
    let report = audit(&DpPlan::new(request).unwrap(), TRIALS, RunSeed(3)).unwrap();
    assert!(report.passed() && report.epsilon_lower_bound_if_gaussian.unwrap() > 3.7, "{report}");
}

#[test]
fn the_sensitivity_of_one_participation_too_few_is_caught() {
    for (k, trials, profitable) in [(2, 1_000_000, true), (10, TRIALS, false)] {
        let claimed = plan(Method::Bsr { bands: 5 }, 5 * k, 5, 1.0);
        let report = audit_mechanism(&claimed, trials, RunSeed(4), |plan, canary, world, key| {
            let mut request = plan.request().clone();
            request.max_participations = Some(k - 1);
            released_sums(&DpPlan::new(request)?, canary, world, key)
        })
        .unwrap();
        println!("k - 1 of {k}\n{report}");
        assert!(!report.noise_as_planned && !report.passed(), "{report}");
        assert!(report.epsilon_lower_bound_if_gaussian.unwrap() > 4.0, "{report}");
        // At k = 10 a twentieth of the noise is missing: too little for the bound without
        // assumptions.
        assert_eq!(report.epsilon_lower_bound > 4.0, profitable, "{report}");
    }
}

#[test]
fn a_missing_clip_factor_is_caught() {
    let claimed = plan(Method::Bsr { bands: 5 }, 20, 5, 2.0);
    let report = audit_mechanism(&claimed, TRIALS, RunSeed(5), |plan, canary, world, key| {
        let mut stream = stream(plan.strategy(), key);
        let std = plan.noise_std() / plan.request().clip_norm;
        with_noise(plan, canary, world, |_, row| Ok(stream.add_next(std, row)?))
    })
    .unwrap();
    println!("missing clip factor\n{report}");
    assert!(report.epsilon_lower_bound > 4.0 && !report.passed(), "{report}");
}

#[test]
fn a_row_of_noise_used_twice_is_caught() {
    let claimed = plan(Method::Bsr { bands: 5 }, 20, 5, 1.0);
    let report = audit_mechanism(&claimed, TRIALS, RunSeed(6), |plan, canary, world, key| {
        let mut stream = stream(plan.strategy(), key);
        let mut last = [0.0; CANARIES];
        with_noise(plan, canary, world, |step, row| {
            if step != 7 {
                last = [0.0; CANARIES];
                stream.add_next(plan.noise_std(), &mut last)?;
            }
            row.iter_mut().zip(&last).for_each(|(x, noise)| *x += noise);
            Ok(())
        })
    })
    .unwrap();
    println!("row used twice\n{report}");
    assert!(!report.noise_as_planned && !report.passed(), "{report}");
}

#[test]
fn a_row_reused_at_a_participation_gives_everything_away() {
    let claimed = plan(Method::Bsr { bands: 5 }, 20, 5, 1.0);
    let report = audit_mechanism(&claimed, TRIALS, RunSeed(7), |plan, canary, world, key| {
        let mut stream = stream(plan.strategy(), key);
        let mut last = [0.0; CANARIES];
        with_noise(plan, canary, world, |step, row| {
            // Steps 4 and 5 share their noise, and the canary takes part in one of them.
            if step != 5 {
                last = [0.0; CANARIES];
                stream.add_next(plan.noise_std(), &mut last)?;
            }
            row.iter_mut().zip(&last).for_each(|(x, noise)| *x += noise);
            Ok(())
        })
    })
    .unwrap();
    println!("row reused at a participation\n{report}");
    assert!(report.epsilon_lower_bound > 8.0 && !report.passed(), "{report}");
}

#[test]
fn bands_in_the_wrong_order_are_caught() {
    let claimed = plan(Method::Bsr { bands: 5 }, 20, 5, 1.0);
    let report = audit_mechanism(&claimed, TRIALS, RunSeed(8), |plan, canary, world, key| {
        let mut coefficients = plan.strategy().as_toeplitz().unwrap().to_vec();
        coefficients[1..].reverse();
        let wrong = Strategy::toeplitz(plan.request().steps, coefficients).unwrap();
        let mut stream = stream(&wrong, key);
        with_noise(plan, canary, world, |_, row| Ok(stream.add_next(plan.noise_std(), row)?))
    })
    .unwrap();
    println!("wrong band order\n{report}");
    assert!(!report.noise_as_planned && !report.passed(), "{report}");
}

#[test]
fn an_audit_can_be_repeated_and_needs_trials() {
    let plan = plan(Method::Bsr { bands: 3 }, 9, 3, 1.0);
    let one = audit(&plan, 5000, RunSeed(9)).unwrap();
    assert_eq!(one, audit(&plan, 5000, RunSeed(9)).unwrap());
    assert_ne!(one, audit(&plan, 5000, RunSeed(10)).unwrap());
    assert_eq!(audit(&plan, 100, RunSeed(9)), Err(AuditError::Trials { trials: 100 }));
}
