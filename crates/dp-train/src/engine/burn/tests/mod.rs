//! The burn engine against automatic differentiation, on every device.

use std::io::Write;

use crate::engine::burn::sum::sum;
use crate::engine::burn::{BurnEngine, autodiff, device};
use crate::engine::cases::{
    batch, classifier, conv, convnet, convnet_tanh, distance, grouped, norm, wide,
};
use crate::engine::{
    Batch, BatchMetrics, ConvolutionMethod, Device, Engine, EngineError, EngineOptions,
    GradientEngine,
};
use crate::gradient::{ClipCounts, GradientError};
use crate::model::{Architecture, Layer, Shape, initial_parameters};
use crate::seeds::RunSeed;

mod clipping;
mod finite;

/// The GPU, or the software that stands in for it; `None`, loudly, if there is neither.
fn gpu() -> Option<Device> {
    let tried = [Device::Gpu, Device::GpuSoftware].map(|gpu| (gpu, device::open(gpu, None)));
    if let Some((gpu, _)) = tried.iter().find(|(_, outcome)| outcome.is_ok()) {
        return Some(*gpu);
    }
    if !cfg!(feature = "gpu") {
        return None;
    }
    let error = tried[1].1.as_ref().unwrap_err();
    assert!(std::env::var_os("BANDROOT_REQUIRE_GPU").is_none(), "{error}");
    // Not eprintln: the test harness would swallow it.
    let _ = writeln!(std::io::stderr(), "\nNOT TESTED on a GPU: {error}\n");
    None
}

/// The devices on the CPU that are built in.
fn cpus() -> Vec<Device> {
    let mut devices = vec![Device::Flex];
    if cfg!(feature = "ndarray") {
        devices.push(Device::Ndarray);
    }
    devices
}

/// The norm of every example's gradient as clipping sees it: rounded up, and NaN where the gradient is
/// not finite.
fn norms(engine: &BurnEngine, parameters: &[f32], batch: Batch<'_>) -> Vec<f32> {
    let summed = sum(&engine.model, engine.microbatch, parameters, batch, Some(1.0)).unwrap();
    let norm = |[_, bad, norm]: [f32; 3]| if bad > 0.0 { f32::NAN } else { norm };
    summed.examples.into_iter().map(norm).collect()
}

/// Parameters, a batch, and the gradients of its examples one at a time.
struct Case {
    architecture: Architecture,
    parameters: Vec<f32>,
    images: Vec<f32>,
    labels: Vec<u32>,
    losses: Vec<f64>,
    gradients: Vec<Vec<f64>>,
}

impl Case {
    fn new(architecture: Architecture, examples: usize) -> Self {
        let mut parameters = initial_parameters(&architecture, RunSeed(5));
        // Normalization that is not the identity.
        parameters.iter_mut().enumerate().for_each(|(i, p)| *p *= 1.0 + 0.3 * (i as f32).sin());
        let pixels = architecture.shapes()[0].len();
        let (images, labels) = batch(&architecture, examples);
        let (losses, gradients) = images
            .chunks(pixels)
            .zip(&labels)
            .map(|(image, &label)| {
                let (loss, gradient) =
                    autodiff::example(&architecture, &parameters, image, label as usize);
                (loss, wide(&gradient))
            })
            .unzip();
        Self { architecture, parameters, images, labels, losses, gradients }
    }

    fn engine(&self, device: Device, microbatch: usize) -> BurnEngine {
        let options = EngineOptions { microbatch, ..EngineOptions::default() };
        BurnEngine::new(&self.architecture, device, options).unwrap()
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.images, &self.labels)
    }

    fn one(&self, example: usize) -> Batch<'_> {
        let pixels = self.architecture.shapes()[0].len();
        Batch::new(&self.images[example * pixels..][..pixels], &self.labels[example..=example])
    }

    fn sum(&self, scale: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        let mut sum = vec![0.0; self.parameters.len()];
        for gradient in &self.gradients {
            let scale = scale(gradient);
            sum.iter_mut().zip(gradient).for_each(|(s, g)| *s += scale * g);
        }
        sum
    }

    /// Single gradients, norms, and sums agree to f32 rounding; the norms are never too small.
    fn check(&self, engine: &mut dyn GradientEngine, what: &str, tolerance: f64, guard: f64) {
        let what = format!("{what}, {:?}", self.architecture.layers());
        let norms: Vec<f64> = self.gradients.iter().map(|g| norm(g)).collect();
        for (example, expected) in self.gradients.iter().enumerate() {
            let (found, _) = engine.gradient_sum(&self.parameters, self.one(example)).unwrap();
            let error = distance(&found, expected) / norms[example];
            assert!(error < tolerance, "one gradient: {error:e}, {what}");
            // Far below the clip norm the gradient comes out as it is.
            let (found, _) = engine.clipped_sum(&self.parameters, self.one(example), 1e6).unwrap();
            assert_eq!(found.counts(), ClipCounts { examples: 1, ..ClipCounts::default() });
            let error = distance(&found.into_values(), expected) / norms[example];
            assert!(error < tolerance, "one unclipped gradient: {error:e}, {what}");
        }
        let total: f64 = norms.iter().sum();
        let (plain, metrics) = engine.gradient_sum(&self.parameters, self.batch()).unwrap();
        let error = distance(&plain, &self.sum(|_| 1.0)) / total;
        assert!(error < tolerance, "plain sum: {error:e}, {what}");
        let loss: f64 = self.losses.iter().sum();
        assert!((metrics.loss_sum - loss).abs() < 1e-5 * loss, "{} {loss}", metrics.loss_sum);
        let mut sorted = norms.clone();
        sorted.sort_by(f64::total_cmp);
        // Some are clipped and some are not; all; none.
        let middle = 1.001 * sorted[sorted.len() / 2];
        for clip in [middle, 0.01 * middle, 100.0 * middle] {
            let (sum, _) = engine.clipped_sum(&self.parameters, self.batch(), clip).unwrap();
            let clipped = norms.iter().filter(|n| **n > clip).count();
            let examples = self.labels.len();
            assert_eq!(sum.counts(), ClipCounts { examples, clipped, non_finite: 0 }, "{what}");
            let expected = self.sum(|g| (clip / norm(g)).min(1.0));
            let scale: f64 = norms.iter().map(|n| n.min(clip)).sum();
            let error = distance(&sum.into_values(), &expected) / scale;
            assert!(error < tolerance + guard, "clipped sum: {error:e}, {what}");
        }
        let mut logits = vec![0.0; self.labels.len() * self.classes()];
        engine.forward(&self.parameters, &self.images, &mut logits).unwrap();
        let losses = logits.chunks(self.classes()).zip(&self.labels).map(|(z, &label)| {
            let total: f64 = z.iter().map(|&z| f64::from(z).exp()).sum();
            total.ln() - f64::from(z[label as usize])
        });
        for (found, expected) in losses.zip(&self.losses) {
            assert!((found - expected).abs() < 1e-5 * (1.0 + expected), "{found} {expected}");
        }
    }

    fn classes(&self) -> usize {
        self.architecture.shapes().last().unwrap().len()
    }

    /// Norms are at least the true ones and at most `guard` above them.
    fn check_norms(&self, engine: &BurnEngine, guard: f64) {
        let norms = norms(engine, &self.parameters, self.batch());
        assert_eq!(norms.len(), self.labels.len());
        for (found, gradient) in norms.iter().zip(&self.gradients) {
            let excess = f64::from(*found) / norm(gradient) - 1.0;
            // Two computations of the gradient itself differ by a few units.
            assert!(
                (-1e-6..guard).contains(&excess),
                "{excess:e}, {:?}",
                self.architecture.layers()
            );
        }
    }

    fn check_on(&self, device: Device, microbatches: &[usize]) {
        for &microbatch in microbatches {
            let mut engine = self.engine(device, microbatch);
            let what = engine.describe().name;
            self.check(&mut engine, &what, 3e-6, 3e-4);
            self.check_norms(&engine, 3e-4);
        }
    }
}

/// Every layer and geometry, on images of odd sizes.
fn stacks() -> Vec<Architecture> {
    let mut all = Vec::new();
    for kernel in [1, 3, 5] {
        for stride in [1, 2, 3] {
            for padding in [0, 1, 2, 3] {
                let layers =
                    vec![conv(2, 7, kernel, stride, padding), Layer::Tanh, conv(7, 3, 3, 2, 1)];
                all.push(classifier((2, 12, 9), layers));
            }
        }
    }
    // Groups of channels, up to one channel each, also where the gradient of the image goes through them.
    for (stride, padding) in [(1, 1), (1, 0), (2, 1), (3, 3)] {
        for (outer, groups) in [(6, 2), (4, 4), (12, 4)] {
            let second = grouped(4, outer, (3, stride, padding), groups);
            let layers = vec![conv(2, 4, 1, 1, 0), Layer::Tanh, second];
            all.push(classifier((2, 12, 9), layers));
        }
    }
    let first = || conv(3, 6, 3, 1, 1);
    let max = |kernel, stride| Layer::MaxPool2d { kernel, stride };
    let mean = |kernel, stride| Layer::AvgPool2d { kernel, stride };
    let layers = [
        vec![],
        vec![Layer::Relu],
        vec![first(), Layer::GroupNorm { groups: 3 }, Layer::Relu],
        vec![first(), Layer::Relu, Layer::GroupNorm { groups: 2 }],
        vec![Layer::GroupNorm { groups: 1 }, first(), Layer::Tanh, Layer::Relu],
        vec![first(), Layer::GroupNorm { groups: 6 }, conv(6, 8, 3, 1, 1)],
        vec![first(), max(2, 2), Layer::Relu],
        vec![first(), Layer::Relu, max(3, 2)],
        vec![first(), Layer::Tanh, max(3, 1), conv(6, 4, 2, 1, 0)],
        vec![first(), mean(2, 2), Layer::Tanh],
        vec![first(), mean(3, 1), conv(6, 20, 3, 1, 1)],
        vec![first(), mean(2, 3), Layer::Relu],
        vec![max(2, 2), Layer::Tanh, conv(3, 20, 3, 1, 1)],
        // Few pixels and many weights: ghost norms.
        vec![conv(3, 20, 3, 4, 1), Layer::Relu, conv(20, 40, 3, 1, 1)],
        vec![conv(3, 20, 3, 4, 1), Layer::Relu, conv(20, 40, 2, 2, 1), Layer::Tanh],
    ];
    all.extend(layers.into_iter().map(|layers| classifier((3, 9, 8), layers)));
    let linear = |in_features, out_features| Layer::Linear { in_features, out_features };
    let layers = vec![linear(21, 19), Layer::Tanh, linear(19, 40), Layer::Relu, linear(40, 3)];
    all.push(Architecture::new(Shape::Vector { features: 21 }, layers).unwrap());
    all
}

#[test]
fn every_layer_agrees_with_automatic_differentiation_on_the_cpu() {
    for architecture in stacks() {
        let case = Case::new(architecture, 5);
        for device in cpus() {
            case.check_on(device, &[0, 1, 2]);
        }
    }
}

#[test]
fn both_convnets_agree_with_automatic_differentiation() {
    for architecture in [convnet(), convnet_tanh()] {
        let case = Case::new(architecture, 3);
        case.check_on(Device::Flex, &[0, 2]);
        if cfg!(feature = "ndarray") {
            case.check_on(Device::Ndarray, &[2]);
        }
        // And so does the CPU engine, which shares no code with it.
        for (convolution, tolerance) in
            [(ConvolutionMethod::Direct, 3e-6), (ConvolutionMethod::Winograd, 2e-5)]
        {
            let options = EngineOptions { convolution, ..EngineOptions::default() };
            let mut engine = Engine::new(&case.architecture, options).unwrap();
            case.check(&mut engine, "the CPU engine", tolerance, 1e-4);
        }
    }
}

#[test]
fn every_layer_agrees_with_automatic_differentiation_on_the_gpu() {
    let Some(gpu) = gpu() else { return };
    // A shader is compiled for every shape: one stack per layer and geometry is enough.
    let layers = [
        vec![
            conv(2, 4, 3, 1, 1),
            Layer::Relu,
            Layer::MaxPool2d { kernel: 2, stride: 2 },
            conv(4, 20, 3, 2, 1),
            Layer::GroupNorm { groups: 2 },
            Layer::Tanh,
            conv(20, 24, 3, 1, 1),
        ],
        vec![conv(2, 3, 2, 2, 0), Layer::Tanh, Layer::AvgPool2d { kernel: 2, stride: 1 }],
        vec![conv(2, 3, 1, 1, 2), Layer::MaxPool2d { kernel: 3, stride: 2 }, Layer::Relu],
    ];
    for layers in layers {
        let case = Case::new(classifier((2, 7, 6), layers), 3);
        case.check_on(gpu, &[0, 2]);
    }
}

#[test]
fn a_convnet_on_the_gpu_agrees_with_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let case = Case::new(convnet(), 2);
    let mut engine = case.engine(gpu, 0);
    let (sum, _) = engine.clipped_sum(&case.parameters, case.batch(), 1.0).unwrap();
    let expected = case.sum(|g| (1.0 / norm(g)).min(1.0));
    let error = distance(&sum.into_values(), &expected) / norm(&expected);
    assert!(error < 3e-4, "{error:e}");
}
