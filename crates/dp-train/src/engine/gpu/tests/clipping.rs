//! What clipping promises.

use super::*;
use crate::engine::attacks::{Cancelling, Vanishing, excess};
use crate::engine::gpu::kernels::lanes::Form;
use crate::engine::gpu::network::{Clipping, Network, Op};
use crate::gradient::SUM_ROUNDING;

/// A held convolution, normalization, a ghost, and a linear layer.
fn mixed() -> Architecture {
    let layers = vec![
        conv(3, 6, 3, 1, 1),
        Layer::GroupNorm { groups: 2 },
        Layer::Relu,
        Layer::MaxPool2d { kernel: 2, stride: 2 },
        conv(6, 40, 3, 2, 1),
        Layer::Relu,
    ];
    classifier((3, 6, 6), layers)
}

#[test]
fn one_example_moves_the_sum_by_at_most_the_clip_norm() {
    let Some(gpu) = gpu() else { return };
    let parameters = initial_parameters(&mixed(), RunSeed(5)).iter().map(|p| 2.0 * p).collect();
    let case = Case::with(mixed(), parameters, 20);
    let pixels = case.architecture.input().len();
    let clips = [1e-18, 1e-4, 0.1, 1.0];
    for (form, clip) in forms(gpu).into_iter().flat_map(|form| clips.map(|clip| (form, clip))) {
        let mut engine = case.engine_in(form, gpu);
        for example in [0, 7] {
            let image = &case.images[example * pixels..][..pixels];
            let one = Batch::new(image, &case.labels[example..=example]);
            let (sum, _) = engine.clipped_sum(&case.parameters, one, clip).unwrap();
            let counts = sum.counts();
            let size = norm(&sum.into_values());
            assert!(size <= clip, "{clip}: {:e}", size / clip - 1.0);
            assert!(counts.clipped == 0 || size >= clip * (1.0 - 3e-4), "{size} {clip}");
        }
        let (all, _) = engine.clipped_sum(&case.parameters, case.batch(), clip).unwrap();
        let rest = Batch::new(&case.images[pixels..], &case.labels[1..]);
        let (rest, _) = engine.clipped_sum(&case.parameters, rest, clip).unwrap();
        let moved = distance(&all.into_values(), &rest.into_values());
        assert!(moved <= clip * (1.0 + 1e-5), "{clip}: {:e}", moved / clip - 1.0);
    }
}

#[test]
fn views_are_averaged_before_their_mean_is_clipped() {
    let Some(gpu) = gpu() else { return };
    for views in [2, 3] {
        // Each view has its own label in the case; only the first of an example counts here.
        let mut case = Case::new(mixed(), 6 * views);
        let labels: Vec<u32> = case.labels.iter().step_by(views).copied().collect();
        let pixels = case.architecture.input().len();
        let of_views = case.images.chunks(pixels).enumerate().map(|(i, image)| {
            let label = labels[i / views] as usize;
            reference::example(&case.architecture, &wide(&case.parameters), &wide(image), label)
        });
        case.examples = of_views.collect();
        let means: Vec<Vec<f64>> = case
            .examples
            .chunks(views)
            .map(|views| {
                let mean = |i: usize| views.iter().map(|v| v.gradient[i]).sum::<f64>();
                (0..case.parameters.len()).map(|i| mean(i) / views.len() as f64).collect()
            })
            .collect();
        let clip = norm(&means[2]) * 1.001;
        let mut expected = vec![0.0; case.parameters.len()];
        for mean in &means {
            let factor = (clip / norm(mean)).min(1.0);
            expected.iter_mut().zip(mean).for_each(|(s, g)| *s += factor * g);
        }
        let batch = Batch::new(&case.images, &labels).with_views(views);
        for form in forms(gpu) {
            let mut engine = case.engine_in(form, gpu);
            let (sum, metrics) = engine.clipped_sum(&case.parameters, batch, clip).unwrap();
            assert_eq!((sum.counts().examples, metrics.images), (6, 6 * views));
            let error = distance(&sum.into_values(), &expected) / norm(&expected);
            assert!(error < 3e-4, "{form:?}, {views} views: {error:e}");
            let (plain, _) = engine.gradient_sum(&case.parameters, batch).unwrap();
            let error = distance(&plain, &case.sum(|_| 1.0)) / norm(&case.sum(|_| 1.0));
            assert!(error < 1e-5, "{form:?}, {views} views: {error:e}");
        }
    }
}

/// Numbers at the ends of f32, and none at all.
const EXTREMES: [f32; 8] =
    [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1.8e19, 3e18, f32::MIN_POSITIVE, 1e-45];

#[test]
fn examples_that_are_not_finite_contribute_zero_and_end_nothing() {
    let Some(gpu) = gpu() else { return };
    let case = Case::new(mixed(), 4);
    for form in forms(gpu) {
        extremes(&case, &mut case.engine_in(form, gpu));
    }
}

fn extremes(case: &Case, engine: &mut GpuEngine) {
    let pixels = case.architecture.input().len();
    let kept = [&case.images[..pixels], &case.images[2 * pixels..]].concat();
    let labels = [&case.labels[..1], &case.labels[2..]].concat();
    for extreme in EXTREMES {
        for range in [pixels + 40..pixels + 41, pixels..2 * pixels] {
            let mut images = case.images.clone();
            images[range].fill(extreme);
            for clip_norm in [0.7, 1e-30, 1e30] {
                let batch = Batch::new(&images, &case.labels);
                let (sum, _) = engine.clipped_sum(&case.parameters, batch, clip_norm).unwrap();
                let counts = sum.counts();
                let sum = sum.into_values();
                assert!(extreme.is_finite() || counts.non_finite == 1, "{extreme}: {counts:?}");
                let kept = Batch::new(&kept, &labels);
                let (without, _) = engine.clipped_sum(&case.parameters, kept, clip_norm).unwrap();
                let moved = distance(&sum, &without.into_values());
                let most =
                    if counts.non_finite == 1 { 1e-6 * norm(&sum) } else { 1.00001 * clip_norm };
                assert!(moved <= most, "{extreme:e} at {clip_norm:e}: {moved:e}");
            }
        }
    }
    // A weight at the ends of f32 makes every example bad at most.
    for tensor in case.architecture.parameters() {
        for extreme in EXTREMES {
            let mut weights = case.parameters.clone();
            weights[tensor.range.start] = extreme;
            let (sum, _) = engine.clipped_sum(&weights, case.batch(), 1.0).unwrap();
            assert!(norm(&sum.into_values()) <= 4.00001, "{extreme:e} in {}", tensor.name);
        }
    }
}

/// Whether a convolution over several pixels has ghost norms.
fn has_ghost_convolution(architecture: &Architecture) -> bool {
    let network = Network::new(architecture, 1, Form::Tiles).unwrap();
    network.ops.iter().any(|op| {
        matches!(op, Op::Convolution { g, clipping: Clipping::Ghost { .. }, .. } if g.area() > 1)
    })
}

#[test]
fn attacks_on_ghost_norms_and_on_the_sums_of_a_block_stay_within_the_allowance() {
    let Some(gpu) = gpu() else { return };
    let engine = |architecture: &Architecture, form| {
        let mut engine = GpuEngine::new(architecture, gpu, EngineOptions::default()).unwrap();
        engine.set_form(form);
        engine
    };
    let (vanishing, cancelling) = (Vanishing::new(), Cancelling::new());
    assert!(has_ghost_convolution(&vanishing.architecture));
    assert!(has_ghost_convolution(&cancelling.architecture));
    for form in forms(gpu) {
        vanishing.run(&mut engine(&vanishing.architecture, form));
        let worst = cancelling.run(&mut engine(&cancelling.architecture, form), 60);
        println!("cancellation: excess {worst:.1e} in {form:?}");
        assert!(worst > -1e-3, "the example is not in the sum: {worst:e}");
        // The rest is for the rounding to the grid on which noise is added.
        assert!(worst <= 0.75 * SUM_ROUNDING, "{form:?}: {worst:e} more than the clip norm");
    }
}

#[test]
fn no_example_moves_a_sum_by_more_than_the_noise_allows_for() {
    let Some(gpu) = gpu() else { return };
    let held = || classifier((3, 9, 8), vec![conv(3, 8, 3, 1, 1), Layer::Relu]);
    let ghosts = || {
        let layers = vec![conv(3, 16, 3, 1, 1), Layer::Relu, conv(16, 32, 3, 1, 1), Layer::Tanh];
        classifier((3, 4, 4), layers)
    };
    let mut worst = f64::NEG_INFINITY;
    let shapes = [(held(), 100, 1), (ghosts(), 120, 1), (held(), 40, 3)];
    let cases =
        forms(gpu).into_iter().flat_map(|form| shapes.iter().map(move |shape| (form, shape)));
    for (form, &(ref architecture, examples, views)) in cases {
        let parameters = initial_parameters(architecture, RunSeed(2));
        let (images, labels) = batch(architecture, examples * views);
        let pixels = architecture.input().len();
        let mut engine = GpuEngine::new(architecture, gpu, EngineOptions::default()).unwrap();
        engine.set_form(form);
        for alike in [true, false] {
            let one = |i: usize| if alike { 0 } else { i };
            let images: Vec<f32> = (0..examples * views)
                .flat_map(|i| images[one(i) * pixels..][..pixels].to_vec())
                .collect();
            let labels: Vec<u32> = (0..examples).map(|i| labels[one(i)]).collect();
            let batch = Batch::new(&images, &labels).with_views(views);
            for (clip, which) in [(1e-3, 0), (1e-9, examples / 2), (30.0, examples - 1)] {
                worst = worst.max(excess(&mut engine, &parameters, batch, clip, which));
            }
        }
    }
    println!("excess {worst:.1e}");
    assert!(worst <= 0.75 * SUM_ROUNDING, "{worst:e} more than the clip norm");
}
