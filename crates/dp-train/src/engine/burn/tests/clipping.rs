//! What clipping promises, on every device.

use super::*;

/// Recomputed in f64: no clipped gradient is longer than the clip norm, nor much shorter.
fn check_bound(device: Device, architecture: Architecture, examples: usize, clips: &[f64]) {
    let mut case = Case::new(architecture, examples);
    // Larger weights: norms of many sizes.
    case.parameters.iter_mut().for_each(|p| *p *= 2.0);
    let mut engine = case.engine(device, 0);
    for &clip in clips {
        for example in 0..examples {
            let one = case.one(example);
            let (sum, _) = engine.clipped_sum(&case.parameters, one, clip).unwrap();
            let counts = sum.counts();
            let size = norm(&wide(&sum.into_values()));
            // What the norm is rounded up by is more than the scaled gradient can be rounded up by.
            assert!(size <= clip, "{device} {clip}: {:e}", size / clip - 1.0);
            assert!(counts.clipped == 0 || size >= clip * (1.0 - 3e-4), "{device}: {size} {clip}");
            assert_eq!(counts.non_finite, 0);
        }
        // And beside the others.
        let (all, _) = engine.clipped_sum(&case.parameters, case.batch(), clip).unwrap();
        let pixels = case.images.len() / examples;
        let rest = Batch::new(&case.images[pixels..], &case.labels[1..]);
        let (rest, _) = engine.clipped_sum(&case.parameters, rest, clip).unwrap();
        let moved = distance(&all.into_values(), &wide(&rest.into_values()));
        assert!(moved <= clip * (1.0 + 1e-5), "{device} {clip}: {:e}", moved / clip - 1.0);
    }
}

#[test]
fn one_example_moves_the_sum_by_at_most_the_clip_norm() {
    let ghosts = || {
        let layers = vec![conv(3, 20, 3, 4, 1), Layer::Relu, conv(20, 40, 3, 1, 1), Layer::Tanh];
        classifier((3, 9, 8), layers)
    };
    for device in cpus() {
        check_bound(device, ghosts(), 6, &[1e-18, 1e-4, 0.1, 1.0]);
    }
    check_bound(Device::Flex, convnet(), 6, &[1e-4, 0.1, 1.0]);
    if let Some(gpu) = gpu() {
        check_bound(gpu, ghosts(), 3, &[1e-4, 0.1]);
    }
}

#[test]
fn non_finite_examples_contribute_zero_and_are_counted() {
    let layers = vec![
        conv(3, 6, 3, 1, 1),
        Layer::GroupNorm { groups: 2 },
        Layer::Relu,
        Layer::MaxPool2d { kernel: 2, stride: 2 },
        conv(6, 40, 3, 2, 1),
        Layer::Relu,
    ];
    let mut case = Case::new(classifier((3, 6, 6), layers), 3);
    let clean = case.images.clone();
    for device in cpus().into_iter().chain(gpu()) {
        for microbatch in [0, 2] {
            let mut engine = case.engine(device, microbatch);
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
                case.images = clean.clone();
                case.images[108 + 40] = bad;
                let (sum, _) = engine.clipped_sum(&case.parameters, case.batch(), 0.7).unwrap();
                let counts = sum.counts();
                let sum = sum.into_values();
                assert!(sum.iter().all(|s| s.is_finite()), "{device}");
                assert!(bad.is_finite() || counts.non_finite == 1, "{device}, {bad}: {counts:?}");
                if counts.non_finite == 0 {
                    continue;
                }
                let norms = norms(&engine, &case.parameters, case.batch());
                assert!(norms[1].is_nan() && norms[0] > 0.0 && norms[2] > 0.0);
                let kept: Vec<f32> = [&clean[..108], &clean[216..]].concat();
                let labels = [case.labels[0], case.labels[2]];
                let kept = Batch::new(&kept, &labels);
                let (without, _) = engine.clipped_sum(&case.parameters, kept, 0.7).unwrap();
                let error = distance(&sum, &wide(&without.into_values()));
                assert!(error < 1e-6, "{device}, {bad}: {error:e}");
            }
        }
    }
}

#[test]
fn views_are_averaged_before_they_are_clipped() {
    let layers = vec![
        conv(3, 6, 3, 1, 1),
        Layer::GroupNorm { groups: 2 },
        Layer::Relu,
        conv(6, 40, 3, 4, 1),
        Layer::Tanh,
    ];
    let mut case = Case::new(classifier((3, 9, 8), layers), 6);
    // Two examples of three views: the labels of the views are those of their example.
    let (architecture, pixels) = (case.architecture.clone(), 216);
    case.labels = vec![1, 4];
    case.gradients = (0..2)
        .map(|example| {
            let mut mean = vec![0.0; case.parameters.len()];
            for image in case.images[example * 3 * pixels..][..3 * pixels].chunks(pixels) {
                let label = case.labels[example] as usize;
                let (_, gradient) =
                    autodiff::example(&architecture, &case.parameters, image, label);
                mean.iter_mut().zip(gradient).for_each(|(m, g)| *m += f64::from(g) / 3.0);
            }
            mean
        })
        .collect();
    let norms: Vec<f64> = case.gradients.iter().map(|g| norm(g)).collect();
    let middle = (norms[0] + norms[1]) / 2.0;
    for device in cpus().into_iter().chain(gpu()) {
        for microbatch in [0, 1, 4] {
            let mut engine = case.engine(device, microbatch);
            for (clip, clipped) in [(middle, 1), (1e-3, 2), (100.0, 0)] {
                let (sum, metrics) =
                    engine.clipped_sum(&case.parameters, case.batch().with_views(3), clip).unwrap();
                assert_eq!(sum.counts(), ClipCounts { examples: 2, clipped, non_finite: 0 });
                assert_eq!(metrics.images, 6);
                let expected = case.sum(|g| (clip / norm(g)).min(1.0));
                let error = distance(&sum.into_values(), &expected) / norm(&expected);
                assert!(error < 3e-4, "{device}: {error:e}");
            }
            let none = engine.clipped_sum(&case.parameters, case.batch().with_views(0), 1.0);
            assert_eq!(none.unwrap_err(), EngineError::NoViews);
        }
    }
}

#[test]
fn microbatches_and_threads_change_nothing_beyond_rounding() {
    let layers = vec![conv(3, 8, 3, 1, 1), Layer::Relu, conv(8, 40, 3, 4, 1), Layer::Relu];
    let case = Case::new(classifier((3, 9, 8), layers), 23);
    let sum = |microbatch, threads| {
        let options = EngineOptions { microbatch, threads, ..EngineOptions::default() };
        let mut engine = BurnEngine::new(&case.architecture, Device::Flex, options).unwrap();
        let (sum, metrics) = engine.clipped_sum(&case.parameters, case.batch(), 0.5).unwrap();
        (sum.counts(), metrics.correct, wide(&sum.into_values()))
    };
    let (counts, correct, expected) = sum(0, 0);
    for (microbatch, threads) in [(1, 1), (2, 2), (7, 3), (22, 1), (23, 0), (32, 2)] {
        let found = sum(microbatch, threads);
        assert_eq!((found.0, found.1), (counts, correct));
        let difference: Vec<f64> = found.2.iter().zip(&expected).map(|(a, b)| a - b).collect();
        let error = norm(&difference) / norm(&expected);
        assert!(error < 1e-6, "{microbatch}, {threads}: {error:e}");
    }
}

#[test]
fn wrong_input_is_refused_and_an_empty_batch_sums_to_zero() {
    let architecture = classifier((1, 4, 4), vec![]);
    let parameters = initial_parameters(&architecture, RunSeed(1));
    let mut engine =
        BurnEngine::new(&architecture, Device::Flex, EngineOptions::default()).unwrap();
    let images = [0.0; 32];
    let mut sum = |parameters: &[f32], images: &[f32], labels: &[u32], clip| {
        engine.clipped_sum(parameters, Batch::new(images, labels), clip)
    };
    let dimension = GradientError::Dimension { expected: 85, found: 84 };
    assert_eq!(
        sum(&parameters[1..], &images, &[0, 1], 1.0).unwrap_err(),
        EngineError::Gradient(dimension)
    );
    let pixels = EngineError::Images { expected: 16, found: 32 };
    assert_eq!(sum(&parameters, &images, &[0], 1.0).unwrap_err(), pixels);
    let label = EngineError::Label { label: 5, classes: 5 };
    assert_eq!(sum(&parameters, &images, &[0, 5], 1.0).unwrap_err(), label);
    for clip_norm in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        assert!(matches!(
            sum(&parameters, &images, &[0, 1], clip_norm).unwrap_err(),
            EngineError::Gradient(GradientError::ClipNorm { .. })
        ));
    }
    let (empty, metrics) = sum(&parameters, &[], &[], 1.0).unwrap();
    assert_eq!(metrics, BatchMetrics::default());
    assert!(empty.into_values().iter().all(|s| *s == 0.0));
    assert_eq!(engine.forward(&parameters, &[], &mut []), Ok(()));
    let room = EngineError::Logits { expected: 10, found: 9 };
    assert_eq!(engine.forward(&parameters, &images, &mut [0.0; 9]), Err(room));
    let image = Architecture::new(architecture.shapes()[0], vec![Layer::Relu]).unwrap();
    let refused = BurnEngine::new(&image, Device::Flex, EngineOptions::default()).unwrap_err();
    assert_eq!(refused, EngineError::NoLogits);
}
