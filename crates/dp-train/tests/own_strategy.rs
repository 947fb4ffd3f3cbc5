//! Strategies and workloads of one's own: planned, run, certified and verified like any other, and refused where
//! the noise would not be what the plan says.

use dp_train::batches::Batches;
use dp_train::ledger::Ledger;
use dp_train::mf_core::{
    Buffer, Error, LowerTriangular, Method, Participation, Sgd, Strategy, StrategyRecord,
};
use dp_train::plan::PlanError;
use dp_train::seeds::KeyOrigin;
use dp_train::{
    Budget, Certificate, Clipping, Disclosure, DpPlan, Neighbouring, NoiseKey, PlanRequest,
    RunSeed, StrategyFor, Training, TrainingError, verify,
};

const STEPS: usize = 40;

fn request(method: Method) -> PlanRequest {
    PlanRequest::new(
        method,
        Sgd::new(0.999, 0.9).unwrap(),
        Participation::epochs(4, 10).unwrap(),
        Budget { epsilon: 4.0, delta: 1e-5 },
        Clipping { batch_size: 5, clip_norm: 2.0 },
        7,
    )
}

/// Strategies without any order: zeros, negative entries, more bands than the separation, none Toeplitz.
fn strategies() -> Vec<Strategy> {
    let irregular = |i: usize, j: usize| match i - j {
        0 => 1.0 + (i % 3) as f64 / 4.0,
        lag if lag % 4 == 0 => 0.0,
        lag => ((i * 7 + j * 5) % 11) as f64 / (20.0 * lag as f64) - 0.1 / lag as f64,
    };
    vec![
        Strategy::toeplitz(STEPS, vec![1.0, 0.5, 0.25]).unwrap(),
        Strategy::toeplitz(STEPS, vec![1.0, -0.5, 0.0, 0.3]).unwrap(),
        Strategy::toeplitz(
            STEPS,
            (0..30).map(|j| 0.9_f64.powi(j) * [1.0, -0.2, 0.1][j as usize % 3]).collect(),
        )
        .unwrap(),
        Strategy::inverse_toeplitz(STEPS, vec![1.0, -0.5, 0.2]).unwrap(),
        Strategy::buffered(STEPS, vec![Buffer { weight: 0.2, decay: 0.9 }]).unwrap(),
        Strategy::dense(&LowerTriangular::from_fn(STEPS, irregular).unwrap()).unwrap(),
    ]
}

fn certificate(plan: &DpPlan) -> Certificate {
    let batches = Batches::new(52, 5, RunSeed(1)).unwrap();
    let mut ledger = Ledger::new(plan.participation(), 52).unwrap();
    for step in 0..STEPS {
        ledger.record(step, &batches.batch(step)).unwrap();
    }
    Certificate::new(plan, KeyOrigin::OperatingSystem, &ledger, Disclosure::default())
}

#[test]
fn any_strategy_is_planned_written_read_and_verified() {
    for strategy in strategies() {
        let plan = DpPlan::with_strategy(request(Method::Own), strategy.clone()).unwrap();
        let text = serde_json::to_string(&plan).unwrap();
        let read: DpPlan = serde_json::from_str(&text).unwrap();
        assert_eq!((&read, read.strategy()), (&plan, &strategy));
        let file = serde_json::to_string(&certificate(&plan)).unwrap();
        let verdict = verify(&serde_json::from_str(&file).unwrap());
        assert!(verdict.is_private(), "{verdict}");
        assert!((verdict.epsilon.unwrap() / 4.0 - 1.0).abs() < 1e-6, "{verdict}");
    }
}

#[test]
fn an_own_strategy_that_a_method_also_gives_has_the_numbers_of_the_method() {
    for method in [Method::Bsr { bands: 6 }, Method::Bisr { bands: 4 }, Method::Identity] {
        let known = request(method).plan().unwrap();
        let own = DpPlan::with_strategy(request(Method::Own), known.strategy().clone()).unwrap();
        assert_eq!(own.noise_std(), known.noise_std());
        assert_eq!(own.record().sensitivity, known.record().sensitivity);
        assert_eq!(own.record().loss, known.record().loss);
        assert_eq!(known.record().strategy, None);
    }
}

#[test]
fn altered_strategies_and_plans_are_refused() {
    for strategy in strategies() {
        let plan = DpPlan::with_strategy(request(Method::Own), strategy).unwrap();
        let good = certificate(&plan);
        let refused = |change: &dyn Fn(&mut Certificate)| {
            let mut altered = good.clone();
            change(&mut altered);
            assert!(!verify(&altered).holds());
            if altered.plan != good.plan {
                assert!(DpPlan::try_from(altered.plan).is_err());
            }
        };
        refused(&|c| c.plan.strategy = None);
        refused(&|c| c.plan.noise_std *= 0.999);
        refused(&|c| c.plan.sensitivity.value *= 0.999);
        refused(&|c| c.plan.request.method = Method::Identity);
        refused(&|c| c.toeplitz = c.plan.strategy.clone());
        refused(&|c| match c.plan.strategy.as_mut().unwrap() {
            StrategyRecord::Toeplitz { coefficients }
            | StrategyRecord::Inverse { coefficients } => {
                coefficients[1] *= 1.001;
            }
            StrategyRecord::Buffered { buffers } => buffers[0].weight *= 1.001,
            StrategyRecord::Rows { rows } => rows[STEPS - 1][1] += 0.001,
        });
        refused(&|c| match c.plan.strategy.as_mut().unwrap() {
            StrategyRecord::Toeplitz { coefficients }
            | StrategyRecord::Inverse { coefficients } => {
                coefficients[1] = f64::NAN;
            }
            StrategyRecord::Buffered { buffers } => buffers[0].weight = f64::NAN,
            StrategyRecord::Rows { rows } => rows[STEPS - 1][1] = f64::NAN,
        });
    }
    // A strategy beside a method that has a formula says nothing.
    let mut forged = certificate(&request(Method::Identity).plan().unwrap());
    forged.plan.strategy = Some(StrategyRecord::Toeplitz { coefficients: vec![1.0] });
    assert!(!verify(&forged).holds());
    assert!(DpPlan::try_from(forged.plan).is_err());
}

#[test]
fn what_has_no_plan_is_refused_with_its_reason() {
    let own = |strategy| DpPlan::with_strategy(request(Method::Own), strategy);
    let short = own(Strategy::identity(STEPS - 1).unwrap());
    assert!(matches!(short, Err(PlanError::Factorization(Error::SizeMismatch { .. }))));
    let known =
        DpPlan::with_strategy(request(Method::Identity), Strategy::identity(STEPS).unwrap());
    assert_eq!(known, Err(PlanError::NotOwn { method: "identity" }));
    let none = request(Method::Own).plan();
    assert_eq!(none, Err(PlanError::Factorization(Error::OwnStrategy)));
    // The inverse of (1, 3) grows by 3 in every step: f32 rows of noise would say nothing of Z.
    let unstable = own(Strategy::toeplitz(STEPS, vec![1.0, 3.0]).unwrap());
    assert!(matches!(unstable, Err(PlanError::Growth { growth }) if growth > 1e10));
    let hidden = |i: usize, j: usize| match i - j {
        0 => 1.0,
        1 if i > STEPS / 2 => 2.5,
        _ => 0.0,
    };
    let hidden = Strategy::dense(&LowerTriangular::from_fn(STEPS, hidden).unwrap()).unwrap();
    assert!(matches!(own(hidden), Err(PlanError::Growth { .. })));
    let tiny = own(Strategy::toeplitz(STEPS, vec![1e-120]).unwrap());
    assert!(matches!(tiny, Err(PlanError::Sensitivity { .. })));
    let huge = own(Strategy::toeplitz(STEPS, vec![1e200]).unwrap());
    assert!(matches!(huge, Err(PlanError::Sensitivity { .. })));
    let nothing = PlanRequest { dim: 0, ..request(Method::Own) };
    assert_eq!(
        DpPlan::with_strategy(nothing, Strategy::identity(STEPS).unwrap()),
        Err(PlanError::Empty)
    );
}

#[test]
fn privacy_does_not_depend_on_the_workload() {
    let ramp: Vec<f64> = (0..STEPS).map(|j| (j + 1).min(6) as f64 / 6.0).collect();
    for strategy in strategies() {
        let plain = DpPlan::with_strategy(request(Method::Own), strategy.clone()).unwrap();
        let own = request(Method::Own).with_workload(ramp.clone());
        let own = DpPlan::with_strategy(own, strategy).unwrap();
        assert_eq!(own.noise_std(), plain.noise_std());
        assert_eq!(own.record().sensitivity, plain.record().sensitivity);
        assert_ne!(own.record().loss, plain.record().loss);
    }
}

#[test]
fn own_workloads_are_planned_and_verified_by_every_method_that_takes_a_column() {
    let ramp: Vec<f64> = (0..STEPS).map(|j| (j + 1).min(6) as f64 / 6.0).collect();
    for method in [
        Method::Identity,
        Method::Input,
        Method::SquareRoot,
        Method::Bsr { bands: 6 },
        Method::Bisr { bands: 4 },
        Method::LambdaCgd { lambda: None },
        Method::LambdaCgd { lambda: Some(0.5) },
        Method::Toeplitz { bands: 5 },
        Method::InverseToeplitz { bands: 3 },
        Method::NormalizedSquareRoot { bands: 6 },
    ] {
        let plan = request(method).with_workload(ramp.clone()).plan().unwrap();
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<DpPlan>(&text).unwrap(), plan);
        let good = certificate(&plan);
        assert!(verify(&good).is_private(), "{method:?}: {}", verify(&good));
        let mut altered = good.clone();
        altered.plan.request.workload_column.as_mut().unwrap()[1] += 0.01;
        assert!(!verify(&altered).holds(), "{method:?}");
    }
    for method in [Method::Blt { buffers: 2 }, Method::Aof { bands: 4, tolerance: 1e-3 }] {
        let refused = request(method).with_workload(ramp.clone()).plan();
        let name = method.name();
        assert_eq!(refused, Err(PlanError::Factorization(Error::NotSgd { method: name })));
    }
    let bad =
        |column: Vec<f64>| request(Method::Identity).with_workload(column).plan().unwrap_err();
    assert_eq!(bad(vec![1.0; 39]), PlanError::Column { expected: 40, found: 39 });
    assert_eq!(bad(vec![0.0; 40]), PlanError::Factorization(Error::ZeroDiagonal));
    assert!(matches!(bad(vec![f64::NAN; 40]), PlanError::Factorization(Error::NotFinite { .. })));
    let both = PlanRequest {
        learning_rates: Some(vec![1.0; 40]),
        ..request(Method::Identity).with_workload(ramp)
    };
    assert_eq!(both.plan(), Err(PlanError::TwoWorkloads));
}

#[test]
fn requests_without_a_column_are_written_as_they_always_were() {
    let text = serde_json::to_string(&request(Method::Bsr { bands: 6 })).unwrap();
    let expected = concat!(
        r#"{"sgd":{"decay_factor":0.999,"momentum":0.9},"learning_rates":null,"#,
        r#""strategy_for":"constant_rate","method":{"name":"bsr","bands":6},"steps":40,"#,
        r#""min_separation":10,"max_participations":4,"clip_norm":2.0,"batch_size":5,"#,
        r#""epsilon":4.0,"delta":0.00001,"neighbouring":"zero_out","dim":7}"#
    );
    assert_eq!(text, expected);
}

#[test]
fn what_a_request_leaves_out_can_be_set() {
    let rates = vec![0.5; STEPS];
    let set = request(Method::Bisr { bands: 4 })
        .with_learning_rates(rates.clone(), StrategyFor::ConstantRate)
        .with_neighbouring(Neighbouring::ReplaceOne)
        .with_kept_rows(2);
    let by_fields = PlanRequest {
        learning_rates: Some(rates),
        neighbouring: Neighbouring::ReplaceOne,
        sampling: Default::default(),
        examples: None,
        accountant: Default::default(),
        keep_rows: Some(2),
        ..request(Method::Bisr { bands: 4 })
    };
    assert_eq!(set, by_fields);
    let plain = request(Method::Bisr { bands: 4 }).plan().unwrap();
    let plan = set.plan().unwrap();
    assert!((plan.noise_std() / plain.noise_std() - 2.0).abs() < 1e-12, "replace-one is twice");
    assert_eq!(plan.record().history_rows(), 2);
}

#[test]
fn a_run_with_an_own_strategy_trains_is_resumed_and_certified() {
    let plan = || {
        let strategy = strategies().pop().unwrap();
        DpPlan::with_strategy(request(Method::Own), strategy).unwrap()
    };
    let fill = |parameters: &[f32], batch: &[u32], sum: &mut dp_train::ClippedSum| {
        for &example in batch {
            let row: Vec<f32> = parameters.iter().map(|x| x - example as f32 / 52.0).collect();
            sum.add(&row)?;
        }
        Ok::<(), TrainingError>(())
    };
    let (seed, seal) = (RunSeed(3), dp_train::seal::Seal::default());
    let key = NoiseKey::fixed(seed);
    let mut whole = Training::new(plan(), vec![0.0; 7], 52, 0.05, seed, key).unwrap();
    let mut saved = Vec::new();
    for step in 0..STEPS {
        if step == 23 {
            whole.save(&mut saved, &seal, b"").unwrap();
        }
        whole.step(fill).unwrap();
    }
    let (mut resumed, _) = Training::load(plan(), 52, 0.05, seed, &seal, &saved[..]).unwrap();
    while !resumed.is_finished() {
        resumed.step(fill).unwrap();
    }
    assert_eq!(resumed.parameters(), whole.parameters());
    let verdict = verify(&Certificate::of(&whole, Disclosure::default()));
    assert!(verdict.holds() && !verdict.is_private(), "the seed is fixed: {verdict}");
    let other = DpPlan::with_strategy(request(Method::Own), strategies().swap_remove(0)).unwrap();
    assert!(Training::load(other, 52, 0.05, seed, &seal, &saved[..]).is_err());
}

/// With `C = [1, 3]` a rounding of a row comes back three times as large in the next one: after forty steps nothing is
/// left of the Gaussian, whichever way the strategy came in. A review told 40 of 200,000 releases from none with it.
#[test]
fn noise_that_rounding_would_swallow_is_refused_whatever_the_method() {
    let column: Vec<f64> = [1.0, 3.0].into_iter().chain(vec![0.0; STEPS - 2]).collect();
    let unstable = |error: &PlanError| matches!(error, PlanError::Growth { .. });
    let own = Strategy::toeplitz(STEPS, vec![1.0, 3.0]).unwrap();
    assert!(unstable(&DpPlan::with_strategy(request(Method::Own), own).unwrap_err()));
    for method in
        [Method::Input, Method::Bsr { bands: 20 }, Method::NormalizedSquareRoot { bands: 20 }]
    {
        let error = request(method).with_workload(column.clone()).plan().unwrap_err();
        assert!(unstable(&error), "{method}: {error}");
    }
    // Rates that rise by nine orders of magnitude do the same to C = A; a constant rate leaves nothing to refuse.
    let rates: Vec<f64> = (0..STEPS).map(|i| 10_f64.powf(9.0 * (i as f64 / 39.0 - 1.0))).collect();
    let rising = |strategy_for| {
        request(Method::Input).with_learning_rates(rates.clone(), strategy_for).plan()
    };
    assert!(matches!(
        rising(StrategyFor::Schedule),
        Err(PlanError::Growth { .. } | PlanError::Scale { .. })
    ));
    assert!(rising(StrategyFor::ConstantRate).is_ok());
    // A certificate with such a strategy in it, under the name of a method that makes none.
    let fitted = request(Method::Toeplitz { bands: 2 }).plan().unwrap();
    let mut forged = serde_json::to_value(certificate(&fitted)).unwrap();
    let coefficients =
        forged.pointer_mut("/toeplitz/coefficients").expect("fitted coefficients are in the file");
    *coefficients = serde_json::json!([1.0, 3.0]);
    let forged: Certificate = serde_json::from_value(forged).unwrap();
    assert!(!verify(&forged).holds());
}

/// `C` and `s C` are the same mechanism, but not in the arithmetic that makes the noise.
#[test]
fn strategies_of_another_scale_are_refused_before_their_noise_is_lost() {
    for scale in [1e-60, 1e-12, 1e9, 1e60] {
        let strategy = Strategy::toeplitz(STEPS, vec![scale, scale / 2.0]).unwrap();
        let error = DpPlan::with_strategy(request(Method::Own), strategy).unwrap_err();
        assert!(matches!(error, PlanError::Scale { .. }), "{scale}: {error}");
        assert!(error.to_string().contains("divide the strategy"), "{error}");
    }
    for scale in [1e-3, 1e3] {
        let strategy = Strategy::toeplitz(STEPS, vec![scale, scale / 2.0]).unwrap();
        let plan = DpPlan::with_strategy(request(Method::Own), strategy).unwrap();
        assert!(verify(&certificate(&plan)).holds());
    }
    assert!(matches!(Strategy::buffered(STEPS, vec![]), Err(Error::Buffers { buffers: 0, .. })));
    let huge = request(Method::Bsr { bands: 4 }).with_workload(vec![1e200; STEPS]);
    assert!(huge.plan().is_err(), "its expected error is not finite");
    let large = PlanRequest { steps: 1 << 62, ..request(Method::Identity) };
    assert!(matches!(large.plan(), Err(PlanError::TooLarge { .. })));
}

/// With other momentum the steps after a checkpoint have other gradients under the same noise: the difference of two
/// releases would show the data.
#[test]
fn a_checkpoint_goes_on_with_the_plan_that_it_began_with_and_with_nothing_behind_it() {
    let plan = |momentum: f64| {
        let request = PlanRequest { sgd: Sgd::new(1.0, momentum).unwrap(), ..request(Method::Own) };
        DpPlan::with_strategy(request, Strategy::toeplitz(STEPS, vec![1.0, 0.5]).unwrap()).unwrap()
    };
    let (seed, seal) = (RunSeed(3), dp_train::seal::Seal::default());
    let key = NoiseKey::fixed(seed);
    let mut training = Training::new(plan(0.9), vec![0.0; 7], 52, 0.05, seed, key).unwrap();
    training.step(|_, _, _| Ok::<(), TrainingError>(())).unwrap();
    let mut saved = Vec::new();
    training.save(&mut saved, &seal, b"").unwrap();
    let load =
        |plan: DpPlan, bytes: &[u8]| Training::load(plan, 52, 0.05, seed, &seal, bytes).map(drop);
    load(plan(0.9), &saved).unwrap();
    let refusal = load(plan(0.0), &saved).unwrap_err();
    assert!(refusal.to_string().contains("another plan"), "{refusal}");
    let kept =
        PlanRequest { workload_column: Some(vec![1.0; STEPS]), ..plan(0.9).request().clone() };
    let strategy = Strategy::toeplitz(STEPS, vec![1.0, 0.5]).unwrap();
    assert!(load(DpPlan::with_strategy(kept, strategy).unwrap(), &saved).is_err());
    saved.push(0);
    assert!(load(plan(0.9), &saved).is_err());
}
