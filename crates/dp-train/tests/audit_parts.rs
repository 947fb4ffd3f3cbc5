//! The parts of the audit find nothing in what is shipped, and bugs that the main attack cannot see:
//! it has one tile, no engine and no resume.
//!
//! The broken mechanisms are built here from the public pieces; production code has no switch for
//! them. A false alarm has probability below 0.11 % per attack, and the seeds are fixed.

use dp_train::audit::canary::World;
use dp_train::audit::examples::Examples;
use dp_train::audit::part::{Part, ReleasedRows, Target};
use dp_train::audit::{AuditError, AuditReport, PartReport, audit, spread};
use dp_train::engine::{Batch, GradientEngine};
use dp_train::gradient::PerSampleGradients;
use dp_train::noise::normal::TILE;
use dp_train::plan::{DpPlan, PlanRequest, StrategyFor};
use dp_train::seeds::{NoiseKey, RunSeed};
use mf_core::{Method, Sgd};

const TRIALS: u64 = 6400;
const EPSILON: f64 = 4.0;

fn plan(method: Method, clip_norm: f64) -> DpPlan {
    DpPlan::new(PlanRequest {
        sgd: Sgd::new(0.999, 0.9).unwrap(),
        learning_rates: None,
        workload_column: None,
        strategy_for: StrategyFor::ConstantRate,
        method,
        steps: 20,
        min_separation: 5,
        max_participations: None,
        clip_norm,
        batch_size: 16,
        epsilon: EPSILON,
        delta: 1e-5,
        neighbouring: Default::default(),
        sampling: Default::default(),
        examples: None,
        accountant: Default::default(),
        dim: 1_000_000,
        keep_rows: None,
    })
    .unwrap()
}

fn bsr() -> DpPlan {
    plan(Method::Bsr { bands: 5 }, 1.0)
}

/// The noise of a run: what the mechanism releases of empty batches.
fn noise(part: &Part, key: NoiseKey) -> Result<ReleasedRows, AuditError> {
    let request = part.plan.request();
    part.released(key, |_| Ok(PerSampleGradients::new(request.dim).clip(request.clip_norm)?))
}

/// Attacks noise that a bug had its hands on, under the canaries' contributions as they were
/// measured.
fn attack_noise(part: &Part, bug: impl Fn(&mut ReleasedRows) + Sync) -> PartReport {
    attack_noise_with(TRIALS, part, bug)
}

fn attack_noise_with(
    trials: u64,
    part: &Part,
    bug: impl Fn(&mut ReleasedRows) + Sync,
) -> PartReport {
    let run = |world: World, key: NoiseKey| {
        let mut rows = noise(part, key)?;
        bug(&mut rows);
        for (row, _) in rows.iter_mut().zip(&part.canary.takes_part).filter(|(_, there)| **there) {
            row.iter_mut().zip(part.total(world)).for_each(|(x, v)| *x += *v as f32);
        }
        Ok(rows)
    };
    part.attack(trials, RunSeed(1), run).unwrap()
}

fn spread_canaries(target: Target) -> Part {
    spread::spread(target, &bsr()).unwrap()
}

#[test]
fn noise_without_a_bug_passes_in_every_part() {
    for method in [Method::Bsr { bands: 5 }, Method::Bisr { bands: 4 }, Method::Blt { buffers: 2 }]
    {
        let plan = plan(method, 0.3);
        let mut parts = [Target::Tiles, Target::Resume].map(|t| spread::spread(t, &plan).unwrap());
        for part in &mut parts {
            let report = attack_noise(part, |_| {});
            assert!(report.passed(EPSILON), "{method}\n{report}");
            assert!(report.epsilon_lower_bound_if_gaussian > 3.0, "{method}\n{report}");
        }
        let part = Examples::new(0.3).unwrap().part(&plan).unwrap();
        let report = attack_noise(&part, |_| {});
        assert!(report.passed(EPSILON), "{method}\n{report}");
        assert!(report.epsilon_lower_bound_if_gaussian > 2.3, "{method}\n{report}");
    }
}

#[test]
fn a_tile_with_the_noise_of_the_tile_before_is_caught() {
    let report = attack_noise(&spread_canaries(Target::Tiles), |rows| {
        rows.iter_mut().for_each(|row| row.copy_within(..TILE, TILE));
    });
    println!("tile copied\n{report}");
    assert!(!report.noise_as_planned && !report.passed(EPSILON), "{report}");
}

#[test]
fn a_last_tile_without_noise_is_caught() {
    let report = attack_noise(&spread_canaries(Target::Tiles), |rows| {
        rows.iter_mut().for_each(|row| row[2 * TILE..].fill(0.0));
    });
    println!("last tile bare\n{report}");
    assert!(!report.noise_as_planned && !report.passed(EPSILON), "{report}");
}

/// Half the noise of one canary of 64. It takes more trials than the least number, which leave it
/// at 5.8 of 6 sigma.
#[test]
fn a_single_coordinate_without_noise_is_caught_with_20_000_trials() {
    let report = attack_noise_with(20_000, &spread_canaries(Target::Tiles), |rows| {
        rows.iter_mut().for_each(|row| row[spread::COORDINATES - 1] = 0.0);
    });
    println!("last coordinate bare\n{report}");
    assert!(!report.noise_as_planned && !report.passed(EPSILON), "{report}");
}

#[test]
fn panels_that_share_the_noise_at_their_edge_are_caught() {
    let report = attack_noise(&spread_canaries(Target::Tiles), |rows| {
        for row in rows {
            (16..row.len()).step_by(16).for_each(|edge| row[edge] = row[edge - 1]);
        }
    });
    println!("panels share an edge\n{report}");
    assert!(!report.noise_as_planned && !report.passed(EPSILON), "{report}");
}

#[test]
fn a_resume_that_uses_the_last_row_again_is_caught() {
    let part = spread_canaries(Target::Resume);
    let at = part.resume_at.unwrap();
    let report = attack_noise(&part, |rows| rows[at] = rows[at - 1].clone());
    println!("row used again after a resume\n{report}");
    assert!(report.epsilon_lower_bound > EPSILON && !report.passed(EPSILON), "{report}");
    // Rows late by one from there on.
    let report = attack_noise(&part, |rows| {
        rows[at..].rotate_right(1);
        rows[at] = rows[at - 1].clone();
    });
    assert!(!report.noise_as_planned && !report.passed(EPSILON), "{report}");
}

#[test]
fn a_resume_that_starts_the_stream_again_is_caught() {
    let part = spread_canaries(Target::Resume);
    let at = part.resume_at.unwrap();
    let report = attack_noise(&part, |rows| {
        (at..rows.len()).for_each(|step| rows[step] = rows[step - at].clone());
    });
    println!("stream started again\n{report}");
    assert!(!report.noise_as_planned && !report.passed(EPSILON), "{report}");
}

#[test]
fn a_resume_that_lost_the_history_is_caught() {
    let part = spread_canaries(Target::Resume);
    let at = part.resume_at.unwrap();
    let run = |world: World, key: NoiseKey| {
        let mut rows = spread::released(&part, world, key)?;
        // A stream with a new key and nothing before it; any rows will do as long as they differ.
        let bits =
            rows[0].iter().fold(0, |hash: u64, x| hash.rotate_left(5) ^ u64::from(x.to_bits()));
        let fresh = noise(&part, NoiseKey::fixed(RunSeed(bits)))?;
        for step in at..rows.len() {
            rows[step].clone_from(&fresh[step - at]);
            if part.canary.takes_part[step] {
                rows[step].iter_mut().zip(part.total(world)).for_each(|(x, v)| *x += *v as f32);
            }
        }
        Ok(rows)
    };
    let report = part.attack(TRIALS, RunSeed(2), run).unwrap();
    println!("history lost\n{report}");
    assert!(!report.noise_as_planned && !report.passed(EPSILON), "{report}");
}

/// What canaries contribute to an engine that clips by `length` of their gradients, to `clip_norm`.
fn clipped_by(
    examples: &Examples,
    clip_norm: f64,
    length: impl Fn(&[f32]) -> f64,
) -> Result<Vec<Vec<f64>>, AuditError> {
    let mut engine = examples.engine()?;
    let labels = examples.labels(World::With);
    (0..labels.len())
        .map(|j| {
            let batch = Batch::new(examples.image(j), &labels[j..=j]);
            let (gradient, _) = engine.gradient_sum(&examples.parameters, batch)?;
            let scale = (clip_norm / length(&gradient)).min(1.0);
            Ok(gradient.iter().map(|&g| scale * f64::from(g)).collect())
        })
        .collect()
}

fn norm(gradient: &[f32]) -> f64 {
    gradient.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn an_engine_that_clips_to_twice_the_norm_is_caught() {
    let (plan, examples) = (bsr(), Examples::new(1.0).unwrap());
    let doubled = clipped_by(&examples, 2.0, norm).unwrap();
    let dim = examples.parameters.len();
    let part = Part::new(Target::Engine, &plan, dim, |j, _| Ok(doubled[j].clone())).unwrap();
    let report = attack_noise(&part, |_| {});
    println!("clipped to twice the norm\n{report}");
    assert!((report.longest_contribution - 2.0).abs() < 1e-6, "{report}");
    assert!(!report.contributions_within_clip_norm && !report.passed(EPSILON), "{report}");
    assert!(report.epsilon_lower_bound_if_gaussian > EPSILON, "{report}");
}

/// One at a time they are clipped well, so only the released sums tell.
#[test]
fn an_engine_that_clips_to_twice_the_norm_in_full_batches_is_caught() {
    let examples = Examples::new(1.0).unwrap();
    let part = examples.part(&bsr()).unwrap();
    let run = |world: World, key: NoiseKey| {
        let mut rows = examples.released(&part, world, key)?;
        for (row, _) in rows.iter_mut().zip(&part.canary.takes_part).filter(|(_, there)| **there) {
            row.iter_mut().zip(part.total(world)).for_each(|(x, v)| *x += *v as f32);
        }
        Ok(rows)
    };
    let report = part.attack(TRIALS, RunSeed(3), run).unwrap();
    println!("clipped to twice the norm in full batches\n{report}");
    assert!(report.contributions_within_clip_norm, "{report}");
    assert!(!report.noise_as_planned && !report.passed(EPSILON), "{report}");
}

#[test]
fn a_norm_that_leaves_out_a_layer_is_caught() {
    let (plan, examples) = (bsr(), Examples::new(1.0).unwrap());
    let layers = [0, 3, 7].map(|layer| {
        let tensors = examples.architecture.parameters_of(layer);
        tensors[0].range.start..tensors[1].range.end
    });
    for left_out in layers {
        let length = |gradient: &[f32]| {
            let mut gradient = gradient.to_vec();
            gradient[left_out.clone()].fill(0.0);
            norm(&gradient)
        };
        let wrong = clipped_by(&examples, 1.0, length).unwrap();
        let dim = examples.parameters.len();
        let part = Part::new(Target::Engine, &plan, dim, |j, _| Ok(wrong[j].clone())).unwrap();
        let report = attack_noise(&part, |_| {});
        println!("norm without {left_out:?}\n{report}");
        assert!(report.longest_contribution > 1.05 && !report.passed(EPSILON), "{report}");
    }
}

#[test]
fn a_report_names_its_parts_and_fails_with_any_of_them() {
    let mut report = audit(&bsr(), 6400, RunSeed(4)).unwrap();
    assert!(report.passed(), "{report}");
    let names: Vec<&str> = report.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["tiles", "resume", "engine"]);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<AuditReport>(&text).unwrap(), report);
    for part in 0..3 {
        let mut failed = report.clone();
        failed.parts[part].noise_as_planned = false;
        assert!(!failed.passed() && failed.to_string().contains("FAILED"));
    }
    report.parts[2].contributions_within_clip_norm = false;
    assert!(!report.passed() && report.to_string().contains("TOO LONG"));
    // Reports from before there were parts.
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value.as_object_mut().unwrap().remove("parts");
    assert!(serde_json::from_value::<AuditReport>(value).unwrap().parts.is_empty());
}
