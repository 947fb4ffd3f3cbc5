//! Runs of a small model: the recurrence, the ledger, and continuation bit by bit.

use dp_train::gradient::{ClippedSum, GradientError, NonPrivateGradient, PerSampleGradients};
use dp_train::mechanism::MechanismError;
use dp_train::plan::{DpPlan, PlanRequest, StrategyFor};
use dp_train::seal::Seal;
use dp_train::seeds::{NoiseKey, RunSeed};
use dp_train::training::average::{Average, AverageError};
use dp_train::training::checkpoint::ResumeError;
use dp_train::training::non_private::{NonPrivateRequest, NonPrivateTraining};
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

fn non_private_request(factors: Option<Vec<f64>>) -> NonPrivateRequest {
    let sgd = Sgd::new(0.99, 0.9).unwrap();
    NonPrivateRequest { sgd, learning_rate: 0.05, factors, steps: 15, batch_size: 4, dim: 6 }
}

fn mean(parameters: &[f32], batch: &[u32]) -> Result<NonPrivateGradient, TrainingError> {
    let mut sum = ClippedSum::new(parameters.len(), 1.0)?;
    clip(parameters, batch, &mut sum)?;
    Ok(NonPrivateGradient::mean_of_clipped(sum, batch.len()))
}

#[test]
fn a_run_without_privacy_is_a_private_one_without_the_noise() {
    // With a huge epsilon and a clip norm that nothing reaches, almost no noise is left.
    let mut request = plan(Method::Identity).request().clone();
    (request.epsilon, request.learning_rates) = (1e12, Some(falling()));
    let quiet = DpPlan::new(request).unwrap();
    let noise = quiet.noise_std();
    assert!(noise < 1e-5, "{noise}");
    let key = NoiseKey::fixed(SEED);
    let mut private = Training::new(quiet, vec![0.1; 6], EXAMPLES, 0.05, SEED, key).unwrap();
    let mut bare =
        NonPrivateTraining::new(non_private_request(Some(falling())), vec![0.1; 6], EXAMPLES, SEED)
            .unwrap();
    while !bare.is_finished() {
        private.step(clip).unwrap();
        bare.step(mean).unwrap();
        for (x, y) in private.parameters().iter().zip(bare.parameters()) {
            assert!((x - y).abs() < 1e-4, "{x} and {y}");
        }
    }
    assert_eq!(bare.step(mean), Err(TrainingError::Ended));
}

#[test]
fn a_run_without_privacy_continues_bit_by_bit_and_refuses_what_is_not_its_own() {
    let new = || {
        NonPrivateTraining::new(non_private_request(None), vec![0.1; 6], EXAMPLES, SEED).unwrap()
    };
    let mut whole = new();
    let mut saved = Vec::new();
    while !whole.is_finished() {
        let mut bytes = Vec::new();
        whole.save(&mut bytes, &Seal::default(), b"note").unwrap();
        saved.push(bytes);
        whole.step(mean).unwrap();
    }
    for (step, bytes) in saved.iter().enumerate() {
        let (mut continued, note) = NonPrivateTraining::load(
            non_private_request(None),
            EXAMPLES,
            SEED,
            &Seal::default(),
            &bytes[..],
        )
        .unwrap();
        assert_eq!((continued.steps_taken(), &note[..]), (step, &b"note"[..]));
        while !continued.is_finished() {
            continued.step(mean).unwrap();
        }
        assert_eq!(continued.parameters(), whole.parameters());
    }
    let bytes = &saved[6];
    let load = |request, examples, seed, bytes: &[u8]| {
        NonPrivateTraining::load(request, examples, seed, &Seal::default(), bytes).map(|_| ())
    };
    let other = |change: fn(&mut NonPrivateRequest)| {
        let mut request = non_private_request(None);
        change(&mut request);
        assert!(matches!(load(request, EXAMPLES, SEED, bytes), Err(ResumeError::OtherRun)));
    };
    other(|request| request.learning_rate = 0.06);
    other(|request| request.factors = Some(falling()));
    other(|request| request.steps = 16);
    other(|request| request.batch_size = 5);
    other(|request| request.dim = 5);
    other(|request| request.sgd = Sgd::new(0.98, 0.9).unwrap());
    assert!(load(non_private_request(None), 22, SEED, bytes).is_err());
    assert!(load(non_private_request(None), EXAMPLES, RunSeed(8), bytes).is_err());
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(load(non_private_request(None), EXAMPLES, SEED, &flipped).is_err(), "byte {at}");
        assert!(
            load(non_private_request(None), EXAMPLES, SEED, &bytes[..at]).is_err(),
            "cut after {at}"
        );
    }
    // Neither kind of checkpoint is taken for the other.
    let mut private = Vec::new();
    start(Method::Identity).save(&mut private, &Seal::default(), b"").unwrap();
    assert!(matches!(
        load(non_private_request(None), EXAMPLES, SEED, &private),
        Err(ResumeError::Version)
    ));
    let loaded =
        Training::load(plan(Method::Identity), EXAMPLES, 0.05, SEED, &Seal::default(), &bytes[..]);
    assert!(matches!(loaded, Err(ResumeError::Version)));
}

fn averages() -> [Average; 3] {
    [Average::Ema { decay: 0.7 }, Average::Tail { from: 0.5 }, Average::Tail { from: 0.95 }]
}

fn bits(parameters: Option<Vec<f32>>) -> Option<Vec<u32>> {
    parameters.map(|parameters| parameters.iter().map(|x| x.to_bits()).collect())
}

#[test]
fn an_average_is_that_of_the_iterates_and_the_iterates_do_not_know_of_it() {
    let method = Method::Bsr { bands: 5 };
    for average in averages() {
        let (mut plain, mut averaged) = (start(method), start(method));
        averaged = averaged.with_average(average).unwrap();
        let mut iterates: Vec<Vec<f32>> = Vec::new();
        while !plain.is_finished() {
            plain.step(clip).unwrap();
            averaged.step(clip).unwrap();
            assert_eq!(plain.parameters(), averaged.parameters());
            iterates.push(plain.parameters().to_vec());
            assert_eq!(plain.average(), None);
        }
        // Of 15 steps, a half leaves out the first 7, and 0.95 of them the first 14.
        let weight = |s: usize| match average {
            Average::Ema { decay } => decay.powi(15 - s as i32),
            Average::Tail { from } => f64::from(s as f64 > (from * 15.0).floor()),
        };
        let weights: f64 = (1..=15).map(weight).sum();
        for (i, found) in averaged.average().unwrap().into_iter().enumerate() {
            let sum: f64 = (1..=15).map(|s| weight(s) * f64::from(iterates[s - 1][i])).sum();
            assert!((f64::from(found) - sum / weights).abs() < 1e-6, "{average:?}");
        }
    }
}

#[test]
fn a_continued_average_ends_with_the_same_bits() {
    let method = Method::Bsr { bands: 5 };
    for average in averages() {
        let mut whole = start(method).with_average(average).unwrap();
        let mut open =
            NonPrivateTraining::new(non_private_request(None), vec![0.1; 6], EXAMPLES, SEED)
                .and_then(|open| open.with_average(average))
                .unwrap();
        let mut saved = Vec::new();
        while !whole.is_finished() {
            let (mut private, mut bare) = (Vec::new(), Vec::new());
            whole.save(&mut private, &Seal::default(), b"").unwrap();
            open.save(&mut bare, &Seal::default(), b"").unwrap();
            saved.push((private, bare, bits(whole.average())));
            whole.step(clip).unwrap();
            open.step(mean).unwrap();
        }
        for (private, bare, so_far) in saved {
            let seal = Seal::default();
            let (mut continued, _) =
                Training::load(plan(method), EXAMPLES, 0.05, SEED, &seal, &private[..]).unwrap();
            assert_eq!(bits(continued.average()), so_far);
            while !continued.is_finished() {
                continued.step(clip).unwrap();
            }
            assert_eq!(bits(continued.average()), bits(whole.average()), "{average:?}");
            let request = non_private_request(None);
            let (mut continued, _) =
                NonPrivateTraining::load(request, EXAMPLES, SEED, &seal, &bare[..]).unwrap();
            while !continued.is_finished() {
                continued.step(mean).unwrap();
            }
            assert_eq!(bits(continued.average()), bits(open.average()), "{average:?}");
        }
    }
}

#[test]
fn an_average_begins_with_the_run_and_its_checkpoint_is_whole_or_refused() {
    let method = Method::Bsr { bands: 5 };
    let mut training = start(method).with_average(Average::Ema { decay: 0.9 }).unwrap();
    take(&mut training, 6);
    let mut bytes = Vec::new();
    training.save(&mut bytes, &Seal::default(), b"").unwrap();
    let load = |bytes: &[u8]| {
        Training::load(plan(method), EXAMPLES, 0.05, SEED, &Seal::default(), bytes).map(|_| ())
    };
    assert!(load(&bytes).is_ok());
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(load(&flipped).is_err(), "byte {at}");
        assert!(load(&bytes[..at]).is_err(), "cut after {at}");
    }
    let late = training.with_average(Average::Tail { from: 0.5 }).unwrap_err();
    assert_eq!(late, TrainingError::Average(AverageError::Begun { taken: 6 }));
    let wrong = start(method).with_average(Average::Ema { decay: 1.0 }).unwrap_err();
    assert_eq!(wrong, TrainingError::Average(AverageError::Decay { decay: 1.0 }));
    let old = bytes.iter().copied().zip(0..).map(|(byte, at)| if at == 14 { b'4' } else { byte });
    assert!(matches!(load(&old.collect::<Vec<_>>()), Err(ResumeError::Version)));
}
