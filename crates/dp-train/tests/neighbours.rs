//! The cheap and strong check: two data sets that differ in one example, the same randomness, and
//! the measured distance of the released `C X` against the declared sensitivity.

use dp_train::batches::Batches;
use dp_train::gradient::PerSampleGradients;
use dp_train::ledger::Ledger;
use dp_train::mechanism::{Mechanism, MechanismError};
use dp_train::noise::NoiseError;
use dp_train::plan::{DpPlan, PlanRequest, StrategyFor};
use dp_train::seeds::{NoiseKey, RunSeed};
use dp_train::update::Momentum;
use mf_core::{Method, Sgd, Strategy};
use proptest::prelude::*;

const DIM: usize = 6;
const EXAMPLES: u32 = 40;
const BATCH: usize = 8;

fn plan(method: Method, clip_norm: f64) -> DpPlan {
    DpPlan::new(PlanRequest {
        sgd: Sgd::new(0.99, 0.5).unwrap(),
        learning_rates: None,
        workload_column: None,
        strategy_for: StrategyFor::ConstantRate,
        method,
        steps: 25,
        min_separation: 5,
        max_participations: None,
        clip_norm,
        batch_size: BATCH,
        epsilon: 4.0,
        delta: 1e-5,
        neighbouring: Default::default(),
        sampling: Default::default(),
        examples: None,
        accountant: Default::default(),
        dim: DIM,
        keep_rows: None,
    })
    .unwrap()
}

/// Trains a linear regression on the examples and returns all released sums. Example `missing` is
/// left out; all parameters are reset to `parameters(step)` before each step, so that only the data
/// differs.
fn released(plan: &DpPlan, targets: &[f32], missing: Option<u32>, adaptive: bool) -> Vec<Vec<f32>> {
    let batches = Batches::new(EXAMPLES, BATCH, RunSeed(1)).unwrap();
    let mut ledger = Ledger::new(plan.participation(), EXAMPLES).unwrap();
    let mut mechanism = Mechanism::new(plan, NoiseKey::fixed(RunSeed(2))).unwrap();
    let mut momentum = Momentum::new(plan.request().sgd, DIM);
    let mut parameters = vec![0.1_f32; DIM];
    let mut sums = Vec::new();
    for step in 0..plan.request().steps {
        ledger.record(step, &batches.batch(step)).unwrap();
        let mut gradients = PerSampleGradients::new(DIM);
        for &example in batches.batch(step).iter().filter(|example| Some(**example) != missing) {
            let input: Vec<f32> =
                (0..DIM).map(|t| ((example as usize + t) % 5) as f32 - 2.0).collect();
            let output: f32 = input.iter().zip(&parameters).map(|(x, w)| x * w).sum();
            let error = output - targets[example as usize];
            gradients.push(&input.iter().map(|x| x * error).collect::<Vec<f32>>()).unwrap();
        }
        let sum = gradients.clip(plan.request().clip_norm).unwrap();
        let gradient = mechanism.privatize(sum).unwrap();
        sums.push(gradient.values().iter().map(|g| g * BATCH as f32).collect());
        if adaptive {
            momentum.step(&mut parameters, gradient, 0.01);
        }
    }
    sums
}

/// `||C (X - X')||` of released sums; the noise is the same in both and drops out.
fn distance(c: &Strategy, x: &[Vec<f32>], y: &[Vec<f32>]) -> f64 {
    let mut squared = 0.0;
    for i in 0..x.len() {
        for t in 0..DIM {
            let terms = c.row(i).iter().enumerate();
            let moved: f64 =
                terms.map(|(lag, c)| c * f64::from(x[i - lag][t] - y[i - lag][t])).sum();
            squared += moved * moved;
        }
    }
    squared.sqrt()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn one_example_never_moves_the_release_beyond_the_sensitivity(
        targets in prop::collection::vec(-20.0..20.0_f32, EXAMPLES as usize),
        missing in 0..EXAMPLES,
        clip_norm in 0.1..5.0_f64,
        method in prop::sample::select(vec![
            Method::Identity,
            Method::Input,
            Method::SquareRoot,
            Method::Bsr { bands: 4 },
            Method::Bsr { bands: 11 },
            Method::Bisr { bands: 4 },
            Method::LambdaCgd { lambda: None },
            Method::Toeplitz { bands: 4 },
            Method::InverseToeplitz { bands: 4 },
            Method::Blt { buffers: 2 },
            Method::NormalizedSquareRoot { bands: 4 },
        ]),
    ) {
        let plan = plan(method, clip_norm);
        let with = released(&plan, &targets, None, false);
        let without = released(&plan, &targets, Some(missing), false);
        let moved = distance(plan.strategy(), &with, &without);
        let allowed = plan.record().sensitivity.value * clip_norm;
        // Sums carry noise of some ten clip norms, so their f32 rounding shows in the fifth digit.
        prop_assert!(moved <= allowed * (1.0 + 1e-4), "{} {} of {}", method, moved, allowed);
    }
}

#[test]
fn an_aligned_example_in_the_first_batch_moves_it_by_all_of_the_sensitivity() {
    let batches = Batches::new(EXAMPLES, BATCH, RunSeed(1)).unwrap();
    let worst = batches.batch(0)[0];
    let mut targets = vec![0.5; EXAMPLES as usize];
    targets[worst as usize] = -1e6;
    for method in [
        Method::Identity,
        Method::SquareRoot,
        Method::Bsr { bands: 4 },
        Method::Bisr { bands: 4 },
        Method::LambdaCgd { lambda: None },
        Method::Blt { buffers: 2 },
    ] {
        let plan = plan(method, 1.0);
        let with = released(&plan, &targets, None, false);
        let without = released(&plan, &targets, Some(worst), false);
        let ratio = distance(plan.strategy(), &with, &without) / plan.record().sensitivity.value;
        assert!((ratio - 1.0).abs() < 1e-4, "{method}: {ratio}");
    }
}

#[test]
fn training_is_the_same_bits_again_and_an_empty_batch_gets_noise() {
    let plan = plan(Method::Bsr { bands: 4 }, 1.0);
    let targets = vec![1.0; EXAMPLES as usize];
    assert_eq!(released(&plan, &targets, None, true), released(&plan, &targets, None, true));

    let mut mechanism = Mechanism::new(&plan, NoiseKey::fixed(RunSeed(5))).unwrap();
    for step in 0..25 {
        let empty = PerSampleGradients::new(DIM).clip(1.0).unwrap();
        let gradient = mechanism.privatize(empty).unwrap();
        assert_eq!(gradient.step(), step);
        assert!(gradient.values().iter().all(|g| *g != 0.0));
    }
    let one_more = PerSampleGradients::new(DIM).clip(1.0).unwrap();
    let exhausted = MechanismError::Noise(NoiseError::Exhausted { steps: 25 });
    assert_eq!(mechanism.privatize(one_more), Err(exhausted));
}

#[test]
fn a_sum_clipped_to_another_norm_is_refused() {
    let plan = plan(Method::Identity, 1.0);
    let mut mechanism = Mechanism::new(&plan, NoiseKey::from_os().unwrap()).unwrap();
    let sum = PerSampleGradients::new(DIM).clip(1.1).unwrap();
    let refused = MechanismError::ClipNorm { expected: 1.0, found: 1.1 };
    assert_eq!(mechanism.privatize(sum), Err(refused));
    assert_eq!(mechanism.next_step(), 0);
}

#[test]
fn a_mechanism_continues_from_its_checkpoint() {
    let plan = plan(Method::Bsr { bands: 4 }, 1.0);
    let empty = || PerSampleGradients::new(DIM).clip(1.0).unwrap();
    let mut whole = Mechanism::new(&plan, NoiseKey::fixed(RunSeed(6))).unwrap();
    for _ in 0..9 {
        whole.privatize(empty()).unwrap();
    }
    let mut bytes = Vec::new();
    whole.save(&mut bytes).unwrap();
    let mut other = plan.request().clone();
    other.epsilon = 8.0;
    assert!(Mechanism::load(&DpPlan::new(other).unwrap(), &bytes[..]).is_err());
    let mut resumed = Mechanism::load(&plan, &bytes[..]).unwrap();
    for _ in 9..25 {
        assert_eq!(whole.privatize(empty()), resumed.privatize(empty()));
    }
}
