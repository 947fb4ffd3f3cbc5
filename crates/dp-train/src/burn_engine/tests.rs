//! The burn engine against automatic differentiation, on every device.

use std::io::Write;

use super::*;
use crate::burn_engine::autodiff;
use crate::engine::{ConvolutionMethod, Engine};
use crate::model::{Layer, Shape, initial_parameters};
use crate::seeds::RunSeed;

fn conv(i: usize, o: usize, kernel: usize, stride: usize, padding: usize) -> Layer {
    Layer::Conv2d { in_channels: i, out_channels: o, kernel, stride, padding, groups: 1 }
}

fn grouped(channels: [usize; 2], groups: usize, stride: usize, padding: usize) -> Layer {
    let [in_channels, out_channels] = channels;
    Layer::Conv2d { in_channels, out_channels, kernel: 3, stride, padding, groups }
}

/// The layers on an image, then a linear layer to 5 classes.
fn classifier(input: (usize, usize, usize), mut layers: Vec<Layer>) -> Architecture {
    let (channels, height, width) = input;
    let input = Shape::Image { channels, height, width };
    layers.push(Layer::Flatten);
    let features = Architecture::new(input, layers.clone()).unwrap().shapes().last().unwrap().len();
    layers.push(Layer::Linear { in_features: features, out_features: 5 });
    Architecture::new(input, layers).unwrap()
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

fn distance(x: &[f32], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len());
    norm(&x.iter().zip(y).map(|(x, y)| f64::from(*x) - y).collect::<Vec<_>>())
}

/// The GPU, or the software that stands in for it; `None`, loudly, if there is neither.
fn gpu() -> Option<Device> {
    let tried = [Device::Gpu, Device::GpuSoftware].map(|gpu| (gpu, device::open(gpu)));
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
        // Normalisation that is not the identity.
        parameters.iter_mut().enumerate().for_each(|(i, p)| *p *= 1.0 + 0.3 * (i as f32).sin());
        let pixels = architecture.shapes()[0].len();
        let wave = |i: usize| ((i * 7919 % 1009) as f32 / 504.5 - 1.0) * ((i % 13) as f32 / 13.0);
        let images: Vec<f32> = (0..examples * pixels).map(wave).collect();
        let classes = architecture.shapes().last().unwrap().len() as u32;
        let labels: Vec<u32> = (0..examples as u32).map(|i| i * 3 % classes).collect();
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
        Batch { images: &self.images, labels: &self.labels }
    }

    fn one(&self, example: usize) -> Batch<'_> {
        let pixels = self.architecture.shapes()[0].len();
        Batch {
            images: &self.images[example * pixels..][..pixels],
            labels: &self.labels[example..=example],
        }
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
    fn check_norms(&self, engine: &mut BurnEngine, guard: f64) {
        let norms = engine.norms(&self.parameters, self.batch()).unwrap();
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
            let what = engine.description();
            self.check(&mut engine, &what, 3e-6, 3e-4);
            self.check_norms(&mut engine, 3e-4);
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
        for (channels, groups) in [([4, 6], 2), ([4, 4], 4), ([4, 12], 4)] {
            let layers =
                vec![conv(2, 4, 1, 1, 0), Layer::Tanh, grouped(channels, groups, stride, padding)];
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
    for architecture in [Architecture::convnet(), Architecture::convnet_tanh()] {
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
    let case = Case::new(Architecture::convnet(), 2);
    let mut engine = case.engine(gpu, 0);
    let (sum, _) = engine.clipped_sum(&case.parameters, case.batch(), 1.0).unwrap();
    let expected = case.sum(|g| (1.0 / norm(g)).min(1.0));
    let error = distance(&sum.into_values(), &expected) / norm(&expected);
    assert!(error < 3e-4, "{error:e}");
}

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
        let rest = Batch { images: &case.images[pixels..], labels: &case.labels[1..] };
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
    check_bound(Device::Flex, Architecture::convnet(), 6, &[1e-4, 0.1, 1.0]);
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
                let norms = engine.norms(&case.parameters, case.batch()).unwrap();
                assert!(norms[1].is_nan() && norms[0] > 0.0 && norms[2] > 0.0);
                let kept: Vec<f32> = [&clean[..108], &clean[216..]].concat();
                let kept = Batch { images: &kept, labels: &[case.labels[0], case.labels[2]] };
                let (without, _) = engine.clipped_sum(&case.parameters, kept, 0.7).unwrap();
                let error = distance(&sum, &wide(&without.into_values()));
                assert!(error < 1e-6, "{device}, {bad}: {error:e}");
            }
        }
    }
}

#[test]
fn copies_are_averaged_before_they_are_clipped() {
    let layers = vec![
        conv(3, 6, 3, 1, 1),
        Layer::GroupNorm { groups: 2 },
        Layer::Relu,
        conv(6, 40, 3, 4, 1),
        Layer::Tanh,
    ];
    let mut case = Case::new(classifier((3, 9, 8), layers), 6);
    // Two examples of three copies: the labels of the copies are those of their example.
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
                    engine.clipped_sum_of_means(&case.parameters, case.batch(), 3, clip).unwrap();
                assert_eq!(sum.counts(), ClipCounts { examples: 2, clipped, non_finite: 0 });
                assert_eq!(metrics.examples, 6);
                let expected = case.sum(|g| (clip / norm(g)).min(1.0));
                let error = distance(&sum.into_values(), &expected) / norm(&expected);
                assert!(error < 3e-4, "{device}: {error:e}");
            }
            let none = engine.clipped_sum_of_means(&case.parameters, case.batch(), 0, 1.0);
            assert_eq!(none.unwrap_err(), EngineError::NoCopies);
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
    for (microbatch, threads) in [(1, 1), (2, 2), (7, 3), (22, 1), (23, 0), (100, 2)] {
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
        engine.clipped_sum(parameters, Batch { images, labels }, clip)
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
