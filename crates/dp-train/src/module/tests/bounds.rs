//! What one example can do to a sum: nothing to what the others contribute, and no more to it than the clip norm.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::Tensor;

use super::faults::{flex, linear};
use super::*;
use crate::module::Tapped;

/// Numbers that cancel within one example leave no trace in the sum of the others: `forward` takes and gives vectors at positions.
fn withstands<M: Module>(
    what: &str,
    module: &M,
    [positions, inner]: [usize; 2],
    forward: impl Fn(&M, Tensor<3>) -> Tensor<3>,
) {
    let (device, clip_norm) = (flex(), 0.1);
    let x = numbers([32, positions, inner], 1, &device);
    let first = x.clone().slice([0..32, 0..1]).expand([32, positions, inner]);
    let all: Vec<u32> = (0..32).collect();
    for huge in [1e3_f32, 1e5, 1e8, 1e15, 1e30] {
        for way in [PerExample::Taps, PerExample::TwoPasses] {
            let with = |huge: f32| {
                let mut loss = |module: &M, examples: &[u32]| {
                    let n = examples.len();
                    let attacks = examples.iter().map(|&i| if i == 13 { 1.0_f32 } else { 0.0 });
                    let attacks: Vec<f32> = attacks.collect();
                    let attacks = Tensor::<1>::from_data(&attacks[..], &device).reshape([n, 1, 1]);
                    let (x, same) = (rows(&x, examples), rows(&first, examples));
                    let y = forward(module, x.clone() + (same - x) * attacks.clone());
                    let place = |at: usize| y.clone().slice([0..n, at..at + 1]);
                    let cancel = (place(0) - place(1)).mul_scalar(huge) * attacks.clone();
                    let usual = y.clone() * attacks.neg().add_scalar(1.0);
                    (usual.square().sum_dim(1) + cancel).sum_dim(2).reshape([n])
                };
                sum(module, way, &mut loss, &all, clip_norm).unwrap().0
            };
            let (found, without) = (with(huge), with(0.0));
            let moved: Vec<f64> = found.iter().zip(&without).map(|(a, b)| a - b).collect();
            let excess = length(&moved) / clip_norm;
            assert!(excess < 1.001, "{what}, {huge:e} by {way:?}: {excess}");
        }
    }
}

#[test]
fn an_example_whose_positions_cancel_moves_no_sum_by_more_than_the_clip_norm() {
    let device = flex();
    // Gradients that are held for their norms, and norms by Gram matrices.
    for (positions, inner, outer) in [(20, 2, 2), (3, 40, 30)] {
        let layer: Linear = shaken(LinearConfig::new(inner, outer).init(&device));
        withstands("linear", &layer, [positions, inner], |layer, x| layer.tapped(x));
    }
    for channels in [2, 40] {
        let layer: Conv2d = shaken(Conv2dConfig::new([channels, channels], [1, 1]).init(&device));
        withstands("convolution", &layer, [20, channels], |layer, x| {
            let n = x.dims()[0];
            let y = layer.tapped(x.swap_dims(1, 2).reshape([n, channels, 4, 5]));
            y.reshape([n, channels, 20]).swap_dims(1, 2)
        });
    }
}

#[derive(Module, Debug)]
struct Dropping {
    layer: Linear,
    dropout: Dropout,
}

#[test]
fn an_example_that_is_not_finite_changes_no_draws_of_the_others() {
    let device = flex();
    let dropout = DropoutConfig::new(0.5).init();
    let module = Dropping { layer: linear(&device), dropout }.train();
    let x = numbers([20, 4], 1, &device);
    let all: Vec<u32> = (0..20).collect();
    for way in [PerExample::Taps, PerExample::TwoPasses, PerExample::OneByOne] {
        let with = |bad: f32| {
            let mut loss = |module: &Dropping, examples: &[u32]| {
                let factor = |&i: &u32| if i == 3 { bad } else { 1.0 };
                let factors: Vec<f32> = examples.iter().map(factor).collect();
                let factors = Tensor::<1>::from_data(&factors[..], &device);
                let y = module.dropout.forward(module.layer.tapped(rows(&x, examples)));
                losses(y, examples) * factors
            };
            sum(&module, way, &mut loss, &all, 0.1)
        };
        // Other tests draw from the same generator, and may do so in between: one of fifty is left alone.
        let same = (0..50).any(|_| match (with(0.0), with(f32::NAN)) {
            (Ok((without, _)), Ok((found, counts))) => {
                let apart: Vec<f64> = found.iter().zip(&without).map(|(a, b)| a - b).collect();
                counts.non_finite == 1 && length(&apart) < 1e-6
            }
            _ => false,
        });
        assert!(same, "{way:?}");
    }
}

#[test]
fn a_loss_that_depends_on_nothing_has_a_gradient_of_zero() {
    let device = flex();
    let x = numbers([8, 4], 1, &device);
    let other = numbers([8, 4], 2, &device).require_grad();
    let layer = linear(&device);
    for way in [PerExample::Taps, PerExample::TwoPasses, PerExample::OneByOne] {
        // Nothing that is tracked at all, something else that is, and one example of which the loss depends on nothing.
        let mut nothing = |_: &Linear, examples: &[u32]| losses(rows(&x, examples), examples);
        let mut elsewhere = |_: &Linear, examples: &[u32]| losses(rows(&other, examples), examples);
        let mut untracked = |layer: &Linear, examples: &[u32]| match examples {
            [2] => Tensor::zeros([1], &device),
            _ => losses(layer.tapped(rows(&x, examples)), examples),
        };
        for loss in [&mut nothing as &mut dyn FnMut(&Linear, &[u32]) -> Tensor<1>, &mut elsewhere] {
            let (found, counts) = sum(&layer, way, loss, &[0, 1, 2], 1.0).unwrap();
            assert_eq!((length(&found), counts.examples), (0.0, 3), "{way:?}");
        }
        let (_, counts) = sum(&layer, way, &mut untracked, &[2], 1.0).unwrap();
        assert_eq!((counts.examples, counts.non_finite), (1, 0), "{way:?}");
    }
}
