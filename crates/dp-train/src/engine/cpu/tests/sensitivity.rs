//! A search for examples that move a sum by more than the noise allows for.

use super::*;
use crate::engine::attacks::{Cancelling, Vanishing, excess};
use crate::engine::cpu::compile::compile;
use crate::engine::cpu::network::Op;
use crate::gradient::SUM_ROUNDING;

/// Whether a convolution has ghost norms, so that its per-example gradients are never held.
fn has_ghost_convolution(architecture: &Architecture) -> bool {
    let network = compile(architecture, 8, ConvolutionMethod::Winograd).unwrap();
    let mut convolutions = network.stages.iter().filter_map(|stage| match &stage.op {
        Op::Convolution(convolution) => Some(convolution),
        _ => None,
    });
    convolutions.any(|convolution| convolution.ghost && convolution.geometry.positions() > 1)
}

/// The largest excess over batches that are alike, so that their gradients add up, and mixed ones.
fn search(
    architecture: &Architecture,
    examples: usize,
    views: usize,
    convolution: ConvolutionMethod,
) -> f64 {
    let mut parameters = initial_parameters(architecture, RunSeed(2));
    let (images, labels) = batch(architecture, examples * views);
    let pixels = architecture.shapes()[0].len();
    let options = EngineOptions { convolution, ..EngineOptions::default() };
    let mut engine = Engine::new(architecture, options).unwrap();
    let mut worst = f64::NEG_INFINITY;
    for scale in [1.0, 5.0] {
        parameters.iter_mut().for_each(|p| *p *= scale);
        for alike in [true, false] {
            let one = |i: usize| if alike { 0 } else { i };
            let images: Vec<f32> = (0..examples * views)
                .flat_map(|i| images[one(i) * pixels..][..pixels].iter().map(|x| x * scale))
                .collect();
            let labels: Vec<u32> = (0..examples).map(|i| labels[one(i)]).collect();
            let batch = Batch::new(&images, &labels).with_views(views);
            for clip in [1e-3, 1e-9, 30.0] {
                for which in [0, examples / 2, examples - 1] {
                    worst = worst.max(excess(&mut engine, &parameters, batch, clip, which));
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
        let layers = vec![conv(3, 16, 3, 1, 1), Layer::Relu, conv(16, 32, 3, 1, 1), Layer::Tanh];
        classifier((3, 4, 4), layers)
    };
    let wide_ghosts = || {
        let layers = vec![conv(3, 64, 3, 1, 1), Layer::Relu, conv(64, 128, 3, 1, 1), Layer::Relu];
        classifier((3, 8, 8), layers)
    };
    for architecture in [ghosts(), wide_ghosts()] {
        assert!(has_ghost_convolution(&architecture), "{:?}", architecture.shapes());
    }
    let linear = || classifier((1, 2, 2), vec![]);
    let mut worst = f64::NEG_INFINITY;
    for convolution in METHODS {
        for (name, architecture, examples, views) in [
            ("held", held(), 500, 1),
            ("ghosts", ghosts(), 500, 1),
            ("wide ghosts", wide_ghosts(), 100, 1),
            ("views", held(), 60, 3),
            ("linear", linear(), 50_000, 1),
        ] {
            let found = search(&architecture, examples, views, convolution);
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

#[test]
fn tiny_gradients_behind_huge_activations_are_clipped_all_the_same() {
    let attack = Vanishing::new();
    assert!(has_ghost_convolution(&attack.architecture));
    for convolution in METHODS {
        let options = EngineOptions { convolution, ..EngineOptions::default() };
        attack.run(&mut Engine::new(&attack.architecture, options).unwrap());
    }
}

#[test]
fn examples_that_cancel_round_their_neighbours_within_the_allowance() {
    let attack = Cancelling::new();
    assert!(has_ghost_convolution(&attack.architecture));
    for microbatch in [0, 16] {
        let options = EngineOptions { microbatch, ..EngineOptions::default() };
        let worst = attack.run(&mut Engine::new(&attack.architecture, options).unwrap(), 120);
        println!("cancellation, microbatch {microbatch}: excess {worst:.1e}");
        assert!(worst > 1e-5, "the attack has lost its point: {worst:e}");
        assert!(worst <= SUM_ROUNDING, "{worst:e} more than the clip norm");
    }
}
