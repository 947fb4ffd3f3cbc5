//! A search for examples that move a sum by more than the noise allows for.
//!
//! An example with a pixel that is not a number contributes exactly zero and keeps its place, so spoiling one is the
//! neighbouring batch. What the others add up to is the same numbers in both, but rounded differently where the
//! example's lane is concerned.

use super::*;
use crate::gradient::SUM_ROUNDING;

/// How far zeroing one example moves the sum, over the clip norm, minus 1.
fn excess(
    engine: &mut Engine,
    parameters: &[f32],
    batch: Batch<'_>,
    copies: usize,
    clip: f64,
    which: usize,
) -> f64 {
    let mut sum = |images: &[f32]| {
        let batch = Batch { images, labels: batch.labels };
        engine.clipped_sum_of_means(parameters, batch, copies, clip).unwrap().0.into_values()
    };
    let pixels = batch.images.len() / batch.labels.len();
    let mut spoiled = batch.images.to_vec();
    spoiled[which * pixels] = f32::NAN;
    distance(&sum(batch.images), &sum(&spoiled)) / clip - 1.0
}

/// The largest excess over batches that are alike, so that their gradients add up, and mixed ones.
fn search(
    architecture: &Architecture,
    examples: usize,
    copies: usize,
    convolution: ConvolutionMethod,
) -> f64 {
    let mut parameters = initial_parameters(architecture, RunSeed(2));
    let (images, labels) = batch(architecture, examples * copies);
    let pixels = architecture.shapes()[0].len();
    let options = EngineOptions { convolution, ..EngineOptions::default() };
    let mut engine = Engine::new(architecture, options).unwrap();
    let mut worst = f64::NEG_INFINITY;
    for scale in [1.0, 5.0] {
        parameters.iter_mut().for_each(|p| *p *= scale);
        for alike in [true, false] {
            let one = |i: usize| if alike { 0 } else { i };
            let images: Vec<f32> = (0..examples * copies)
                .flat_map(|i| images[one(i) * pixels..][..pixels].iter().map(|x| x * scale))
                .collect();
            let labels: Vec<u32> = (0..examples).map(|i| labels[one(i)]).collect();
            let batch = Batch { images: &images, labels: &labels };
            for clip in [1e-3, 1e-9, 30.0] {
                for which in [0, examples / 2, examples - 1] {
                    worst = worst.max(excess(&mut engine, &parameters, batch, copies, clip, which));
                }
            }
        }
    }
    worst
}

#[test]
fn no_example_moves_a_sum_by_more_than_the_noise_allows_for() {
    let held = || classifier((3, 9, 8), vec![conv(3, 8, 3, 1, 1), Layer::Relu]);
    let ghosts = || {
        let layers = vec![conv(3, 20, 3, 4, 1), Layer::Relu, conv(20, 40, 3, 1, 1), Layer::Tanh];
        classifier((3, 9, 8), layers)
    };
    let wide_ghosts = || {
        let layers = vec![conv(3, 16, 3, 1, 1), Layer::Relu, conv(16, 64, 3, 1, 1), Layer::Relu];
        classifier((3, 8, 8), layers)
    };
    let linear = || classifier((1, 2, 2), vec![]);
    let mut worst = f64::NEG_INFINITY;
    for convolution in METHODS {
        for (name, architecture, examples, copies) in [
            ("held", held(), 500, 1),
            ("ghosts", ghosts(), 500, 1),
            ("wide ghosts", wide_ghosts(), 100, 1),
            ("copies", held(), 60, 3),
            ("linear", linear(), 50_000, 1),
        ] {
            let found = search(&architecture, examples, copies, convolution);
            println!("{name}, {convolution:?}, {examples} examples: excess {found:.1e}");
            worst = worst.max(found);
        }
    }
    assert!(worst <= SUM_ROUNDING, "an example moves the sum by {worst:e} more than the clip norm");
}

#[test]
fn the_bound_does_not_grow_with_the_batch() {
    let architecture = classifier((1, 2, 2), vec![]);
    let of = |examples| search(&architecture, examples, 1, ConvolutionMethod::Direct);
    let (small, large) = (of(64), of(50_000));
    assert!(large < 4.0 * small.max(2e-6), "{small:e} with 64 examples, {large:e} with 50,000");
}
