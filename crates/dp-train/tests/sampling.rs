//! Runs whose batches are secret: the plan, the batches, the certificate.

use dp_train::accounting::poisson::Poisson;
use dp_train::accounting::tuning::Tried;
use dp_train::calibration::{self, Neighbouring};
use dp_train::certificate::{Certificate, Disclosure};
use dp_train::gradient::ClippedSum;
use dp_train::plan::{Accountant, DpPlan, PlanError, PlanRequest, Sampling};
use dp_train::seal::Seal;
use dp_train::seeds::{NoiseKey, RunSeed, SamplingKey};
use dp_train::training::{Training, TrainingError};
use dp_train::verification::verify;
use dp_train::{Budget, Clipping};
use mf_core::{Method, Participation, Sgd};
use serde_json::{Value, json};

const EXAMPLES: u32 = 60;

/// Four epochs of 12 steps, 5 of the 60 examples in each on average.
fn request(method: Method) -> PlanRequest {
    PlanRequest::new(
        method,
        Sgd::new(0.999, 0.9).unwrap(),
        Participation::epochs(4, 12).unwrap(),
        Budget { epsilon: 4.0, delta: 1e-5 },
        Clipping { batch_size: 5, clip_norm: 1.5 },
        3,
    )
    .with_sampling(Sampling::BallsInBins)
}

fn methods() -> [Method; 6] {
    [
        Method::Identity,
        Method::Bsr { bands: 12 },
        Method::Bsr { bands: 20 },
        Method::Bisr { bands: 3 },
        Method::NormalizedSquareRoot { bands: 6 },
        Method::Toeplitz { bands: 4 },
    ]
}

fn run(plan: DpPlan, key: NoiseKey) -> Training {
    Training::new(plan, vec![0.1; 3], EXAMPLES, 0.05, RunSeed(7), key).unwrap()
}

fn clip(parameters: &[f32], batch: &[u32], sum: &mut ClippedSum) -> Result<(), TrainingError> {
    for &example in batch {
        let row: Vec<f32> = parameters.iter().map(|x| x - (example % 7) as f32).collect();
        sum.add(&row)?;
    }
    Ok(())
}

fn certificate(training: &Training) -> Certificate {
    Certificate::of(training, Disclosure::default())
}

#[test]
fn secret_batches_need_less_noise_and_a_plan_says_how_much() {
    for method in methods() {
        let secret = request(method).plan().unwrap();
        let known = request(method).with_sampling(Sampling::FixedOrder).plan().unwrap();
        let (record, found) = (secret.record(), secret.record().amplification.unwrap());
        assert_eq!(found.unamplified_multiplier, known.record().noise_multiplier);
        assert!(secret.noise_std() < 0.97 * known.noise_std(), "{method}");
        assert!(found.delta_remove.max(found.delta_add) <= 1e-5, "{method}");
        let gain = secret.noise_std() / known.noise_std();
        assert!(
            (record.iterate_noise_std / known.record().iterate_noise_std / gain - 1.0).abs()
                < 1e-12
        );
        let text = serde_json::to_string(&secret).unwrap();
        assert_eq!(serde_json::from_str::<DpPlan>(&text).unwrap(), secret);
        let fixed = serde_json::to_value(&known).unwrap();
        assert!(fixed.get("amplification").is_none() && fixed["request"].get("sampling").is_none());
    }
}

/// Sampling finds less noise, the plan is the same whenever it is made, and a check with other coins agrees.
#[test]
fn noise_that_was_verified_by_sampling_is_verified_again() {
    let verified = || request(Method::Bsr { bands: 12 }).with_accountant(Accountant::Verified);
    let plan = verified().plan().unwrap();
    let certain = request(Method::Bsr { bands: 12 }).plan().unwrap();
    let found = plan.record().amplification.unwrap();
    assert!(found.samples > 1000 && found.failure <= 1e-9);
    assert!(plan.noise_std() < 0.99 * certain.noise_std());
    assert!(found.delta_remove.max(found.delta_add) + found.failure <= 1e-5);
    assert_eq!(verified().plan().unwrap(), plan);
    let mut training = run(plan, NoiseKey::from_os().unwrap());
    while !training.is_finished() {
        training.step(clip).unwrap();
    }
    let honest = certificate(&training);
    let verdict = verify(&honest);
    assert!(verdict.is_private(), "{verdict}");
    assert!(verdict.to_string().contains("samples of its own"), "{verdict}");
    assert!(verdict.to_string().contains("by the bound without sampling"), "{verdict}");
    // The same noise is too little for the bound without sampling, which is all that this one claims.
    let mut forged = honest;
    forged.plan.request.accountant = Accountant::Deterministic;
    assert!(!verify(&forged).holds());
    let fixed = verified().with_sampling(Sampling::FixedOrder);
    assert_eq!(fixed.plan().unwrap_err(), PlanError::NoChoice);
}

/// One batch per epoch holds everyone: there is nothing to be secret.
#[test]
fn one_slot_is_a_fixed_order() {
    let one = PlanRequest { steps: 4, min_separation: 1, ..request(Method::Bsr { bands: 3 }) };
    let known = one.clone().with_sampling(Sampling::FixedOrder).plan().unwrap();
    let ratio = one.plan().unwrap().noise_std() / known.noise_std();
    assert!((ratio - 1.0).abs() < 1e-6, "{ratio}");
}

#[test]
fn what_the_accountant_does_not_cover_has_no_plan() {
    let other = request(Method::Identity).with_neighbouring(Neighbouring::ReplaceOne);
    let error = other.plan().unwrap_err();
    assert!(matches!(error, PlanError::Accounting(_)), "{error}");
    let fewer = PlanRequest { max_participations: Some(2), ..request(Method::Identity) };
    assert!(fewer.plan().is_err());
}

#[test]
fn every_example_is_used_once_per_epoch_in_batches_that_only_the_key_decides() {
    let plan = || request(Method::Bsr { bands: 12 }).plan().unwrap();
    let batches = |mut training: Training| -> Vec<Vec<u32>> {
        let mut all = Vec::new();
        while !training.is_finished() {
            let step = training.step(|parameters, batch, sum| {
                all.push(batch.to_vec());
                clip(parameters, batch, sum)
            });
            step.unwrap();
        }
        assert!(verify(&certificate(&training)).holds(), "{}", verify(&certificate(&training)));
        all
    };
    let all = batches(run(plan(), NoiseKey::fixed(RunSeed(1))));
    assert_eq!(all.len(), 48);
    let mut epoch: Vec<u32> = all[..12].concat();
    epoch.sort_unstable();
    assert_eq!(epoch, (0..EXAMPLES).collect::<Vec<_>>());
    assert!((12..48).all(|step| all[step] == all[step - 12]));
    let sizes: Vec<usize> = all[..12].iter().map(Vec::len).collect();
    assert!(sizes.iter().any(|&size| size != 5), "{sizes:?}");
    assert_eq!(all, batches(run(plan(), NoiseKey::fixed(RunSeed(1)))));
    assert_ne!(all, batches(run(plan(), NoiseKey::fixed(RunSeed(2)))));
    // The public seed has no part in it.
    let key = NoiseKey::fixed(RunSeed(1));
    let other = Training::new(plan(), vec![0.1; 3], EXAMPLES, 0.05, RunSeed(8), key).unwrap();
    assert_eq!(all, batches(other));
}

#[test]
fn a_run_goes_on_with_the_same_slots() {
    let seal = Seal::default();
    let key = || NoiseKey::fixed(RunSeed(3));
    let plan = || request(Method::Bisr { bands: 3 }).plan().unwrap();
    let mut whole = run(plan(), key());
    while !whole.is_finished() {
        whole.step(clip).unwrap();
    }
    for stop in [1, 11, 12, 13, 47] {
        let mut first = run(plan(), key());
        for _ in 0..stop {
            first.step(clip).unwrap();
        }
        assert!(verify(&certificate(&first)).holds(), "after {stop} steps");
        let mut bytes = Vec::new();
        first.save(&mut bytes, &seal, b"").unwrap();
        let load = |plan: DpPlan| {
            Training::load(plan, EXAMPLES, 0.05, RunSeed(7), &seal, bytes.as_slice())
        };
        // Not as a run in a fixed order.
        let fixed = request(Method::Bisr { bands: 3 }).with_sampling(Sampling::FixedOrder);
        assert!(load(fixed.plan().unwrap()).is_err());
        let (mut rest, _) = load(plan()).unwrap();
        while !rest.is_finished() {
            rest.step(clip).unwrap();
        }
        assert_eq!(rest.parameters(), whole.parameters());
    }
}

/// Every number that the claim rests on, changed on its own and together.
#[test]
fn a_certificate_with_less_noise_or_another_sampling_is_refused() {
    for method in methods() {
        let mut training = run(request(method).plan().unwrap(), NoiseKey::from_os().unwrap());
        while !training.is_finished() {
            training.step(clip).unwrap();
        }
        let honest = certificate(&training);
        assert!(honest.statement.contains("as long as nobody learns which batches"));
        let verdict = verify(&honest);
        assert!(verdict.is_private() && verdict.epsilon == Some(4.0), "{method}\n{verdict}");
        let refused = |change: &dyn Fn(&mut Value)| {
            let mut text = serde_json::to_value(&honest).unwrap();
            change(&mut text);
            let Ok(forged) = serde_json::from_value::<Certificate>(text) else { return };
            assert!(!verify(&forged).holds(), "{method}");
        };
        let scale = |value: &mut Value, by: f64| *value = json!(value.as_f64().unwrap() * by);
        for key in ["noise_std", "noise_multiplier", "iterate_noise_std"] {
            refused(&|text| scale(&mut text["plan"][key], 0.999));
        }
        // All that follow from the noise, together.
        refused(&|text| {
            for key in
                ["noise_std", "noise_multiplier", "iterate_noise_std", "final_iterate_noise_std"]
            {
                scale(&mut text["plan"][key], 0.9);
            }
        });
        for key in ["unamplified_multiplier", "delta_remove", "delta_add"] {
            refused(&|text| scale(&mut text["plan"]["amplification"][key], 0.9));
        }
        refused(&|text| text["plan"]["amplification"] = Value::Null);
        refused(&|text| drop(text["plan"]["request"].as_object_mut().unwrap().remove("sampling")));
        refused(&|text| text["plan"]["request"]["neighbouring"] = json!("replace_one"));
        refused(&|text| text["sampling_key"] = json!("drawn by hand"));
        refused(&|text| text["realised"]["examples_used"] = json!(59));
        refused(&|text| text["realised"]["most_uses"] = json!(3));
        refused(&|text| text["plan"]["request"]["examples"] = json!(60));
        // As a run from before there was sampling, whose noise did not allow for the rounding of sums.
        refused(&|text| {
            text["format"] = json!("bandroot privacy 1");
            text["generator"] = json!(
                "ChaCha20 with a 256-bit key, addressed by (step, coordinate); ziggurat normals in f64"
            );
            text["limits"] = json!(
                "Gaussian noise in floating point; attacks on its last bits are not excluded"
            );
            let statement = text["statement"].as_str().unwrap();
            text["statement"] = json!(statement.replace("zero out one", "add or remove one"));
            text["artifacts"] = json!({});
            let rounding = 1.0 + text["plan"]["sum_rounding"].as_f64().unwrap();
            text["plan"]["sum_rounding"] = json!(0.0);
            for key in ["noise_std", "iterate_noise_std", "final_iterate_noise_std"] {
                scale(&mut text["plan"][key], 1.0 / rounding);
            }
        });
        // As if the order had been fixed and the noise were enough for that.
        refused(&|text| {
            text["plan"]["request"].as_object_mut().unwrap().remove("sampling");
            text["plan"].as_object_mut().unwrap().remove("amplification");
            let statement = text["statement"].as_str().unwrap();
            text["statement"] = json!(
                statement.replace("; as long as nobody learns which batches an example was in", "")
            );
        });
    }
}

/// Certificates from before it was stated stay valid; a fixed order has no such key.
#[test]
fn a_certificate_says_where_the_key_of_secret_batches_came_from() {
    let plan =
        |sampling| request(Method::Bsr { bands: 12 }).with_sampling(sampling).plan().unwrap();
    let of = |sampling| {
        let mut training = run(plan(sampling), NoiseKey::from_os().unwrap());
        while !training.is_finished() {
            training.step(clip).unwrap();
        }
        certificate(&training)
    };
    let (mut secret, mut fixed) = (of(Sampling::BallsInBins), of(Sampling::FixedOrder));
    assert_eq!(secret.sampling_key, Some(SamplingKey::DerivedFromNoiseKey));
    let verdict = verify(&secret);
    assert!(verdict.is_private(), "{verdict}");
    let line = "sampling_key: derived from the noise key, which is a key from the operating system";
    assert!(verdict.to_string().contains(line), "{verdict}");
    secret.sampling_key = None;
    assert!(verify(&secret).is_private());
    assert_eq!(fixed.sampling_key, None);
    fixed.sampling_key = Some(SamplingKey::DerivedFromNoiseKey);
    assert!(!verify(&fixed).holds());
}

/// 48 steps in groups of as many as the strategy has diagonals, 5 of 60 examples each on average.
fn poisson(method: Method, groups: usize) -> PlanRequest {
    let sampling = if groups == 1 { Sampling::Poisson } else { Sampling::CyclicPoisson };
    PlanRequest {
        min_separation: groups,
        max_participations: None,
        examples: Some(u64::from(EXAMPLES)),
        ..request(method).with_sampling(sampling)
    }
}

#[test]
fn poisson_batches_have_the_noise_of_their_accountant() {
    let plan = poisson(Method::Identity, 1).plan().unwrap();
    let account = Poisson::new(Neighbouring::ZeroOut, 5.0 / 60.0, 48).unwrap();
    let multiplier = account.multiplier(4.0, 1e-5).unwrap();
    // The plan's noise is wider by the rounding of sums.
    let rounding = 1.0 + plan.record().sum_rounding;
    assert!((plan.noise_std() / (1.5 * multiplier * rounding) - 1.0).abs() < 1e-7);
    let banded = poisson(Method::Bsr { bands: 4 }, 4).plan().unwrap();
    let norm = banded.strategy().row(47).iter().map(|c| c * c).sum::<f64>().sqrt();
    let account = Poisson::new(Neighbouring::ZeroOut, 4.0 * 5.0 / 60.0, 12).unwrap();
    let multiplier = account.multiplier(4.0, 1e-5).unwrap();
    assert!((banded.noise_std() / (1.5 * norm * multiplier * rounding) - 1.0).abs() < 1e-7);
    // Everyone in every step of the group: as much noise as if that were known.
    let everyone = PlanRequest { batch_size: 15, ..poisson(Method::Bsr { bands: 4 }, 4) };
    let known = everyone.clone().with_sampling(Sampling::FixedOrder);
    assert!(matches!(known.clone().plan(), Err(PlanError::UnusedExamples)));
    let known = PlanRequest { examples: None, ..known }.plan().unwrap();
    let ratio = everyone.plan().unwrap().noise_std() / known.noise_std();
    assert!((ratio - 1.0).abs() < 1e-4 && ratio > 1.0 - 1e-6, "{ratio}");
}

#[test]
fn poisson_batches_that_the_accountant_does_not_cover_have_no_plan() {
    let refused = |request: PlanRequest| request.plan().unwrap_err();
    let bsr = Method::Bsr { bands: 4 };
    let correlated = PlanRequest { sampling: Sampling::Poisson, ..poisson(bsr, 1) };
    assert!(matches!(refused(correlated), PlanError::FreshNoise { .. }));
    assert!(matches!(refused(poisson(bsr, 6)), PlanError::Groups { bands: 4, groups: 6 }));
    assert!(matches!(refused(poisson(bsr, 3)), PlanError::Groups { bands: 4, groups: 3 }));
    let full = poisson(Method::Bisr { bands: 4 }, 4);
    assert!(matches!(refused(full), PlanError::Groups { bands: 48, .. }));
    let unknown = PlanRequest { examples: None, ..poisson(bsr, 4) };
    assert!(matches!(refused(unknown), PlanError::Examples));
    let fewer = PlanRequest { max_participations: Some(3), ..poisson(bsr, 4) };
    assert!(matches!(refused(fewer), PlanError::Turns { most: 12 }));
    let other = poisson(bsr, 4).with_neighbouring(Neighbouring::ReplaceOne);
    assert!(matches!(refused(other), PlanError::Accounting(_)));
    let crowded = PlanRequest { batch_size: 16, ..poisson(bsr, 4) };
    assert!(matches!(refused(crowded), PlanError::Accounting(_)));
    let coins = poisson(bsr, 4).with_accountant(Accountant::Verified);
    assert!(matches!(refused(coins), PlanError::NoChoice));
    // The data has to be what the probability was computed for.
    let plan = poisson(bsr, 4).plan().unwrap();
    let key = NoiseKey::fixed(RunSeed(1));
    let other = Training::new(plan, vec![0.1; 3], EXAMPLES + 1, 0.05, RunSeed(7), key);
    assert!(matches!(other, Err(TrainingError::OtherExamples { planned: 60, found: 61 })));
}

#[test]
fn a_run_on_poisson_batches_goes_on_and_tells_nothing_of_them() {
    let seal = Seal::default();
    for (method, groups) in [(Method::Identity, 1), (Method::Bsr { bands: 4 }, 4)] {
        let plan = || poisson(method, groups).plan().unwrap();
        let mut whole = run(plan(), NoiseKey::from_os().unwrap());
        let mut first = Vec::new();
        for step in 0..48 {
            if step == 17 {
                whole.save(&mut first, &seal, b"").unwrap();
            }
            let mut batch = Vec::new();
            whole
                .step(|parameters, examples, sum| {
                    batch = examples.to_vec();
                    clip(parameters, examples, sum)
                })
                .unwrap();
            assert!(batch.iter().all(|example| *example as usize % groups == step % groups));
        }
        let (mut rest, _) =
            Training::load(plan(), EXAMPLES, 0.05, RunSeed(7), &seal, first.as_slice()).unwrap();
        while !rest.is_finished() {
            rest.step(clip).unwrap();
        }
        assert_eq!(rest.parameters(), whole.parameters());
        let honest = certificate(&whole);
        let uses = &honest.realized;
        assert_eq!((uses.examples_used, uses.most_uses, uses.least_gap), (0, 0, None));
        let verdict = verify(&honest);
        assert!(verdict.is_private() && verdict.epsilon == Some(4.0), "{verdict}");
        // Three such runs are three times as many rounds, which cost less than Gaussian releases of their noise.
        let release = honest.plan.release().unwrap();
        let tried = [Tried { runs: 3, release, held_out: false }];
        let all = honest.clone().with_tried(&tried);
        let together = all.epsilon_all_trials.unwrap();
        assert!(together > 4.0 && verify(&all).is_private(), "{}", verify(&all));
        let known = calibration::epsilon(honest.plan.noise_multiplier / 3_f64.sqrt(), 1e-5);
        let rounds = 48 / groups as u64;
        let probability = groups as f64 * 5.0 / 60.0;
        let account = Poisson::new(Neighbouring::ZeroOut, probability, rounds).unwrap();
        let (single, three) = (
            account.multiplier(4.0, 1e-5).unwrap(),
            Poisson::new(Neighbouring::ZeroOut, probability, 3 * rounds).unwrap(),
        );
        let expected = three.epsilon(single, 1e-5).unwrap().worst();
        assert!((together / expected - 1.0).abs() < 1e-4, "{together} {expected}");
        assert!(together < known.unwrap());
        // Plans that do not state the longest column are charged as if the batches were known.
        if groups > 1 {
            let mut old = honest.clone();
            old.plan.amplification.as_mut().unwrap().largest_column = None;
            let tried = [Tried { release: old.plan.release().unwrap(), ..tried[0] }];
            let old = old.with_tried(&tried);
            let together = old.epsilon_all_trials.unwrap();
            assert!((together / known.unwrap() - 1.0).abs() < 1e-9);
            assert!(verify(&old).is_private(), "{}", verify(&old));
        }
        let alterations: [fn(&mut Certificate); 9] = [
            |c| {
                // A column that is shorter, or that such a plan does not have.
                let found = &mut c.plan.amplification.as_mut().unwrap().largest_column;
                *found = Some(found.map_or(1.0, |column| 0.99 * column));
            },
            |c| c.plan.noise_std *= 0.999,
            |c| {
                c.plan.noise_std *= 0.9;
                c.plan.noise_multiplier *= 0.9;
                c.plan.iterate_noise_std *= 0.9;
                c.plan.final_iterate_noise_std *= 0.9;
            },
            |c| c.plan.request.examples = Some(600),
            |c| c.plan.request.batch_size = 4,
            |c| c.plan.request.sampling = Sampling::FixedOrder,
            |c| c.plan.request.sampling = Sampling::BallsInBins,
            |c| c.realized.examples_used = 60,
            |c| c.realized.examples = 600,
        ];
        for alter in alterations {
            let mut forged = honest.clone();
            alter(&mut forged);
            assert!(!verify(&forged).holds(), "{}", verify(&forged));
        }
    }
}
