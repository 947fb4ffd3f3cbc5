//! Plans, comparisons and certificates.

use dp_train::batches::Batches;
use dp_train::calibration::Neighbouring;
use dp_train::certificate::{Certificate, Disclosure, Exposure, Metric};
use dp_train::comparison::{Comparison, usual_methods};
use dp_train::ledger::Ledger;
use dp_train::plan::{DpPlan, PlanError, PlanRequest, Sampling, StrategyFor};
use dp_train::seeds::{KeyOrigin, RunSeed};
use dp_train::verification::verify;
use mf_core::{Factorization, Method, Participation, Sgd, StrategyRecord};

/// One lie in a certificate.
type Alteration = fn(&mut Certificate);

fn request(method: Method) -> PlanRequest {
    PlanRequest {
        sgd: Sgd::new(0.999, 0.9).unwrap(),
        learning_rates: None,
        workload_column: None,
        strategy_for: StrategyFor::ConstantRate,
        method,
        steps: 60,
        min_separation: 12,
        max_participations: None,
        clip_norm: 1.5,
        batch_size: 8,
        epsilon: 4.0,
        delta: 1e-5,
        neighbouring: Neighbouring::ZeroOut,
        sampling: Default::default(),
        examples: None,
        accountant: Default::default(),
        dim: 1000,
        keep_rows: None,
    }
}

fn cosine(steps: usize) -> Vec<f64> {
    (0..steps).map(|i| 0.6 + 0.5 * (3.0 * i as f64 / steps as f64).cos()).collect()
}

/// The methods whose strategies are Toeplitz for a constant rate alone.
fn toeplitz_methods() -> [Method; 8] {
    [
        Method::Bisr { bands: 4 },
        Method::Bisr { bands: 40 },
        Method::LambdaCgd { lambda: Some(0.9) },
        Method::LambdaCgd { lambda: None },
        Method::Toeplitz { bands: 7 },
        Method::Toeplitz { bands: 30 },
        Method::InverseToeplitz { bands: 5 },
        Method::Blt { buffers: 2 },
    ]
}

/// All methods, with and without a schedule, for bands below and above the separation.
fn requests() -> Vec<PlanRequest> {
    let mut all = Vec::new();
    for method in [
        Method::Identity,
        Method::Input,
        Method::SquareRoot,
        Method::Bsr { bands: 7 },
        Method::Bsr { bands: 30 },
    ] {
        all.push(request(method));
        for strategy_for in [StrategyFor::ConstantRate, StrategyFor::Schedule] {
            let learning_rates = Some(cosine(60));
            all.push(PlanRequest { learning_rates, strategy_for, ..request(method) });
        }
    }
    for bands in [7, 30] {
        let learning_rates = Some(cosine(60));
        let method = Method::NormalizedSquareRoot { bands };
        let strategy_for = StrategyFor::Schedule;
        all.push(request(method));
        all.push(PlanRequest { learning_rates, strategy_for, ..request(method) });
    }
    for method in toeplitz_methods() {
        all.push(request(method));
        all.push(PlanRequest { learning_rates: Some(cosine(60)), ..request(method) });
    }
    all
}

fn certificate(plan: &DpPlan) -> Certificate {
    let batches = Batches::new(100, 8, RunSeed(3)).unwrap();
    assert_eq!(batches.cycle(), plan.participation().min_separation());
    let mut ledger = Ledger::new(plan.participation(), 100).unwrap();
    for step in 0..plan.participation().steps() {
        ledger.record(step, &batches.batch(step)).unwrap();
    }
    let metrics = vec![
        Metric { name: "train_loss".into(), exposure: Exposure::NotPrivate },
        Metric { name: "step".into(), exposure: Exposure::Covered },
    ];
    Certificate::new(
        plan,
        KeyOrigin::OperatingSystem,
        &ledger,
        Disclosure { metrics, ..Disclosure::default() },
    )
}

#[test]
fn the_noise_is_the_product_of_its_factors() {
    for neighbouring in [Neighbouring::ZeroOut, Neighbouring::ReplaceOne] {
        let plan =
            DpPlan::new(PlanRequest { neighbouring, ..request(Method::SquareRoot) }).unwrap();
        let record = plan.record();
        let doubled = if neighbouring == Neighbouring::ReplaceOne { 2.0 } else { 1.0 };
        let moved = 1.5 * (1.0 + record.sum_rounding);
        let product = record.noise_multiplier * record.sensitivity.value * moved * doubled;
        assert!((record.noise_std / product - 1.0).abs() < 1e-15);
        assert_eq!(record.history_bytes, 4 * 59 * 1000);
        assert_eq!(plan.participation().max_participations(), 5);
    }
}

#[test]
fn a_schedule_changes_the_loss_and_not_the_privacy() {
    let constant = DpPlan::new(request(Method::Bsr { bands: 7 })).unwrap();
    let learning_rates = Some(cosine(60));
    let request = PlanRequest { learning_rates, ..request(Method::Bsr { bands: 7 }) };
    let scheduled = DpPlan::new(request).unwrap();
    assert_eq!(constant.noise_std(), scheduled.noise_std());
    assert_eq!(constant.strategy(), scheduled.strategy());
    assert!(constant.record().loss.expected_error > scheduled.record().loss.expected_error);
}

#[test]
fn steps_that_are_no_whole_epochs_need_an_explicit_k() {
    let uneven = PlanRequest { steps: 65, ..request(Method::Identity) };
    let error = DpPlan::new(uneven.clone()).unwrap_err();
    assert_eq!(error, PlanError::UnevenSteps { steps: 65, separation: 12 });
    let explicit = DpPlan::new(PlanRequest { max_participations: Some(6), ..uneven }).unwrap();
    assert_eq!(explicit.participation().max_participations(), 6);
}

#[test]
fn bad_requests_are_refused_with_a_sentence() {
    let good = || request(Method::Bsr { bands: 7 });
    let bad = [
        PlanRequest { epsilon: 0.0, ..good() },
        PlanRequest { epsilon: f64::NAN, ..good() },
        PlanRequest { delta: 1.0, ..good() },
        PlanRequest { clip_norm: f64::INFINITY, ..good() },
        PlanRequest { clip_norm: -1.0, ..good() },
        PlanRequest { batch_size: 0, ..good() },
        PlanRequest { batch_size: (1 << 20) + 1, ..good() },
        PlanRequest { dim: 0, ..good() },
        PlanRequest { steps: 0, ..good() },
        PlanRequest { min_separation: 0, ..good() },
        PlanRequest { max_participations: Some(6), ..good() },
        PlanRequest { learning_rates: Some(vec![1.0; 59]), ..good() },
        PlanRequest { learning_rates: Some(vec![-1.0; 60]), ..good() },
        PlanRequest { method: Method::Bsr { bands: 61 }, ..good() },
        PlanRequest { method: Method::Bsr { bands: 0 }, ..good() },
        PlanRequest { method: Method::Bisr { bands: 61 }, ..good() },
        PlanRequest { method: Method::Toeplitz { bands: 0 }, ..good() },
        PlanRequest { method: Method::InverseToeplitz { bands: 61 }, ..good() },
        PlanRequest { method: Method::NormalizedSquareRoot { bands: 61 }, ..good() },
        PlanRequest { method: Method::Blt { buffers: 0 }, ..good() },
        PlanRequest { method: Method::Blt { buffers: 7 }, ..good() },
        PlanRequest { method: Method::LambdaCgd { lambda: Some(1.1) }, ..good() },
        PlanRequest { method: Method::LambdaCgd { lambda: Some(f64::NAN) }, ..good() },
        PlanRequest { keep_rows: Some(3), ..good() },
        PlanRequest { keep_rows: Some(4), method: Method::Bisr { bands: 4 }, ..good() },
        PlanRequest {
            learning_rates: Some(cosine(60)),
            strategy_for: StrategyFor::Schedule,
            method: Method::Bisr { bands: 4 },
            ..good()
        },
    ];
    for request in bad {
        let message = DpPlan::new(request.clone()).expect_err("a bad request").to_string();
        assert!(message.split(' ').count() > 5, "{message}");
    }
}

#[test]
fn a_plan_survives_its_file_and_an_altered_one_is_refused() {
    for request in requests() {
        let plan = DpPlan::new(request).unwrap();
        let text = serde_json::to_string_pretty(&plan).unwrap();
        assert_eq!(serde_json::from_str::<DpPlan>(&text).unwrap(), plan);
    }
    let plan = DpPlan::new(request(Method::SquareRoot)).unwrap();
    let mut altered = serde_json::to_value(&plan).unwrap();
    altered["noise_std"] = (plan.noise_std() * 0.99).into();
    assert!(serde_json::from_value::<DpPlan>(altered).is_err());
}

#[test]
fn certificates_of_all_methods_verify_by_the_slow_path() {
    for request in requests() {
        let plan = DpPlan::new(request).unwrap();
        let text = serde_json::to_string_pretty(&certificate(&plan)).unwrap();
        let verdict = verify(&serde_json::from_str(&text).unwrap());
        assert!(verdict.holds() && verdict.is_private(), "{plan}\n{verdict}");
        assert!((verdict.epsilon.unwrap() / 4.0 - 1.0).abs() < 1e-6, "{verdict}");
    }
}

#[test]
fn kept_rows_change_the_memory_and_nothing_else() {
    let bisr = request(Method::Bisr { bands: 4 });
    let all = DpPlan::new(bisr.clone()).unwrap();
    assert_eq!((all.record().history_rows(), all.record().history_bytes), (3, 12_000));
    for rows in 0..=3 {
        let some = DpPlan::new(PlanRequest { keep_rows: Some(rows), ..bisr.clone() }).unwrap();
        assert_eq!(some.record().history_rows(), rows as u64);
        assert_eq!(some.strategy(), all.strategy());
        assert_eq!(some.noise_std(), all.noise_std());
        assert!(some.to_string().contains(&format!("{rows} rows")), "{some}");
    }
    let blt = DpPlan::new(request(Method::Blt { buffers: 1 })).unwrap();
    assert_eq!(blt.record().history_rows(), 2, "one buffer in double precision");
}

#[test]
fn a_recorded_toeplitz_strategy_is_verified_by_its_numbers() {
    for method in toeplitz_methods().into_iter().filter(Method::is_fitted) {
        let plan = DpPlan::new(request(method)).unwrap();
        let good = certificate(&plan);
        assert!(good.strategy.is_none() && good.toeplitz.is_some());
        assert!(verify(&good).is_private(), "{}", verify(&good));
        let change = |recorded: &mut StrategyRecord, factor: f64| match recorded {
            StrategyRecord::Toeplitz { coefficients }
            | StrategyRecord::Inverse { coefficients } => coefficients[1] *= factor,
            StrategyRecord::Buffered { buffers } => buffers[0].weight *= factor,
            StrategyRecord::Rows { .. } => unreachable!("a fitted strategy is Toeplitz"),
        };
        for factor in [0.99, f64::NAN] {
            let mut altered = good.clone();
            change(altered.toeplitz.as_mut().unwrap(), factor);
            assert!(!verify(&altered).holds(), "{method} {factor}");
        }
        // Another strategy with its own hash has another sensitivity.
        let mut altered = good.clone();
        altered.plan.noise_std *= 0.999;
        assert!(!verify(&altered).holds());
        altered = good.clone();
        altered.toeplitz = None;
        assert!(!verify(&altered).holds(), "a search cannot be repeated by a formula");
        altered.toeplitz = good.toeplitz.clone();
        altered.strategy = Some(vec![vec![1.0]; 60]);
        assert!(!verify(&altered).holds(), "two strategies");
    }
}

#[test]
fn a_false_certificate_is_found_out() {
    let plan = DpPlan::new(request(Method::Bsr { bands: 7 })).unwrap();
    let good = certificate(&plan);
    assert!(verify(&good).holds());
    let alterations: [(&str, Alteration); 15] = [
        ("less noise", |c| c.plan.noise_std *= 0.999),
        ("less noise and multiplier", |c| {
            c.plan.noise_std *= 0.999;
            c.plan.noise_multiplier *= 0.999;
        }),
        ("less sensitivity and noise", |c| {
            c.plan.noise_std *= 0.999;
            c.plan.sensitivity.value *= 0.999;
        }),
        ("smaller epsilon", |c| c.plan.request.epsilon = 3.9),
        ("smaller delta", |c| c.plan.request.delta = 1e-6),
        ("larger clip norm", |c| c.plan.request.clip_norm = 2.0),
        ("other neighbours", |c| {
            c.plan.request.neighbouring = Neighbouring::ReplaceOne;
        }),
        ("other bands", |c| c.plan.request.method = Method::Bsr { bands: 8 }),
        ("early return", |c| c.realized.least_gap = Some(11)),
        ("one use too many", |c| c.realized.most_uses = 6),
        ("one step too many", |c| c.realized.steps = 61),
        ("other steps", |c| {
            c.plan.participation = Participation::new(100, 20, 5).unwrap();
        }),
        ("other width", |c| c.plan.bands = 9),
        ("not a number", |c| c.plan.noise_std = f64::NAN),
        ("other format", |c| c.format = "bandroot privacy 0".into()),
    ];
    for (name, alter) in alterations {
        let mut altered = good.clone();
        alter(&mut altered);
        assert!(!verify(&altered).holds(), "{name}\n{}", verify(&altered));
    }
    let mut fixed = good;
    fixed.noise_key = KeyOrigin::FixedSeed;
    assert!(!verify(&fixed).holds(), "the statement still claims privacy");
    fixed.statement =
        "reproducible, not private: the noise seed was fixed and can be subtracted".into();
    let verdict = verify(&fixed);
    assert!(verdict.holds() && !verdict.is_private(), "{verdict}");
}

#[test]
fn a_recorded_strategy_is_verified_by_its_rows() {
    for bands in [7, 30] {
        // A schedule makes a strategy that is not Toeplitz, as an optimized one is not.
        let learning_rates = Some(cosine(60));
        let strategy_for = StrategyFor::Schedule;
        let request =
            PlanRequest { learning_rates, strategy_for, ..request(Method::Bsr { bands }) };
        let plan = DpPlan::new(request).unwrap();
        let mut good = certificate(&plan);
        assert!(good.strategy.is_none(), "the formula is known");
        good.strategy = Some((0..60).map(|i| plan.strategy().row(i).to_vec()).collect());
        let text = serde_json::to_string(&good).unwrap();
        let good: Certificate = serde_json::from_str(&text).unwrap();
        assert!(verify(&good).is_private(), "{}", verify(&good));
        let alterations: [(&str, Alteration); 6] = [
            ("one entry", |c| c.strategy.as_mut().unwrap()[20][3] *= 1.01),
            ("not a number", |c| c.strategy.as_mut().unwrap()[20][3] = f64::NAN),
            ("one row less", |c| drop(c.strategy.as_mut().unwrap().pop())),
            ("a row too short", |c| c.strategy.as_mut().unwrap()[20].truncate(1)),
            ("less noise", |c| c.plan.noise_std *= 0.999),
            ("no privacy at all", |c| c.plan.request.delta = 1.0),
        ];
        for (name, alter) in alterations {
            let mut altered = good.clone();
            alter(&mut altered);
            assert!(!verify(&altered).holds(), "{name}\n{}", verify(&altered));
        }
    }
}

#[test]
fn a_plan_takes_only_the_factorization_it_asked_for() {
    let request = request(Method::Bsr { bands: 7 });
    let workload = request.factorized_workload().unwrap();
    let right = Factorization::new(workload.clone(), request.method).unwrap();
    let plan = DpPlan::from_factorization(request.clone(), &right).unwrap();
    assert_eq!(plan, DpPlan::new(request.clone()).unwrap());
    let other_method = Factorization::new(workload, Method::Bsr { bands: 8 }).unwrap();
    let longer = PlanRequest { steps: 72, ..request.clone() }.factorized_workload().unwrap();
    let other_workload = Factorization::new(longer, request.method).unwrap();
    let fitted = PlanRequest { method: Method::Blt { buffers: 1 }, ..request.clone() };
    let other = PlanRequest { min_separation: 20, ..fitted.clone() };
    let pattern = other.participation().unwrap();
    let to_other = Factorization::for_participation(
        fitted.factorized_workload().unwrap(),
        fitted.method,
        &pattern,
    );
    let refused = DpPlan::from_factorization(fitted, &to_other.unwrap());
    assert_eq!(refused, Err(PlanError::OtherFactorization), "fitted to another participation");
    for wrong in [other_method, other_workload] {
        let refused = DpPlan::from_factorization(request.clone(), &wrong);
        assert_eq!(refused, Err(PlanError::OtherFactorization));
    }
}

#[test]
fn a_fixed_seed_is_stamped_into_the_certificate() {
    let plan = DpPlan::new(request(Method::Identity)).unwrap();
    let ledger = Ledger::new(plan.participation(), 10).unwrap();
    let certificate = Certificate::new(&plan, KeyOrigin::FixedSeed, &ledger, Disclosure::default());
    assert!(certificate.statement.starts_with("reproducible, not private"));
    let sweep = Certificate::new(
        &plan,
        KeyOrigin::OperatingSystem,
        &ledger,
        Disclosure { trials: 20, ..Disclosure::default() },
    );
    assert!(sweep.statement.contains("choosing among 20 runs is not covered"));
}

#[test]
fn the_comparison_names_the_best_that_fits() {
    let request = request(Method::Identity);
    let methods = usual_methods(60, 12);
    let free = Comparison::new(&request, &methods, None, DpPlan::new).unwrap();
    println!("{free}");
    let least = free.contenders.iter().map(|c| c.expected_error).fold(f64::INFINITY, f64::min);
    assert_eq!(free.best().unwrap().expected_error, least);
    let tight = Comparison::new(&request, &methods, Some(4 * 1000 * 5), DpPlan::new).unwrap();
    let best = tight.best().unwrap();
    assert!(best.history_bytes <= 20_000 && best.expected_error > least, "{tight}");
    assert!(
        tight
            .contenders
            .iter()
            .all(|c| { c.history_bytes > 20_000 || c.expected_error >= best.expected_error })
    );
    let none = Comparison::new(&request, &[Method::SquareRoot], Some(0), DpPlan::new).unwrap();
    assert!(none.best().is_none());
}

#[test]
fn a_comparison_goes_on_past_what_has_no_plan() {
    // No secret batches for replace-one; DP-SGD alone has Poisson batches; a schedule that not all are made for.
    let mut request = request(Method::Identity);
    let refused = PlanRequest {
        neighbouring: Neighbouring::ReplaceOne,
        sampling: Sampling::BallsInBins,
        ..request.clone()
    };
    assert!(Comparison::new(&refused, &usual_methods(60, 12), None, DpPlan::new).is_err());
    request.learning_rates = Some((0..60).map(|i| 1.0 - f64::from(i) / 80.0).collect());
    request.strategy_for = StrategyFor::Schedule;
    let methods = [Method::Bsr { bands: 12 }, Method::Bisr { bands: 4 }, Method::Bsr { bands: 0 }];
    let compared = Comparison::new(&request, &methods, None, DpPlan::new).unwrap();
    let made_for: Vec<_> = compared.contenders.iter().map(|c| c.strategy_for).collect();
    assert_eq!(made_for, [StrategyFor::Schedule, StrategyFor::ConstantRate]);
    assert_eq!(compared.refused.len(), 1);
    let shown = compared.to_string();
    assert!(shown.contains("made for a constant rate: bisr\nno plan for bsr 0: "), "{shown}");
    assert!(!shown.contains("fixed order"), "{shown}");
    request.sampling = Sampling::BallsInBins;
    let secret = Comparison::new(&request, &methods, None, DpPlan::new).unwrap();
    for (secret, public) in secret.contenders.iter().zip(&compared.contenders) {
        assert!(secret.amplified < 1.0);
        let in_fixed_order = secret.expected_error / secret.amplified;
        assert!((in_fixed_order / public.expected_error - 1.0).abs() < 1e-12);
    }
    assert!(secret.to_string().contains("fixed order"), "{secret}");
}

#[test]
fn on_cyclic_poisson_batches_every_contender_has_groups_of_its_own() {
    let cyclic = |bands: usize| PlanRequest {
        sampling: Sampling::CyclicPoisson,
        examples: Some(6000),
        min_separation: bands,
        max_participations: None,
        ..request(Method::Bsr { bands })
    };
    let methods = [2, 4, 6].map(|bands| Method::Bsr { bands });
    let compared = Comparison::new(&cyclic(4), &methods, None, DpPlan::new).unwrap();
    assert!(compared.refused.is_empty(), "{compared}");
    for (contender, bands) in compared.contenders.iter().zip([2, 4, 6]) {
        let own = cyclic(bands).plan().unwrap();
        let multiplier = own.record().amplification.unwrap().unamplified_multiplier;
        let noise = multiplier * contender.expected_error;
        let planned = own.record().noise_multiplier * own.record().loss.expected_error;
        assert!((noise / planned - 1.0).abs() < 1e-12, "{bands}");
    }
    // C of a banded inverse has as many diagonals as steps.
    let full = Comparison::new(&cyclic(4), &[Method::Bisr { bands: 4 }], None, DpPlan::new);
    assert!(matches!(full, Err(PlanError::Groups { bands: 60, groups: 4 })));
}
