//! What clipping promises, and what is refused.

use super::*;

#[test]
fn one_example_moves_the_sum_by_at_most_the_clip_norm() {
    let architecture = convnet();
    let parameters: Vec<f32> =
        initial_parameters(&architecture, RunSeed(5)).iter().map(|p| 2.0 * p).collect();
    let (images, labels) = batch(&architecture, 12);
    for convolution in METHODS {
        let options = EngineOptions { convolution, ..EngineOptions::default() };
        let mut engine = Engine::new(&architecture, options).unwrap();
        for clip in [1e-4, 0.1, 1.0] {
            for (image, label) in images.chunks(3072).zip(&labels) {
                let one = Batch::new(image, std::slice::from_ref(label));
                let (sum, _) = engine.clipped_sum(&parameters, one, clip).unwrap();
                let clipped = sum.counts().clipped;
                let size = norm(&wide(&sum.into_values()));
                assert!(size <= clip * (1.0 + 1e-7), "{clip}: {:e}", size / clip - 1.0);
                assert!(clipped == 0 || size >= clip * (1.0 - 1e-4));
            }
        }
    }
}

#[test]
fn examples_below_the_clip_norm_are_unchanged() {
    let architecture = convnet();
    let parameters = initial_parameters(&architecture, RunSeed(5));
    let (images, labels) = batch(&architecture, 1);
    let one = Batch::new(&images, &labels);
    for convolution in METHODS {
        let options = EngineOptions { convolution, ..EngineOptions::default() };
        let mut engine = Engine::new(&architecture, options).unwrap();
        let (sum, _) = engine.clipped_sum(&parameters, one, 1e6).unwrap();
        let (plain, _) = engine.gradient_sum(&parameters, one).unwrap();
        // Sums of one and of many examples are cut into products differently: the last digit.
        let error = distance(&sum.into_values(), &wide(&plain));
        assert!(error <= 1e-6 * norm(&wide(&plain)), "{error:e}");
    }
}

#[test]
fn non_finite_examples_contribute_zero_and_are_counted() {
    let architecture = classifier(
        (3, 8, 8),
        vec![
            conv(3, 16, 3, 1, 1),
            Layer::Relu,
            conv(16, 128, 3, 1, 1),
            Layer::Relu,
            grouped(128, 128, (3, 1, 1), 8),
        ],
    );
    let parameters = initial_parameters(&architecture, RunSeed(1));
    let (images, labels) = batch(&architecture, 11);
    for convolution in METHODS {
        let options = EngineOptions { convolution, ..EngineOptions::default() };
        let mut engine = Engine::new(&architecture, options).unwrap();
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            let mut spoiled = images.clone();
            spoiled[3 * 192 + 77] = bad;
            spoiled[10 * 192] = bad;
            let sum_of = |engine: &mut Engine, images: &[f32], labels: &[u32]| {
                engine.clipped_sum(&parameters, Batch::new(images, labels), 0.7).unwrap().0
            };
            let sum = sum_of(&mut engine, &spoiled, &labels);
            assert_eq!(sum.counts().examples, 11);
            if !bad.is_finite() {
                assert_eq!(sum.counts().non_finite, 2);
            }
            let sum = sum.into_values();
            assert!(sum.iter().all(|s| s.is_finite()));
            if sum_of(&mut engine, &spoiled, &labels).counts().non_finite == 2 {
                let kept: Vec<usize> = (0..11).filter(|&i| i != 3 && i != 10).collect();
                let pixels: Vec<f32> =
                    kept.iter().flat_map(|&i| images[i * 192..][..192].to_vec()).collect();
                let classes: Vec<u32> = kept.iter().map(|&i| labels[i]).collect();
                let without = sum_of(&mut engine, &pixels, &classes).into_values();
                assert!(distance(&sum, &wide(&without)) < 1e-5);
            }
        }
    }
}

#[test]
fn an_empty_batch_sums_to_zero() {
    let architecture = classifier((1, 4, 4), vec![]);
    let mut engine = Engine::new(&architecture, EngineOptions::default()).unwrap();
    let parameters = initial_parameters(&architecture, RunSeed(1));
    let empty = Batch::new(&[], &[]);
    let (sum, metrics) = engine.clipped_sum(&parameters, empty, 1.0).unwrap();
    assert_eq!(metrics, BatchMetrics::default());
    assert!(sum.into_values().iter().all(|s| *s == 0.0));
}

#[test]
fn wrong_input_is_refused() {
    let architecture = classifier((1, 4, 4), vec![]);
    let mut engine = Engine::new(&architecture, EngineOptions::default()).unwrap();
    let parameters = initial_parameters(&architecture, RunSeed(1));
    let images = [0.0; 32];
    let mut sum = |parameters: &[f32], images: &[f32], labels: &[u32], clip| {
        engine.clipped_sum(parameters, Batch::new(images, labels), clip).unwrap_err()
    };
    let dimension = GradientError::Dimension { expected: 85, found: 84 };
    assert_eq!(sum(&parameters[1..], &images, &[0, 1], 1.0), EngineError::Gradient(dimension));
    assert_eq!(
        sum(&parameters, &images, &[0], 1.0),
        EngineError::Images { expected: 16, found: 32 }
    );
    let label = EngineError::Label { label: 5, classes: 5 };
    assert_eq!(sum(&parameters, &images, &[0, 5], 1.0), label);
    for clip_norm in [0.0, -1.0, f64::INFINITY] {
        let error = EngineError::Gradient(GradientError::ClipNorm { clip_norm });
        assert_eq!(sum(&parameters, &images, &[0, 1], clip_norm), error);
    }
    let images_only = Architecture::new(architecture.shapes()[0], vec![Layer::Relu]).unwrap();
    let refused = Engine::new(&images_only, EngineOptions::default()).unwrap_err();
    assert_eq!(refused, EngineError::NoLogits);
}
