//! Runs without privacy.

use dp_train::gradient::NonPrivateGradient;
use dp_train::training::non_private::{NonPrivateRequest, NonPrivateTraining};

use super::*;

pub(crate) fn non_private_request(factors: Option<Vec<f64>>) -> NonPrivateRequest {
    let sgd = Sgd::new(0.99, 0.9).unwrap();
    NonPrivateRequest { sgd, learning_rate: 0.05, factors, steps: 15, batch_size: 4, dim: 6 }
}

pub(crate) fn mean(parameters: &[f32], batch: &[u32]) -> Result<NonPrivateGradient, TrainingError> {
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
