//! Runs of a small model: the recurrence, the ledger, and continuation bit by bit.

mod averages;
mod non_private;

use dp_train::gradient::{ClippedSum, GradientError, PerSampleGradients};
use dp_train::mechanism::MechanismError;
use dp_train::plan::{DpPlan, PlanRequest, StrategyFor};
use dp_train::seal::Seal;
use dp_train::seeds::{NoiseKey, RunSeed};
use dp_train::training::checkpoint::ResumeError;
use dp_train::training::{Training, TrainingError};
use mf_core::{Method, Sgd};

const EXAMPLES: u32 = 23;
const SEED: RunSeed = RunSeed(7);

fn plan(method: Method) -> DpPlan {
    scheduled_plan(method, None, StrategyFor::default())
}

fn scheduled_plan(
    method: Method,
    learning_rates: Option<Vec<f64>>,
    strategy_for: StrategyFor,
) -> DpPlan {
    DpPlan::new(PlanRequest {
        sgd: Sgd::new(0.99, 0.9).unwrap(),
        learning_rates,
        workload_column: None,
        strategy_for,
        method,
        steps: 15,
        min_separation: 5,
        max_participations: Some(3),
        clip_norm: 1.0,
        batch_size: 4,
        epsilon: 4.0,
        delta: 1e-5,
        neighbouring: Default::default(),
        sampling: Default::default(),
        examples: None,
        accountant: Default::default(),
        dim: 6,
        keep_rows: None,
    })
    .unwrap()
}

fn start(method: Method) -> Training {
    let parameters = vec![0.1; 6];
    Training::new(plan(method), parameters, EXAMPLES, 0.05, SEED, NoiseKey::fixed(SEED)).unwrap()
}

/// Least squares towards a point per example.
fn clip(parameters: &[f32], batch: &[u32], sum: &mut ClippedSum) -> Result<(), TrainingError> {
    for &example in batch {
        let target = |i: usize| ((example as usize * 5 + i) % 7) as f32 / 7.0;
        let row: Vec<f32> = parameters.iter().enumerate().map(|(i, x)| x - target(i)).collect();
        sum.add(&row)?;
    }
    Ok(())
}

fn methods() -> [Method; 4] {
    let aof = Method::Aof { bands: 5, tolerance: 1e-4 };
    [Method::Identity, Method::SquareRoot, Method::Bsr { bands: 5 }, aof]
}

#[test]
fn a_run_takes_all_steps_of_its_plan_and_no_more() {
    let mut training = start(Method::Bsr { bands: 5 });
    while !training.is_finished() {
        assert_eq!(training.step(clip).unwrap().examples, 4);
    }
    assert_eq!((training.steps_taken(), training.dropped_examples()), (15, 3));
    let realized = training.ledger().realized();
    assert_eq!((realized.most_uses, realized.least_gap, realized.examples_used), (3, Some(5), 20));
    assert!(matches!(training.step(clip), Err(TrainingError::Violation(_))));
    assert!(training.parameters().iter().all(|x| x.is_finite()));
}

#[test]
fn a_failed_step_ends_the_run() {
    let mut training = start(Method::Identity);
    training.step(clip).unwrap();
    let failed = training.step(|_, _, _| Err(TrainingError::LearningRate { learning_rate: 0.0 }));
    assert!(failed.is_err());
    assert_eq!(training.step(clip), Err(TrainingError::Ended));
}

#[test]
fn a_sum_that_is_not_of_the_plan_or_has_too_many_examples_ends_the_run() {
    let unit = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let refused = |fill: fn(&mut ClippedSum) -> Result<(), TrainingError>| {
        let mut training = start(Method::Bsr { bands: 3 });
        training.step(clip).unwrap();
        let before = training.parameters().to_vec();
        let error = training.step(|_, _, sum| fill(sum)).unwrap_err();
        assert_eq!(training.parameters(), before, "{error}");
        assert_eq!(training.step(clip), Err(TrainingError::Ended));
        error
    };
    let other_norm = refused(|sum| {
        *sum = PerSampleGradients::new(6).clip(2.0)?;
        Ok(())
    });
    assert!(matches!(other_norm, TrainingError::Mechanism(MechanismError::ClipNorm { .. })));
    let other_dim = refused(|sum| {
        *sum = ClippedSum::new(5, 1.0)?;
        Ok(())
    });
    assert!(matches!(other_dim, TrainingError::Mechanism(MechanismError::Noise(_))));
    let too_many = refused(|sum| (0..5).try_for_each(|_| Ok(sum.add(&[0.5; 6])?)));
    assert_eq!(too_many, TrainingError::Examples { batch: 4, found: 5 });
    let merged = refused(|sum| {
        for _ in 0..2 {
            let mut part = ClippedSum::new(6, 1.0)?;
            (0..3).try_for_each(|_| part.add(&[0.5; 6]))?;
            sum.add_sum(part)?;
        }
        Ok(())
    });
    assert_eq!(merged, TrainingError::Examples { batch: 4, found: 6 });
    let short = refused(|sum| Ok(sum.add(&[0.5; 5])?));
    assert!(matches!(short, TrainingError::Gradient(GradientError::Dimension { .. })));
    // The same four examples one by one, in two parts or as a whole batch: the same bits.
    let end = |fill: &dyn Fn(&mut ClippedSum) -> Result<(), TrainingError>| {
        let mut training = start(Method::Bsr { bands: 3 });
        assert_eq!(training.step(|_, _, sum| fill(sum)).unwrap().examples, 4);
        training.parameters().to_vec()
    };
    let one_by_one = end(&|sum| (0..4).try_for_each(|_| Ok(sum.add(&unit)?)));
    let whole = end(&|sum| {
        let mut rows = PerSampleGradients::new(6);
        (0..4).try_for_each(|_| rows.push(&unit))?;
        *sum = rows.clip(1.0)?;
        Ok(())
    });
    let parts = end(&|sum| {
        for _ in 0..2 {
            let mut part = ClippedSum::new(6, 1.0)?;
            (0..2).try_for_each(|_| part.add(&unit))?;
            sum.add_sum(part)?;
        }
        Ok(())
    });
    assert!(one_by_one == whole && whole == parts);
}

#[test]
fn a_continued_run_ends_with_the_same_bits() {
    for method in methods() {
        let mut whole = start(method);
        let mut saved = Vec::new();
        while !whole.is_finished() {
            let mut bytes = Vec::new();
            whole.save(&mut bytes, &Seal::default(), b"note").unwrap();
            saved.push(bytes);
            whole.step(clip).unwrap();
        }
        for (step, bytes) in saved.iter().enumerate() {
            let (mut continued, note) =
                Training::load(plan(method), EXAMPLES, 0.05, SEED, &Seal::default(), &bytes[..])
                    .unwrap();
            assert_eq!((continued.steps_taken(), &note[..]), (step, &b"note"[..]));
            while !continued.is_finished() {
                continued.step(clip).unwrap();
            }
            let bits = |training: &Training| -> Vec<u32> {
                training.parameters().iter().map(|x| x.to_bits()).collect()
            };
            assert_eq!(bits(&continued), bits(&whole), "{method}, continued at step {step}");
            assert_eq!(continued.ledger().realized().continued_at, [step]);
            assert_eq!(continued.ledger().run_id(), whole.ledger().run_id());
        }
    }
}

#[test]
fn a_checkpoint_of_another_run_or_with_any_bit_flipped_is_refused() {
    let mut training = start(Method::Bsr { bands: 5 });
    for _ in 0..6 {
        training.step(clip).unwrap();
    }
    let mut bytes = Vec::new();
    training.save(&mut bytes, &Seal::default(), &[1, 2, 3]).unwrap();
    let load = |plan: DpPlan, examples, rate, seed, bytes: &[u8]| {
        Training::load(plan, examples, rate, seed, &Seal::default(), bytes)
            .map(|(training, _)| training)
    };
    let own = || plan(Method::Bsr { bands: 5 });
    assert!(load(own(), EXAMPLES, 0.05, SEED, &bytes).is_ok());
    assert!(matches!(load(own(), EXAMPLES, 0.06, SEED, &bytes), Err(ResumeError::OtherRun)));
    assert!(matches!(load(own(), EXAMPLES, 0.05, RunSeed(8), &bytes), Err(ResumeError::OtherRun)));
    assert!(matches!(load(own(), 22, 0.05, SEED, &bytes), Err(ResumeError::OtherRun)));
    let other = plan(Method::Bsr { bands: 4 });
    assert!(matches!(load(other, EXAMPLES, 0.05, SEED, &bytes), Err(ResumeError::OtherRun)));
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(load(own(), EXAMPLES, 0.05, SEED, &flipped).is_err(), "byte {at}");
        assert!(load(own(), EXAMPLES, 0.05, SEED, &bytes[..at]).is_err(), "cut after {at}");
    }
}

#[test]
fn data_model_and_rate_must_be_those_of_the_plan() {
    let new = |examples, dim: usize, rate| {
        let key = NoiseKey::fixed(SEED);
        Training::new(plan(Method::Identity), vec![0.0; dim], examples, rate, SEED, key)
            .unwrap_err()
    };
    assert_eq!(new(EXAMPLES, 5, 0.1), TrainingError::Dimension { expected: 6, found: 5 });
    assert_eq!(new(19, 6, 0.1), TrainingError::Separation { planned: 5, found: 4 });
    assert!(matches!(new(3, 6, 0.1), TrainingError::Batches(_)));
    assert!(matches!(new(EXAMPLES, 6, f32::NAN), TrainingError::LearningRate { .. }));
}

fn take(training: &mut Training, steps: usize) {
    for _ in 0..steps {
        training.step(clip).unwrap();
    }
}

/// Falls from 1 to 0.2.
fn falling() -> Vec<f64> {
    (0..15).map(|step| 1.0 - 0.8 * f64::from(step) / 14.0).collect()
}

#[test]
fn a_schedule_scales_the_steps_and_belongs_to_the_checkpoint() {
    for strategy_for in [StrategyFor::ConstantRate, StrategyFor::Schedule] {
        let method = Method::Bsr { bands: 5 };
        let own = || scheduled_plan(method, Some(falling()), strategy_for);
        let new = |plan| {
            let key = NoiseKey::fixed(SEED);
            Training::new(plan, vec![0.1; 6], EXAMPLES, 0.05, SEED, key).unwrap()
        };
        let mut whole = new(own());
        assert_eq!(whole.learning_rate(0), 0.05);
        assert!((whole.learning_rate(14) - 0.01).abs() < 1e-9);
        take(&mut whole, 7);
        let mut bytes = Vec::new();
        whole.save(&mut bytes, &Seal::default(), b"").unwrap();
        take(&mut whole, 8);
        let (mut continued, _) =
            Training::load(own(), EXAMPLES, 0.05, SEED, &Seal::default(), &bytes[..]).unwrap();
        take(&mut continued, 8);
        assert_eq!(continued.parameters(), whole.parameters());
        // The last rate is another one in the last digit; privacy is the same, the run is not.
        let mut other = falling();
        other[14] = other[14].next_up();
        for rates in [None, Some(other)] {
            let other = scheduled_plan(method, rates, strategy_for);
            assert!(
                Training::load(other, EXAMPLES, 0.05, SEED, &Seal::default(), &bytes[..]).is_err()
            );
        }
    }
}
