//! Whether a device computes what the CPU engine computes, found out when it is opened.
//!
//! Kernels that return wrong numbers exist in the wild, and a norm that is too small is an epsilon that is too small. So
//! the sums of some made-up examples are compared, on the shapes that will run: a whole microbatch and a part of one, with
//! every example clipped, with none clipped, and with one whose gradient is not finite. Sums of many examples would hide a norm that
//! is a little too small, so a GPU's norms are compared one by one, and those may only be too large.

use crate::engine::batch::Batch;
use crate::engine::cpu;
use crate::engine::device::Device;
use crate::engine::error::EngineError;
use crate::engine::gradient_engine::GradientEngine;
use crate::engine::options::{ConvolutionMethod, EngineOptions};
use crate::gradient::ClipCounts;
#[cfg(feature = "gpu")]
use crate::gradient::SUM_ROUNDING;
use crate::model::{Architecture, initial_parameters};
use crate::seeds::{Purpose, RunSeed};
use chacha20::rand_core::Rng;

/// Examples beside a whole microbatch.
const MORE: usize = 3;

/// The largest difference of two sums, relative to one of them. Rounding makes about 1e-6, and a pixel that rounding puts
/// on the other side of a kink up to 1e-4; one wrong norm or gradient among a microbatch makes 1e-2.
const TOLERANCE: f64 = 1e-3;

/// A clip norm that every gradient exceeds, and one that none does.
const CLIP_NORMS: [f64; 2] = [1e-6, 1e6];

/// Examples that look like others, and first parameters.
pub(super) struct MadeUp {
    pub(super) parameters: Vec<f32>,
    images: Vec<f32>,
    labels: Vec<u32>,
    views: usize,
}

impl MadeUp {
    /// A whole microbatch and a part of one.
    pub(super) fn beside(architecture: &Architecture, microbatch: usize, views: usize) -> Self {
        let (examples, pixels) = (microbatch + MORE, architecture.input().len());
        let mut rng = RunSeed(0).stream(Purpose::Audit);
        // In [-1, 1), as images are.
        let mut pixel = || (rng.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0;
        let images = (0..examples * views * pixels).map(|_| pixel()).collect();
        let classes = architecture.output().len() as u32;
        let labels = (0..examples as u32).map(|example| example % classes.max(1)).collect();
        Self { parameters: initial_parameters(architecture, RunSeed(0)), images, labels, views }
    }
}

#[cfg(feature = "gpu")]
impl MadeUp {
    /// All of them.
    pub(super) fn batch(&self) -> Batch<'_> {
        Batch::new(&self.images, &self.labels).with_views(self.views)
    }

    /// That the norms which a device found for the first of them are not too small, by the CPU engine's gradients of every
    /// [`APART`]th.
    ///
    /// # Errors
    /// [`EngineError::Disagrees`] if one is too small by more than what the noise allows a sum to be rounded, and those of the CPU
    /// engine.
    pub(super) fn check_norms(
        &self,
        architecture: &Architecture,
        device: Device,
        found: &[f32],
    ) -> Result<(), EngineError> {
        let options =
            EngineOptions { convolution: ConvolutionMethod::Direct, ..Default::default() };
        let mut reference = cpu::Engine::new(architecture, options)?;
        let pixels = architecture.input().len();
        for example in (0..found.len()).step_by(APART) {
            let one = self.batch().examples(example..example + 1, pixels);
            let (gradient, _) = reference.clipped_sum(&self.parameters, one, CLIP_NORMS[1])?;
            let expected = norm(gradient.into_values().into_iter());
            if is_too_small(f64::from(found[example]), expected) {
                let found = found[example];
                let what = format!(
                    "the gradient of one example has norm {expected:e}, and it found {found:e}"
                );
                return Err(EngineError::Disagrees { device, what });
            }
        }
        Ok(())
    }
}

/// Examples from one whose norm is compared to the next: the first and the last of 2 x 64 + [`MORE`] are among them.
#[cfg(feature = "gpu")]
const APART: usize = 13;

/// Whether a norm would let an example move a sum by more than the noise allows for; one that is no number would.
#[cfg(feature = "gpu")]
fn is_too_small(found: f64, expected: f64) -> bool {
    // Sums have most of the allowance for themselves, and norms are rounded up.
    let suffices = found * (1.0 + 0.25 * SUM_ROUNDING) >= expected;
    !suffices
}

/// The largest difference of the device's sums from those of the CPU engine, relative to them, for examples of so many views. As much work as a
/// microbatch three times, and the same on the CPU.
///
/// # Errors
/// [`EngineError::Disagrees`] if it is too large, and those of both engines.
pub(super) fn deviation(
    engine: &mut dyn GradientEngine,
    architecture: &Architecture,
    (device, microbatch): (Device, usize),
    views: usize,
) -> Result<f64, EngineError> {
    let options = EngineOptions { convolution: ConvolutionMethod::Direct, ..Default::default() };
    let mut reference = cpu::Engine::new(architecture, options)?;
    let MadeUp { parameters, mut images, labels, views } =
        MadeUp::beside(architecture, microbatch, views);
    let (examples, pixels) = (labels.len(), architecture.input().len());
    let mut worst = 0.0_f64;
    let mut compare = |images: &[f32], clip_norm: f64| {
        let batch = Batch::new(images, &labels).with_views(views);
        let (expected, _) = reference.clipped_sum(&parameters, batch, clip_norm)?;
        let (found, _) = engine.clipped_sum(&parameters, batch, clip_norm)?;
        let counts = (expected.counts(), found.counts());
        let (expected, found) = (expected.into_values(), found.into_values());
        let difference = norm(expected.iter().zip(&found).map(|(a, b)| a - b));
        let size = norm(expected.iter().copied());
        let relative = if difference == 0.0 { 0.0 } else { difference / size };
        // Not a number is no agreement.
        if !(relative <= TOLERANCE && counts.0 == counts.1) {
            return Err(EngineError::Disagrees { device, what: describe(relative, counts) });
        }
        worst = worst.max(relative);
        Ok(())
    };
    for clip_norm in CLIP_NORMS {
        compare(&images, clip_norm)?;
    }
    // In the part of a microbatch, and in the whole one.
    for example in [examples - 1, 1] {
        images[example * views * pixels..][..pixels].fill(f32::INFINITY);
    }
    compare(&images, CLIP_NORMS[0])?;
    Ok(worst)
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

fn describe(relative: f64, (expected, found): (ClipCounts, ClipCounts)) -> String {
    format!(
        "clipped sums of {} examples differ by {relative:.1e} of their size; {} and {} were clipped, {} and {} not finite",
        expected.examples, expected.clipped, found.clipped, expected.non_finite, found.non_finite
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::batch::BatchMetrics;
    use crate::engine::cases::classifier;
    use crate::engine::gradient_engine::EngineDescription;
    use crate::gradient::ClippedSum;
    use crate::model::Layer;

    /// What a device could do wrong.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fault {
        None,
        /// One coordinate is 2 % too large.
        Gradient,
        /// The last example is left out.
        Lost,
        /// Examples are not clipped.
        Norms,
        /// What is not finite is taken for finite.
        Finite,
    }

    /// The CPU engine with a fault.
    #[derive(Debug)]
    struct Faulty {
        engine: cpu::Engine,
        fault: Fault,
    }

    impl GradientEngine for Faulty {
        fn describe(&self) -> EngineDescription {
            self.engine.describe()
        }

        fn forward(
            &mut self,
            parameters: &[f32],
            images: &[f32],
            logits: &mut [f32],
        ) -> Result<(), EngineError> {
            self.engine.forward(parameters, images, logits)
        }

        fn clipped_sum(
            &mut self,
            parameters: &[f32],
            batch: Batch<'_>,
            clip_norm: f64,
        ) -> Result<(ClippedSum, BatchMetrics), EngineError> {
            let clip_norm = if self.fault == Fault::Norms { 1e6 } else { clip_norm };
            let (count, pixels) = (batch.labels.len(), batch.images.len() / batch.labels.len());
            let kept = if self.fault == Fault::Lost { count - 1 } else { count };
            let part = batch.examples(0..kept, pixels);
            let (mut sum, metrics) = self.engine.clipped_sum(parameters, part, clip_norm)?;
            let (values, counts) = sum.parts_mut();
            counts.examples = count;
            match self.fault {
                Fault::Gradient => {
                    let largest = (0..values.len())
                        .max_by(|&a, &b| values[a].abs().total_cmp(&values[b].abs()));
                    values[largest.unwrap()] *= 1.02;
                }
                Fault::Lost => counts.clipped = if clip_norm < 1.0 { count } else { 0 },
                Fault::Finite => counts.non_finite = 0,
                Fault::None | Fault::Norms => {}
            }
            Ok((sum, metrics))
        }

        fn gradient_sum(
            &mut self,
            parameters: &[f32],
            batch: Batch<'_>,
        ) -> Result<(Vec<f32>, BatchMetrics), EngineError> {
            self.engine.gradient_sum(parameters, batch)
        }
    }

    #[cfg(feature = "gpu")]
    #[test]
    fn a_norm_that_is_too_small_is_refused_and_one_that_is_too_large_is_not() {
        let model = classifier((2, 6, 6), vec![Layer::conv(2, 4, 3), Layer::Relu]);
        let examples = MadeUp::beside(&model, 2 * 64, 1);
        let mut engine = cpu::Engine::new(&model, EngineOptions::default()).unwrap();
        let norms = (0..examples.labels.len()).map(|example| {
            let one = examples.batch().examples(example..example + 1, 72);
            let (gradient, _) = engine.clipped_sum(&examples.parameters, one, 1e6).unwrap();
            norm(gradient.into_values().into_iter()) as f32
        });
        let norms: Vec<f32> = norms.collect();
        let last = norms.len() - 1;
        for (factor, refused) in
            [(1.0, false), (1.1, false), (0.9999, false), (0.9995, true), (f32::NAN, true)]
        {
            for example in [0, last] {
                let mut norms = norms.clone();
                norms[example] *= factor;
                let found = examples.check_norms(&model, Device::Gpu, &norms);
                assert_eq!(found.is_err(), refused, "{factor} {example}: {found:?}");
            }
        }
    }

    #[test]
    fn every_planted_fault_is_refused() {
        let model = classifier((2, 6, 6), vec![Layer::conv(2, 4, 3), Layer::Relu]);
        for fault in [Fault::None, Fault::Gradient, Fault::Lost, Fault::Norms, Fault::Finite] {
            let engine = cpu::Engine::new(&model, EngineOptions::default()).unwrap();
            let found = deviation(&mut Faulty { engine, fault }, &model, (Device::Gpu, 8), 1);
            match (fault, found) {
                (Fault::None, Ok(deviation)) => assert!(deviation < 1e-5, "{deviation}"),
                (Fault::None, Err(error)) => panic!("{error}"),
                (_, Ok(deviation)) => panic!("{fault:?}: {deviation}"),
                (_, Err(error)) => assert!(error.to_string().contains("device gpu"), "{error}"),
            }
        }
    }
}
