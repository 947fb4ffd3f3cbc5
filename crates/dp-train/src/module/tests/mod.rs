//! Every way against one-by-one automatic differentiation, layer by layer.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};

use super::check::check;
use super::draws::Seeds;
use super::error::ModuleError;
use super::layout::Layout;
use super::per_example::{Gradient, PerExample};
use crate::gradient::{ClipCounts, ClippedSum};
use crate::{NoiseKey, RunSeed};

mod bounds;
mod faults;
mod layers;
mod runs;

/// Devices to test on: burn's backends on the CPU, and a software GPU if there is one.
pub(super) fn devices() -> Vec<Device> {
    #[allow(unused_mut)]
    let mut devices = vec![Device::flex().autodiff()];
    #[cfg(feature = "ndarray")]
    #[allow(deprecated, reason = "it is offered as long as it exists")]
    devices.push(Device::ndarray().autodiff());
    #[cfg(feature = "gpu")]
    match crate::engine::open_software_gpu() {
        Some(device) => devices.push(device.autodiff()),
        None if std::env::var_os("BANDROOT_REQUIRE_GPU").is_some() => {
            panic!("BANDROOT_REQUIRE_GPU is set, but there is no Vulkan device in software")
        }
        None => eprintln!("SKIPPED: a Vulkan device in software (Debian: mesa-vulkan-drivers)"),
    }
    devices
}

/// Numbers that look random, the same for the same shape and seed on every device.
pub(super) fn numbers<const D: usize>(shape: [usize; D], seed: u32, device: &Device) -> Tensor<D> {
    let number = |i: usize| {
        let mixed = (i as u64 + 1 + (u64::from(seed) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(number).collect();
    Tensor::from_data(burn::tensor::TensorData::new(values, shape), device)
}

/// Whole numbers below a bound.
pub(super) fn tokens<const D: usize>(
    shape: [usize; D],
    bound: usize,
    device: &Device,
) -> Tensor<D, Int> {
    let values: Vec<i32> = (0..shape.iter().product())
        .map(|i: usize| (i * i * 7 + i / 3) as i32 % bound as i32)
        .collect();
    Tensor::from_data(burn::tensor::TensorData::new(values, shape), device)
}

/// The rows of some examples.
pub(super) fn rows<const D: usize>(all: &Tensor<D>, examples: &[u32]) -> Tensor<D> {
    let indices: Vec<i32> = examples.iter().map(|&example| example as i32).collect();
    all.clone().select(0, Tensor::from_data(&indices[..], &all.device()))
}

/// A loss of its own for every example, of outputs of any shape: no output is left out, none counts like another.
pub(super) fn losses<const D: usize>(output: Tensor<D>, examples: &[u32]) -> Tensor<1> {
    let n = output.dims()[0];
    let length = output.dims().iter().product::<usize>() / n;
    let output = output.reshape([n, length]);
    let weights = numbers([40, length], 77, &output.device());
    let weights = rows(&weights, examples);
    (output.clone() * weights + output.square().mul_scalar(0.3)).sum_dim(1).reshape([n])
}

/// The clipped sum of a module in one way.
pub(super) fn sum<M: Module>(
    module: &M,
    way: PerExample,
    loss: &mut dyn FnMut(&M, &[u32]) -> Tensor<1>,
    examples: &[u32],
    clip_norm: f64,
) -> Result<(Vec<f64>, ClipCounts), ModuleError> {
    let layout = Layout::of(module)?;
    let mut sum = ClippedSum::new(layout.dim(), clip_norm)?;
    let seeds = Seeds::of(NoiseKey::fixed(RunSeed(1)).draws(0));
    Gradient { module, layout: &layout, microbatch: 64, seeds }
        .add(way, loss, examples, &mut sum)?;
    let counts = sum.counts();
    Ok((sum.into_values(), counts))
}

pub(super) fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// All ways agree with the definition where all, some and no examples are clipped, and the module passes its check.
pub(super) fn agree<M: Module>(
    what: &str,
    module: M,
    mut loss: impl FnMut(&M, &[u32]) -> Tensor<1>,
) {
    let module = module.train();
    let examples: Vec<u32> = (0..37).collect();
    let layout = Layout::of(&module).unwrap();
    let checked = check(&module, &layout, PerExample::Auto, &mut loss, &examples[..4]);
    assert_eq!(checked.unwrap_or_else(|error| panic!("{what}: {error}")).way, PerExample::Taps);
    let mut norms = Vec::new();
    for &example in &examples {
        let one = sum(&module, PerExample::OneByOne, &mut loss, &[example], 1e30).unwrap();
        norms.push(length(&one.0));
    }
    norms.sort_by(f64::total_cmp);
    assert!(norms[0] > 0.0, "{what}: an example has no gradient");
    for clip_norm in [0.5 * norms[0], norms[18], 2.0 * norms[36]] {
        let (expected, counted) =
            sum(&module, PerExample::OneByOne, &mut loss, &examples, clip_norm).unwrap();
        for way in [PerExample::Taps, PerExample::TwoPasses] {
            let (found, counts) = sum(&module, way, &mut loss, &examples, clip_norm).unwrap();
            let difference: Vec<f64> = found.iter().zip(&expected).map(|(a, b)| a - b).collect();
            let size: f64 = norms.iter().map(|norm| norm.min(clip_norm)).sum();
            let error = length(&difference) / size;
            assert!(error < 2e-5, "{what} by {way:?}: {error:e} at clip norm {clip_norm}");
            assert_eq!(counts.examples, counted.examples);
            // Norms are rounded up, so one that is next to the clip norm may count as clipped.
            assert!(counts.clipped.abs_diff(counted.clipped) <= 1, "{what} by {way:?}");
        }
    }
    // No example alone is longer than the clip norm.
    for way in [PerExample::Taps, PerExample::TwoPasses] {
        for &example in &examples[..6] {
            let (found, _) = sum(&module, way, &mut loss, &[example], norms[0] / 3.0).unwrap();
            let excess = length(&found) / (norms[0] / 3.0);
            assert!(excess <= 1.0 + 1e-6 && excess > 0.99, "{what} by {way:?}: {excess}");
        }
    }
}

/// Uniform numbers in place of a layer's own, so that no parameter is zero or one.
pub(super) fn shaken<M: Module>(module: M) -> M {
    struct Shake(u32);
    impl burn::module::ModuleMapper for Shake {
        fn map_float<const D: usize>(
            &mut self,
            parameter: burn::module::Param<Tensor<D>>,
        ) -> burn::module::Param<Tensor<D>> {
            self.0 += 1;
            let trained = parameter.is_require_grad();
            parameter.map(|old| {
                let values = numbers(old.dims(), self.0, &old.device()).mul_scalar(0.7);
                values.set_require_grad(trained)
            })
        }
    }
    module.map(&mut Shake(0))
}
