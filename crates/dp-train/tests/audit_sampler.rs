//! The audit of secret batches finds nothing in ours and something in every broken sampler.
//!
//! The broken samplers are built here; production code has no switch for them.

use dp_train::audit::sampler::{Drawn, drawn};
use dp_train::audit::{AuditError, AuditReport, audit, audit_mechanism, audit_sampler, canary};
use dp_train::batches::Batches;
use dp_train::plan::{DpPlan, PlanRequest, Sampling};
use dp_train::seeds::{NoiseKey, RunSeed};
use dp_train::{Budget, Clipping};
use mf_core::{Method, Participation, Sgd};

/// Two epochs of 8 steps.
fn request(method: Method) -> PlanRequest {
    PlanRequest::new(
        method,
        Sgd::new(0.999, 0.9).unwrap(),
        Participation::epochs(2, 8).unwrap(),
        Budget { epsilon: 4.0, delta: 1e-5 },
        Clipping { batch_size: 8, clip_norm: 1.0 },
        1000,
    )
    .with_sampling(Sampling::BallsInBins)
}

fn poisson(method: Method, groups: usize) -> DpPlan {
    let sampling = if groups == 1 { Sampling::Poisson } else { Sampling::CyclicPoisson };
    let request = PlanRequest {
        min_separation: groups,
        max_participations: None,
        examples: Some(64),
        ..request(method).with_sampling(sampling)
    };
    request.plan().unwrap()
}

/// Batches of everyone in every epoch, from a permutation by the number.
fn shuffled(plan: &DpPlan, number: u64) -> Drawn {
    let batches = Batches::new(64, 8, RunSeed(number)).unwrap();
    let sorted = |step| {
        let mut batch = batches.batch(step).into_owned();
        batch.sort_unstable();
        batch
    };
    (0..plan.request().steps).map(sorted).collect()
}

/// A number that a key decides.
fn number(plan: &DpPlan, key: &NoiseKey) -> u64 {
    let drawn = drawn(plan, key).unwrap();
    drawn.concat().iter().fold(0, |sum: u64, x| sum.wrapping_mul(31).wrapping_add(u64::from(*x)))
}

fn audited(
    plan: &DpPlan,
    draw: impl Fn(&DpPlan, &NoiseKey) -> Result<Drawn, AuditError> + Sync,
) -> AuditReport {
    audit_sampler(plan, 64_000, RunSeed(1), draw).unwrap()
}

#[test]
fn our_samplers_pass_and_the_bound_comes_near_the_claim() {
    for (plan, least) in [
        (request(Method::Bsr { bands: 8 }).plan().unwrap(), 2.0),
        (request(Method::Identity).plan().unwrap(), 1.8),
        (request(Method::Bisr { bands: 2 }).plan().unwrap(), 2.0),
        (poisson(Method::Identity, 1), 1.0),
        (poisson(Method::Bsr { bands: 4 }, 4), 1.5),
    ] {
        let report = audit(&plan, 400_000, RunSeed(1)).unwrap();
        println!("{}, {}\n{report}", plan.request().method, plan.request().sampling);
        assert!(report.passed() && report.batches_as_planned == Some(true), "{report}");
        assert!(report.epsilon_lower_bound > least, "{report}");
        let known = audit_mechanism(&plan, 64_000, RunSeed(1), canary::released_sums);
        assert!(matches!(known, Err(AuditError::Sampling { .. })));
    }
}

#[test]
fn a_published_order_is_found() {
    let plan = request(Method::Bsr { bands: 8 }).plan().unwrap();
    // By a seed that stands in the config, or by a key that other runs had too.
    let report = audited(&plan, |plan, _| drawn(plan, &NoiseKey::fixed(RunSeed(0))));
    assert_eq!(report.batches_as_planned, Some(false), "{report}");
    assert!(!report.passed());
    let plan = poisson(Method::Identity, 1);
    let report = audited(&plan, |plan, _| drawn(plan, &NoiseKey::fixed(RunSeed(0))));
    assert_eq!(report.batches_as_planned, Some(false), "{report}");
}

#[test]
fn slots_that_are_drawn_anew_in_every_epoch_are_found() {
    let plan = request(Method::Bsr { bands: 8 }).plan().unwrap();
    let report = audited(&plan, |plan, key| {
        let other = NoiseKey::fixed(RunSeed(number(plan, key)));
        let (first, second) = (drawn(plan, key)?, drawn(plan, &other)?);
        Ok([&first[..8], &second[8..]].concat())
    });
    assert_eq!(report.batches_as_planned, Some(false), "{report}");
}

#[test]
fn batches_of_one_size_are_found() {
    let plan = request(Method::Bsr { bands: 8 }).plan().unwrap();
    let report = audited(&plan, |plan, key| Ok(shuffled(plan, number(plan, key))));
    assert_eq!(report.batches_as_planned, Some(false), "{report}");
    // Accounted for as Poisson.
    let plan = poisson(Method::Identity, 1);
    let report = audited(&plan, |plan, key| Ok(shuffled(plan, number(plan, key))));
    assert_eq!(report.batches_as_planned, Some(false), "{report}");
}

#[test]
fn examples_that_come_too_often_are_found_by_the_attack_too() {
    // Everyone in every step, with the noise of a sampled batch.
    let plan = poisson(Method::Identity, 1);
    let report =
        audited(&plan, |plan, _| Ok(vec![(0..64).collect::<Vec<u32>>(); plan.request().steps]));
    assert_eq!(report.batches_as_planned, Some(false), "{report}");
    assert!(report.epsilon_lower_bound > 4.0, "{report}");
}
