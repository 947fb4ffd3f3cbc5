//! Damaged certificates and checkpoints: refused, or nothing that privacy rests on has changed.

use dp_train::certificate::{Certificate, Disclosure, Exposure, Metric};
use dp_train::gradient::ClippedSum;
use dp_train::noise::NoiseStream;
use dp_train::plan::{DpPlan, PlanRequest, StrategyFor};
use dp_train::seal::Seal;
use dp_train::seeds::{NoiseKey, RunSeed};
use dp_train::training::{Training, TrainingError};
use dp_train::verification;
use mf_core::{Method, Sgd};

#[path = "../../mf-core/tests/fuzzing/mod.rs"]
mod fuzzing;

#[path = "fuzz/claims.rs"]
mod claims;

use fuzzing::{Kind, Target};

const STEPS: usize = 12;
const EXAMPLES: u32 = 17;
const RATE: f32 = 0.05;
const SEED: RunSeed = RunSeed(7);

fn plan(method: Method) -> DpPlan {
    let rates = (0..STEPS).map(|i| 1.0 - 0.05 * i as f64).collect();
    DpPlan::new(PlanRequest {
        sgd: Sgd::new(0.99, 0.9).unwrap(),
        learning_rates: (method == Method::SquareRoot).then_some(rates),
        workload_column: None,
        strategy_for: StrategyFor::default(),
        method,
        steps: STEPS,
        min_separation: 4,
        max_participations: Some(3),
        clip_norm: 1.5,
        batch_size: 4,
        epsilon: 4.0,
        delta: 1e-5,
        neighbouring: Default::default(),
        sampling: Default::default(),
        examples: None,
        accountant: Default::default(),
        dim: 3,
        keep_rows: None,
    })
    .unwrap()
}

/// Every form in which a strategy is stored and its noise is made.
fn methods() -> Vec<Method> {
    vec![
        Method::Identity,
        Method::SquareRoot,
        Method::Bsr { bands: 4 },
        Method::Bisr { bands: 3 },
        Method::Blt { buffers: 2 },
        Method::Toeplitz { bands: 3 },
        Method::InverseToeplitz { bands: 3 },
        Method::Aof { bands: 4, tolerance: 1e-3 },
    ]
}

/// Least squares towards a point per example.
fn clip(parameters: &[f32], batch: &[u32], sum: &mut ClippedSum) -> Result<(), TrainingError> {
    for &example in batch {
        let row: Vec<f32> = parameters.iter().map(|x| x - example as f32 / 17.0).collect();
        sum.add(&row)?;
    }
    Ok(())
}

fn trained(plan: DpPlan, steps: usize) -> Training {
    let key = NoiseKey::fixed(SEED);
    let mut training = Training::new(plan, vec![0.1; 3], EXAMPLES, RATE, SEED, key).unwrap();
    for _ in 0..steps {
        training.step(clip).unwrap();
    }
    training
}

fn seal() -> Seal {
    let mut seal = Seal::default();
    seal.bind("optimizer.momentum", "0.9");
    seal
}

fn saved(training: &Training) -> Vec<u8> {
    let mut bytes = Vec::new();
    training.save(&mut bytes, &seal(), b"a note").unwrap();
    bytes
}

fn loaded(plan: &DpPlan, bytes: &[u8]) -> Option<(Training, Vec<u8>)> {
    Training::load(plan.clone(), EXAMPLES, RATE, SEED, &seal(), bytes).ok()
}

fn certificate(method: Method) -> Certificate {
    let training = trained(plan(method), STEPS);
    let metrics = vec![Metric { name: "loss".into(), exposure: Exposure::NotPrivate }];
    let disclosure = Disclosure { metrics, trials: 2, ..Disclosure::default() };
    Certificate::new(training.plan(), training.key_origin(), training.ledger(), disclosure)
}

#[test]
fn a_damaged_certificate_is_refused_or_claims_no_more() {
    let honest: Vec<Certificate> = methods().into_iter().map(certificate).collect();
    let leaves: Vec<_> = honest
        .iter()
        .map(|honest| fuzzing::json::leaves(&serde_json::to_value(honest).unwrap()))
        .collect();
    let target = Target {
        name: "certificate",
        kind: Kind::Json,
        corpus: honest.iter().map(|honest| serde_json::to_vec(honest).unwrap()).collect(),
        inputs: 200,
        cost: 20,
        most_bytes: 16 << 20,
    };
    let mut skipped = 0;
    target.run(|input| {
        // As `bandroot verify` reads it.
        let text = input.text();
        let Ok(certificate) = serde_json::from_str::<Certificate>(&text) else { return Ok(false) };
        if claims::is_slow(&certificate) {
            skipped += 1;
            return Ok(false);
        }
        let verdict = verification::verify(&certificate);
        let shown = verdict.to_string();
        if !verdict.holds() {
            return if shown.ends_with("no") { Ok(false) } else { Err(shown) };
        }
        claims::judge(&certificate, &leaves[input.honest]).map(|()| true)
    });
    // In the record as well: they are no proof of anything.
    println!("# certificate: {skipped} inputs not verified because of their size");
}

#[test]
fn a_damaged_checkpoint_is_refused_or_the_same_state() {
    let plans: Vec<DpPlan> = methods().into_iter().map(plan).collect();
    let corpus: Vec<Vec<u8>> = plans.iter().map(|plan| saved(&trained(plan.clone(), 6))).collect();
    let state = |plan: &DpPlan, bytes: &[u8]| {
        loaded(plan, bytes).map(|(training, note)| (saved(&training), note))
    };
    let honest: Vec<_> =
        plans.iter().zip(&corpus).map(|(plan, bytes)| state(plan, bytes).unwrap()).collect();
    let target = Target {
        name: "checkpoint",
        kind: Kind::Binary,
        corpus,
        inputs: 5000,
        cost: 1,
        most_bytes: 4 << 20,
    };
    target.run(|input| {
        let plan = &plans[input.honest];
        let Some((training, note)) = loaded(plan, input.bytes) else { return Ok(false) };
        if input.resealed {
            return finish(training).map(|()| true);
        }
        let same = (saved(&training), note) == honest[input.honest];
        if same { Ok(true) } else { Err("another state was loaded".into()) }
    });
}

/// Whoever makes the checksum right can write any state; it must be one in which a run can go on, within the
/// bounds of its plan.
fn finish(mut training: Training) -> Result<(), String> {
    if training.steps_taken() > STEPS {
        return Err(format!("{} steps of {STEPS} were taken", training.steps_taken()));
    }
    // A ledger may refuse; nothing may break.
    while !training.is_finished() && training.step(clip).is_ok() {}
    let realized = training.ledger().realized();
    let within = realized.steps <= STEPS
        && realized.most_uses <= 3
        && realized.least_gap.is_none_or(|gap| gap >= 4)
        && realized.examples == EXAMPLES as usize;
    if within { Ok(()) } else { Err(format!("a ledger beyond the plan: {realized:?}")) }
}

#[test]
fn a_damaged_noise_checkpoint_is_refused_or_the_same_stream() {
    let strategies: Vec<_> =
        methods().into_iter().map(|method| plan(method).strategy().clone()).collect();
    let streams: Vec<NoiseStream> = strategies
        .iter()
        .map(|strategy| {
            let key = NoiseKey::fixed(SEED);
            let mut stream = NoiseStream::new(strategy.clone(), 3, key).unwrap();
            (0..5).for_each(|_| stream.add_next(1.0, &mut [0.0; 3]).unwrap());
            stream
        })
        .collect();
    let bytes = |stream: &NoiseStream| {
        let mut bytes = Vec::new();
        stream.save(&mut bytes).unwrap();
        bytes
    };
    let target = Target {
        name: "noise checkpoint",
        kind: Kind::Binary,
        corpus: streams.iter().map(bytes).collect(),
        inputs: 5000,
        cost: 1,
        most_bytes: 4 << 20,
    };
    target.run(|input| {
        let strategy = strategies[input.honest].clone();
        let Ok(mut stream) = NoiseStream::load(strategy, 3, input.bytes) else { return Ok(false) };
        if !input.resealed {
            let same = stream == streams[input.honest];
            return if same { Ok(true) } else { Err("another stream was loaded".into()) };
        }
        // As far as it goes, and no row twice.
        let left = STEPS.checked_sub(stream.next_step()).ok_or("it is beyond its last step")?;
        let mut rows = 0;
        while stream.add_next(1.0, &mut [0.0; 3]).is_ok() {
            rows += 1;
        }
        if rows == left { Ok(true) } else { Err(format!("{rows} rows where {left} were left")) }
    });
}
