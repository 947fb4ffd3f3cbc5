//! The attack on the last bits: which f32 values can this sum give?
//!
//! If a row of noise is a grid of f32 numbers, then sum + noise is a shifted grid, and a released number that is not on
//! the grid of a hypothesis refutes it. One step was enough to tell neighbours apart with certainty: no coordinate of
//! 20,000 was off the grid of the true sum, more than 2,000 were off that of the other. The attack here looks for the
//! f32 row that explains each released number, under the true sum and under its neighbour's, and must fail equally
//! often for both.
//!
//! The two counts are binomial with a share of about an eighth; their difference has a standard deviation below 100.
//! A limit of 600 has a false-alarm rate below 1e-8, and the seeds are fixed.

use dp_train::gradient::PerSampleGradients;
use dp_train::mechanism::Mechanism;
use dp_train::plan::{DpPlan, PlanRequest, StrategyFor};
use dp_train::seeds::{NoiseKey, RunSeed};
use dp_train::update::Momentum;
use mf_core::{Method, Sgd};

const DIM: usize = 20_000;
const STEPS: usize = 4;
const LIMIT: usize = 600;
const RATE: f32 = 0.7;

fn plan(method: Method, batch_size: usize) -> DpPlan {
    DpPlan::new(PlanRequest {
        sgd: Sgd::new(0.999, 0.9).unwrap(),
        learning_rates: None,
        workload_column: None,
        strategy_for: StrategyFor::ConstantRate,
        method,
        steps: STEPS,
        min_separation: 2,
        max_participations: None,
        clip_norm: 1.0,
        batch_size,
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

/// The entry of a clipped gradient whose coordinates are all equal.
fn entry() -> f64 {
    1.0 / (DIM as f64).sqrt()
}

/// A float by its place in the order of all floats, from `-MAX` to `MAX`.
fn at(place: i64) -> f32 {
    if place >= 0 { f32::from_bits(place as u32) } else { -f32::from_bits((-place) as u32) }
}

/// Whether a float `y` exists with `f(y) = value`, for a rising `f`.
fn is_reached(value: f32, f: impl Fn(f32) -> f32) -> bool {
    let last = i64::from(f32::MAX.to_bits());
    let (mut low, mut high) = (-last, last);
    while low < high {
        let middle = (low + high).div_euclid(2);
        if f(at(middle)) < value { low = middle + 1 } else { high = middle }
    }
    f(at(low)) == value
}

/// How the mechanism might have gone from a row of f32 noise to a released number: all in f64, or by an f32 sum.
fn releases(sum: f64, std: f64, batch_size: usize) -> [Box<dyn Fn(f32) -> f32>; 2] {
    let size = batch_size as f64;
    [
        Box::new(move |y| ((sum + std * f64::from(y)) / size) as f32),
        Box::new(move |y| ((f64::from(sum as f32) + std * f64::from(y)) as f32) / size as f32),
    ]
}

/// Released numbers that no row explains, under both hypotheses, for each way of releasing.
fn unexplained(values: &[f32], std: f64, batch_size: usize) -> [[usize; 2]; 2] {
    let sums = [entry(), 0.0];
    [0, 1].map(|way| {
        sums.map(|sum| {
            let release = &releases(sum, std, batch_size)[way];
            values.iter().filter(|value| !is_reached(**value, release)).count()
        })
    })
}

fn check(counts: [[usize; 2]; 2], what: &str) {
    for [present, absent] in counts {
        println!("{what}: {present} and {absent} of {DIM} not explained");
        assert!(present.abs_diff(absent) < LIMIT, "{what}: {present} with it, {absent} without");
    }
}

#[test]
fn released_sums_do_not_show_the_grid_of_their_hypothesis() {
    for method in [
        Method::Identity,
        Method::Bsr { bands: 2 },
        Method::SquareRoot,
        Method::Bisr { bands: 2 },
        Method::LambdaCgd { lambda: Some(0.5) },
        Method::Blt { buffers: 2 },
    ] {
        for batch_size in [1, 250, 256, 500] {
            let plan = plan(method, batch_size);
            let key = NoiseKey::fixed(RunSeed(batch_size as u64));
            let mut mechanism = Mechanism::new(&plan, key).unwrap();
            for step in 0..STEPS {
                let mut gradients = PerSampleGradients::new(DIM);
                gradients.push(&vec![1.0; DIM]).unwrap();
                let gradient = mechanism.privatize(gradients.clip(1.0).unwrap()).unwrap();
                let counts = unexplained(gradient.values(), plan.noise_std(), batch_size);
                check(counts, &format!("{method}, batch size {batch_size}, step {step}"));
            }
        }
    }
}

#[test]
fn the_model_after_one_step_does_not_show_it_either() {
    for method in [Method::Identity, Method::Bsr { bands: 2 }, Method::Bisr { bands: 2 }] {
        let plan = plan(method, 500);
        let mut mechanism = Mechanism::new(&plan, NoiseKey::fixed(RunSeed(7))).unwrap();
        let mut gradients = PerSampleGradients::new(DIM);
        gradients.push(&vec![1.0; DIM]).unwrap();
        let gradient = mechanism.privatize(gradients.clip(1.0).unwrap()).unwrap();
        let mut model = vec![0.0_f32; DIM];
        Momentum::new(plan.request().sgd, DIM).step(&mut model, gradient, RATE);
        // Zero weights do not decay: the model is minus the rate times the gradient.
        let counts = [0, 1].map(|way| {
            [entry(), 0.0].map(|sum| {
                let release = &releases(sum, plan.noise_std(), 500)[way];
                let moved = |y: f32| RATE * release(y);
                model.iter().filter(|weight| !is_reached(-**weight, moved)).count()
            })
        });
        check(counts, &format!("the model after one step of {method}"));
    }
}

/// Near zero f32 is finer than the f64 that sums lie on, so a small released number could only come from sums whose
/// grid it is on. What is released is on one grid for all sums.
#[test]
fn small_released_numbers_are_on_the_grid_of_the_plan() {
    for method in [Method::Identity, Method::Bsr { bands: 2 }, Method::Bisr { bands: 2 }] {
        let plan = plan(method, 256);
        let grid = plan.noise_std().log2().floor().exp2() / f64::from(1 << 30);
        let mut mechanism = Mechanism::new(&plan, NoiseKey::fixed(RunSeed(3))).unwrap();
        let mut small = 0;
        for _ in 0..STEPS {
            let mut gradients = PerSampleGradients::new(DIM);
            gradients.push(&vec![1.0; DIM]).unwrap();
            let gradient = mechanism.privatize(gradients.clip(1.0).unwrap()).unwrap();
            for value in gradient.values() {
                let multiple = 256.0 * f64::from(*value) / grid;
                // Below 2^24 multiples f32 holds each of them.
                if multiple.abs() < f64::from(1 << 24) {
                    assert_eq!(multiple, multiple.round(), "{method}: {value:e}");
                    small += 1;
                }
            }
        }
        assert!(small > 100, "{small}");
    }
}
