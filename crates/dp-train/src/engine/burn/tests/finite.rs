//! No example ends a run: what is not finite contributes zero and is counted.

use burn::tensor::Tensor;

use super::*;
use crate::engine::burn::layer::{Choice, ExampleGradients, Seen, TensorLayer};
use crate::engine::burn::layers::linear::Linear;

/// Numbers at the ends of f32, and none at all.
const EXTREMES: [f32; 10] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MAX,
    f32::MIN,
    1.8e19,
    -1.8e19,
    3e18,
    f32::MIN_POSITIVE,
    1e-45,
];

/// A pixel, a whole image or a weight of every layer at the ends of f32. No real layer was found to
/// have a finite norm and an infinite sum, so what is checked is that none ends the run.
#[test]
fn extreme_pixels_and_weights_do_not_end_the_run() {
    for architecture in stacks() {
        let pixels = architecture.shapes()[0].len();
        let parameters = initial_parameters(&architecture, RunSeed(5));
        let (images, labels) = batch(&architecture, 3);
        let options = EngineOptions::default();
        let mut engine = BurnEngine::new(&architecture, Device::Flex, options).unwrap();
        let mut check = |parameters: &[f32], images: &[f32], what: String| {
            for clip_norm in [1.0, 1e-30, 1e30] {
                let batch = Batch::new(images, &labels);
                let sum = engine.clipped_sum(parameters, batch, clip_norm);
                let (sum, _) = sum.unwrap_or_else(|error| panic!("{error}: {what}"));
                let sum = wide(&sum.into_values());
                assert!(sum.iter().all(|s| s.is_finite()), "{what}");
                let most = 3.0 * clip_norm.min(1e19) * (1.0 + 1e-5);
                assert!(norm(&sum) <= most, "{:e} at {clip_norm:e}: {what}", norm(&sum));
            }
        };
        let layers = architecture.layers();
        for extreme in EXTREMES {
            for range in [pixels..pixels + 1, pixels + pixels / 2..pixels + pixels / 2 + 1] {
                let mut images = images.clone();
                images[range.clone()].fill(extreme);
                check(&parameters, &images, format!("{extreme:e} at {range:?} of {layers:?}"));
            }
            let mut all = images.clone();
            all[pixels..2 * pixels].fill(extreme);
            check(&parameters, &all, format!("{extreme:e} everywhere in {layers:?}"));
            for tensor in architecture.parameters() {
                let mut weights = parameters.clone();
                weights[tensor.range.start] = extreme;
                check(&weights, &images, format!("{extreme:e} in {} of {layers:?}", tensor.name));
            }
        }
    }
}

/// A linear layer that lies: it says that every gradient is short, and where a pixel is above 1000
/// its part of the sum is not finite.
#[derive(Debug)]
struct Lying(Linear);

impl TensorLayer for Lying {
    fn forward(&self, parameters: &[Tensor<1>], x: Tensor<4>) -> Tensor<4> {
        self.0.forward(parameters, x.clamp_max(1.0))
    }

    fn input_gradient(&self, parameters: &[Tensor<1>], seen: Seen) -> Tensor<4> {
        self.0.input_gradient(parameters, seen)
    }

    fn example_gradients(&self, _: &[Tensor<1>], seen: &Seen, _: Choice) -> ExampleGradients {
        ExampleGradients::Ghost(Tensor::ones([seen.dy.dims()[0]], &seen.dy.device()))
    }

    fn gradient_sum(&self, parameters: &[Tensor<1>], seen: Seen) -> Vec<Tensor<1>> {
        let poison = seen.x.clone().greater_scalar(1000.0);
        let x = seen.x.clone().mask_fill(poison, f32::INFINITY);
        self.0.gradient_sum(parameters, Seen { x, ..seen })
    }
}

#[test]
fn an_example_whose_clipped_gradient_is_not_finite_is_dropped_alone() {
    let layer = Layer::Linear { in_features: 6, out_features: 3 };
    let architecture = Architecture::new(Shape::Vector { features: 6 }, vec![layer]).unwrap();
    let parameters = initial_parameters(&architecture, RunSeed(5));
    let (clean, labels) = batch(&architecture, 300);
    // Two in the first group of 128, none in the second, one in the last.
    let bad = [3, 77, 290];
    let mut images = clean.clone();
    bad.iter().for_each(|example| images[6 * example + 2] = 2000.0);
    let kept: Vec<usize> = (0..300).filter(|example| !bad.contains(example)).collect();
    let kept_images: Vec<f32> =
        kept.iter().flat_map(|&j| clean[6 * j..6 * j + 6].to_vec()).collect();
    let kept_labels: Vec<u32> = kept.iter().map(|&j| labels[j]).collect();
    for microbatch in [0, 1, 7, 32] {
        let options = EngineOptions { microbatch, ..EngineOptions::default() };
        let mut engine = BurnEngine::new(&architecture, Device::Flex, options).unwrap();
        engine.model.layers[0] = Box::new(Lying(Linear { in_features: 6, out_features: 3 }));
        let mut sum = |images: &[f32], labels: &[u32]| {
            let (sum, metrics) =
                engine.clipped_sum(&parameters, Batch::new(images, labels), 0.5).unwrap();
            (sum.counts(), metrics.images, sum.into_values())
        };
        let (counts, examples, found) = sum(&images, &labels);
        assert_eq!(counts, ClipCounts { examples: 300, clipped: 297, non_finite: 3 });
        assert_eq!(examples, 300);
        let (counts, _, expected) = sum(&kept_images, &kept_labels);
        assert_eq!(counts, ClipCounts { examples: 297, clipped: 297, non_finite: 0 });
        let error = distance(&found, &wide(&expected)) / norm(&wide(&expected));
        assert!(error < 1e-6, "{microbatch}: {error:e}");
        let norms = norms(&engine, &parameters, Batch::new(&images, &labels));
        assert!(norms.iter().enumerate().all(|(j, norm)| norm.is_nan() == bad.contains(&j)));
    }
}

/// The same example 4096 times. Added up one by one in f32 it is off by 4.6e-5, in groups of 128 by
/// 1.4e-6.
#[test]
fn large_batches_are_added_in_f64() {
    let layer = Layer::Linear { in_features: 6, out_features: 3 };
    let architecture = Architecture::new(Shape::Vector { features: 6 }, vec![layer]).unwrap();
    let parameters = initial_parameters(&architecture, RunSeed(5));
    let (image, label) = batch(&architecture, 1);
    let (images, labels) = (image.repeat(4096), label.repeat(4096));
    let options = EngineOptions { microbatch: 1, ..EngineOptions::default() };
    let mut engine = BurnEngine::new(&architecture, Device::Flex, options).unwrap();
    let mut sum = |images: &[f32], labels: &[u32]| {
        let batch = Batch::new(images, labels);
        engine.clipped_sum(&parameters, batch, 0.1).unwrap().0.into_values()
    };
    let one = sum(&image, &label);
    let expected: Vec<f64> = wide(&one).iter().map(|g| 4096.0 * g).collect();
    let error = |found: &[f64]| distance(found, &expected) / norm(&expected);
    let add = |g: &f64| f64::from((0..4096).fold(0.0_f32, |sum, _| sum + *g as f32));
    let in_f32: Vec<f64> = one.iter().map(add).collect();
    let found = error(&sum(&images, &labels));
    assert!(error(&in_f32) > 1e-5 && found < 3e-6, "{:e} {found:e}", error(&in_f32));
}

/// Windows whose squares add up to the largest f32, in some orders, and to infinity in others, with
/// gradients of both signs: Gram matrices may then be infinity minus infinity.
#[test]
fn ghost_norms_at_the_edge_of_overflow_do_not_vanish() {
    let architecture = classifier((8, 2, 2), vec![conv(8, 40, 3, 1, 1), Layer::Relu]);
    let mut parameters = initial_parameters(&architecture, RunSeed(5));
    // Small weights: the logits stay finite.
    parameters.iter_mut().for_each(|p| *p *= 1e-20);
    let options = EngineOptions::default();
    let mut engine = BurnEngine::new(&architecture, Device::Flex, options).unwrap();
    let (images, labels) = batch(&architecture, 1);
    // Every window sees all 32 pixels: from 400 numbers before the root of f32::MAX / 32 on.
    let edge = (f32::MAX / 32.0).sqrt().to_bits();
    for step in 0..800 {
        let size = f32::from_bits(edge - 400 + step);
        let images = images.iter().enumerate();
        let images: Vec<f32> =
            images.map(|(i, x)| size.copysign(*x) * (1.0 + 1e-7 * (i % 3) as f32)).collect();
        let batch = Batch::new(&images, &labels);
        let (sum, _) = engine.clipped_sum(&parameters, batch, 1e-3).unwrap();
        let counts = sum.counts();
        let found = norm(&wide(&sum.into_values()));
        assert!(found <= 1e-3, "{size:e}: {found:e}, {counts:?}");
    }
}
