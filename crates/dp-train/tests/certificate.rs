//! Every field of a certificate doctored, one at a time: `verify` refuses each change that matters, and names it.

use dp_train::accounting::stopping::{self, Selection, StoppingLaw};
use dp_train::accounting::tuning::{Release, Tried};
use dp_train::batches::Batches;
use dp_train::calibration;
use dp_train::certificate::{Certificate, Disclosure, Exposure, Metric};
use dp_train::fingerprint::Fingerprint;
use dp_train::ledger::Ledger;
use dp_train::plan::{DpPlan, PlanError, PlanRequest, StrategyFor};
use dp_train::provenance::{Origin, Protection};
use dp_train::seeds::{KeyOrigin, RunSeed};
use dp_train::verification::verify;
use mf_core::{Method, Participation, Sgd};
use serde_json::{Value, json};

fn plan(method: Method) -> DpPlan {
    DpPlan::new(PlanRequest {
        sgd: Sgd::new(0.99, 0.5).unwrap(),
        learning_rates: None,
        workload_column: None,
        strategy_for: StrategyFor::ConstantRate,
        method,
        steps: 30,
        min_separation: 10,
        max_participations: None,
        clip_norm: 1.5,
        batch_size: 8,
        epsilon: 4.0,
        delta: 1e-5,
        neighbouring: Default::default(),
        sampling: Default::default(),
        examples: None,
        accountant: Default::default(),
        dim: 1000,
        keep_rows: None,
    })
    .unwrap()
}

/// A private run on other data.
fn origin() -> Origin {
    let hash = Fingerprint::of_bytes(b"other");
    Origin {
        parameters_sha256: hash,
        data: "faces".into(),
        training_data_sha256: Some(hash),
        protection: Protection::Certified { epsilon: 2.5, delta: 1e-6, certificate_sha256: hash },
    }
}

fn certificate(method: Method) -> Certificate {
    let plan = plan(method);
    let batches = Batches::new(83, 8, RunSeed(1)).unwrap();
    let mut ledger = Ledger::new(plan.participation(), 83).unwrap();
    for step in 0..30 {
        ledger.record(step, &batches.batch(step)).unwrap();
    }
    let metrics = vec![Metric { name: "step".into(), exposure: Exposure::Covered }];
    let disclosure = Disclosure {
        metrics,
        trials: 3,
        held_out_examples: 17,
        provenance: vec![origin()],
        ..Disclosure::default()
    };
    Certificate::new(&plan, KeyOrigin::OperatingSystem, &ledger, disclosure)
}

/// Paths of all values that are no objects, with lists as long as a few entries.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                leaves(value, &format!("{path}/{key}"), found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let some = [0, items.len() / 2, items.len() - 1];
            for (i, value) in items.iter().enumerate().filter(|(i, _)| some.contains(i)) {
                leaves(value, &format!("{path}/{i}"), found);
            }
        }
        _ => found.push(path.to_string()),
    }
}

/// Other values that might stand in the place of one.
fn doctored(value: &Value) -> Vec<Value> {
    match value {
        Value::Number(number) => {
            let x = number.as_f64().unwrap();
            let mut all = vec![json!(0), json!(-x), json!(1e-8), json!(1e300)];
            if number.is_f64() {
                all.extend([json!(x * 1.001), json!(x * 0.999)]);
            } else {
                all.extend([json!(number.as_u64().unwrap() + 1), json!(u64::MAX)]);
                all.extend(number.as_u64().unwrap().checked_sub(1).map(|less| json!(less)));
            }
            all.retain(|other| other.as_f64() != Some(x));
            all
        }
        Value::String(text) => vec![json!(format!("{text}!")), json!(""), json!("zero_out?")],
        Value::Bool(holds) => vec![json!(!holds)],
        Value::Null => vec![json!(1), json!(7), json!([1.0])],
        Value::Array(_) => vec![json!([0, 31]), json!([5, 4])],
        Value::Object(_) => Vec::new(),
    }
}

/// What says nothing about privacy, or is compared with the files of the run by who has them.
fn does_not_matter(path: &str, method: Method) -> bool {
    // How a strategy was searched for has no bearing on what it hides.
    let searched = method.is_fitted() || matches!(method, Method::Aof { .. });
    path.starts_with("/metrics")
        || path.starts_with("/artifacts")
        || path == "/provenance/0/parameters_sha256"
        || path == "/provenance/0/training_data_sha256"
        || path == "/plan/request/method/tolerance"
        || (searched && path.starts_with("/plan/request/method/"))
}

#[test]
fn every_doctored_field_is_refused_and_named() {
    for method in [
        Method::Bsr { bands: 5 },
        Method::Identity,
        Method::SquareRoot,
        Method::Bisr { bands: 3 },
        Method::Aof { bands: 10, tolerance: 1e-4 },
        Method::Toeplitz { bands: 4 },
        Method::Blt { buffers: 2 },
    ] {
        let good = serde_json::to_value(certificate(method)).unwrap();
        let honest = verify(&serde_json::from_value(good.clone()).unwrap());
        assert!(honest.is_private(), "{method}\n{honest}");
        // Examples that fill no batch are never used, and a run that ends a step earlier releases less.
        let harmless = |path: &str, other: &Value| match path {
            "/realised/examples" => other.as_u64().is_some_and(|examples| examples / 8 == 10),
            "/realised/steps" => other == 29,
            // Only memory depends on it, and DP-SGD needs none.
            "/plan/request/dim" => method == Method::Identity && other.as_u64().unwrap_or(0) > 0,
            _ => false,
        };
        let mut paths = Vec::new();
        leaves(&good, "", &mut paths);
        assert!(paths.len() > 40, "{paths:?}");
        for path in paths.iter().filter(|path| !does_not_matter(path, method)) {
            for other in doctored(good.pointer(path).unwrap()) {
                if harmless(path, &other) {
                    continue;
                }
                let mut bad = good.clone();
                *bad.pointer_mut(path).unwrap() = other.clone();
                // What is no certificate at all is refused, with the name of the field.
                let Ok(bad) = serde_json::from_value::<Certificate>(bad) else { continue };
                let verdict = verify(&bad);
                assert!(!verdict.holds(), "{method}: {path} = {other}\n{verdict}");
                let named = verdict.findings.iter().any(|finding| !finding.holds);
                assert!(named, "{method}: {path} = {other}");
            }
        }
    }
}

/// Runs that a choice was made from: their noise, their number and what they cost together are bound to each other.
#[test]
fn what_the_runs_cost_together_follows_from_their_noise() {
    let alone = certificate(Method::Bsr { bands: 5 });
    let own = alone.plan.release().unwrap();
    let tried = |runs, release, held_out| Tried { runs, release, held_out };
    let other = tried(1, Release::Gaussian { multiplier: 2.0 }, false);
    assert_eq!(alone.epsilon_all_trials, None, "nothing is known of the two others");
    let fewer = alone.clone().with_tried(&[tried(2, own, true)]);
    assert_eq!(fewer, alone, "there were three");
    let law = StoppingLaw::new(5.0, 1.0).unwrap();
    let Release::Gaussian { multiplier } = own else { panic!("{own:?}") };
    let selection = Selection {
        mean: 5.0,
        shape: 1.0,
        score_noise: multiplier,
        score: 0.5,
        epsilon: stopping::epsilon(&law, multiplier, 1e-5).unwrap(),
        settings_sha256: Fingerprint::of_bytes(b"settings"),
    };
    let best = alone.clone().with_selection(selection);
    let good = alone.with_tried(&[tried(4, own, true), other]);
    assert_eq!(good.trials, 5);
    // The best of a secret number is not counted, and what it costs is not what counted runs cost.
    assert_eq!(good.clone().with_selection(selection).epsilon_all_trials, None);
    let both = Certificate { selection: Some(selection), ..good.clone() };
    let mut both = both.with_trials(5);
    assert!(!verify(&both).holds(), "counted and not counted");
    both = both.with_selection(selection);
    assert!(verify(&both).holds());
    let together = 1.0 / (4.0 / multiplier.powi(2) + 0.25).sqrt();
    let expected = calibration::epsilon(together, 1e-5).unwrap();
    assert_eq!(good.epsilon_all_trials, Some(expected));
    let text = format!(
        "; choosing among 5 runs is not covered: all of them together are ({}, 1e-5)-differentially private, but for \
         what scores tell of examples held out to validate with",
        (100.0 * expected).ceil() / 100.0
    );
    assert!(good.statement.ends_with(&text), "{}", good.statement);
    assert!(
        best.statement.contains("random number of runs, 5 in the mean, it is (6.09, 1e-5)-"),
        "{}",
        best.statement
    );
    let good = serde_json::to_value(good).unwrap();
    for (good, fields) in [(&good, 2 + 3 + 3), (&serde_json::to_value(best).unwrap(), 1 + 6)] {
        let honest = verify(&serde_json::from_value(good.clone()).unwrap());
        assert!(honest.is_private(), "{honest}");
        let mut paths = Vec::new();
        leaves(good, "", &mut paths);
        let about = ["/tried", "/selection", "/epsilon_all_trials", "/trials"];
        paths.retain(|path| about.iter().any(|about| path.starts_with(about)));
        assert_eq!(paths.len(), fields, "{paths:?}");
        // A score says nothing of privacy, and one run that held examples out is as many.
        let harmless = ["/selection/score", "/selection/settings_sha256", "/tried/1/held_out"];
        for path in paths.iter().filter(|path| !harmless.contains(&path.as_str())) {
            for other in doctored(good.pointer(path).unwrap()) {
                // More noise on the score than on the run makes the choice no cheaper.
                if path == "/selection/score_noise" && other.as_f64().unwrap() > multiplier {
                    continue;
                }
                let mut bad = good.clone();
                *bad.pointer_mut(path).unwrap() = other.clone();
                let Ok(bad) = serde_json::from_value::<Certificate>(bad) else { continue };
                let verdict = verify(&bad);
                assert!(!verdict.holds(), "{path} = {other}\n{verdict}");
            }
        }
    }
    // One more run of unknown noise, and nothing is known of all of them.
    let more: Certificate = serde_json::from_value(good).unwrap();
    let more = more.with_trials(6);
    assert_eq!((more.epsilon_all_trials, more.tried.len()), (None, 0));
    assert!(verify(&more).is_private());
}

/// What a model was made from is told, and what came before there were origins is read and written unchanged.
#[test]
fn the_statement_names_the_origins_and_a_certificate_without_any_has_no_word_of_them() {
    let mut started = certificate(Method::Identity);
    assert!(started.statement.contains("17 held out to validate with; it does not cover the data"));
    let named = "faces ((2.5, 1e-6)-differentially private by that run's own certificate, SHA-256 ";
    assert!(started.statement.contains(named), "{}", started.statement);
    assert!(started.statement.ends_with("; choosing among 3 runs is not covered"));
    // Left out of the list, it is still in the statement.
    started.provenance.clear();
    assert!(!verify(&started).holds());
    let text = serde_json::to_value(&started).unwrap();
    assert!(text.get("provenance").is_none());
    assert_eq!(serde_json::from_value::<Certificate>(text).unwrap(), started);
    let mut impossible = certificate(Method::Identity);
    impossible.provenance[0].data = String::new();
    impossible.statement = impossible.statement.replace("faces", "");
    let verdict = verify(&impossible);
    let wrong: Vec<_> = verdict.findings.iter().filter(|finding| !finding.holds).collect();
    assert!(wrong.len() == 1 && wrong[0].detail.starts_with("provenance"), "{verdict}");
}

/// The attack that passed: hardly any noise and a small epsilon, with every number that depends on them adapted.
#[test]
fn a_consistent_certificate_of_almost_no_noise_is_refused() {
    for multiplier in (-84..84).map(|i| 10_f64.powf(f64::from(i) / 7.0)) {
        let mut forged = certificate(Method::Bsr { bands: 5 });
        let ratio = multiplier / forged.plan.noise_multiplier;
        for number in [
            &mut forged.plan.noise_multiplier,
            &mut forged.plan.noise_std,
            &mut forged.plan.iterate_noise_std,
            &mut forged.plan.final_iterate_noise_std,
        ] {
            *number *= ratio;
        }
        forged.plan.request.epsilon = 0.1;
        forged.statement = forged.statement.replace("(4,", "(0.1,");
        let verdict = verify(&forged);
        assert!(!verdict.holds(), "{multiplier:e}\n{verdict}");
        let epsilon = verdict.findings.iter().find(|f| f.detail.starts_with("epsilon")).unwrap();
        // Epsilon 0.1 at this delta needs a multiplier of 31.5.
        assert_eq!(epsilon.holds, multiplier > 31.6, "{multiplier:e}: {}", epsilon.detail);
    }
}

#[test]
fn a_request_that_cannot_be_is_refused_for_recorded_strategies_too() {
    let alterations: [fn(&mut Certificate); 6] = [
        |c| c.plan.request.clip_norm = -1.5,
        |c| c.plan.request.batch_size = 0,
        |c| c.plan.request.dim = 0,
        |c| c.plan.request.epsilon = 1e-7,
        |c| c.plan.request.delta = 1e-301,
        |c| c.plan.request.steps = 0,
    ];
    for method in [Method::Aof { bands: 10, tolerance: 1e-4 }, Method::Blt { buffers: 2 }] {
        for alter in alterations {
            let mut bad = certificate(method);
            alter(&mut bad);
            let verdict = verify(&bad);
            let request = verdict.findings.iter().find(|f| f.detail.starts_with("request"));
            assert!(!request.unwrap().holds, "{verdict}");
        }
    }
}

/// Entries whose squares vanish in f64 made a sensitivity of 0.82 of the true one, in every derivation alike.
#[test]
fn a_strategy_too_small_for_doubles_has_no_plan() {
    let tiny = |rate: f64| {
        let mut request = plan(Method::Identity).request().clone();
        request.method = Method::Input;
        request.strategy_for = StrategyFor::Schedule;
        request.learning_rates = Some(vec![rate; 30]);
        DpPlan::new(request)
    };
    assert!(tiny(1e-3).is_ok());
    assert!(matches!(tiny(1e-90), Err(PlanError::Scale { .. })));
    for rate in [2.7e-162, 1e-120, 1e120] {
        assert!(matches!(tiny(rate), Err(PlanError::Sensitivity { .. })), "{rate:e}");
    }
}

/// A certificate of 2 KB must not keep the verifier busy for a year, nor take its memory.
#[test]
fn sizes_that_would_take_for_ever_are_refused_at_sight() {
    for (steps, separation, bands) in
        [(1 << 26, 1 << 26, 1), (11_000, 1, 2), (1 << 13, 1, 1 << 13), (usize::MAX / 2, 1, 1)]
    {
        let mut large = certificate(Method::Blt { buffers: 2 });
        let participations = (steps / separation).min(1 << 20);
        large.plan.request.steps = steps;
        large.plan.request.min_separation = separation;
        large.plan.request.max_participations = Some(participations);
        large.plan.participation = Participation::new(steps, separation, participations).unwrap();
        large.plan.bands = bands;
        let verdict = verify(&large);
        let refused = |detail: &str| {
            detail.contains("too many to check") || detail.contains("more than can be planned")
        };
        let refused = verdict.findings.iter().find(|f| !f.holds && refused(&f.detail));
        assert!(refused.is_some(), "{steps} {separation} {bands}\n{verdict}");
    }
}
