//! The GPU's kernels against naive loops in f64, on the software that stands in for a GPU where there is none.

use std::io::Write;

use super::GpuEngine;
use super::kernels::lanes::Form;
use super::kernels::{SPAN, UNITS};
use crate::engine::cases::{
    batch, classifier, conv, convnet, convnet_tanh, distance, grouped, norm, wide,
};
use crate::engine::reference::{self, Example};
use crate::engine::{Batch, BatchMetrics, Device, Engine, EngineOptions, GradientEngine};
use crate::gradient::ClipCounts;
use crate::model::{Architecture, Layer, Shape, initial_parameters};
use crate::seeds::RunSeed;

mod clipping;
mod rehearsal;
mod resident;
mod update;

/// The GPU, or the software that stands in for it; `None`, loudly, if there is neither.
fn gpu() -> Option<Device> {
    let open = |device: &Device| super::adapter::open(*device, None);
    if let Some(device) = [Device::Gpu, Device::GpuSoftware].into_iter().find(|d| open(d).is_ok()) {
        return Some(device);
    }
    let error = open(&Device::GpuSoftware).err().map_or(String::new(), |error| error.to_string());
    assert!(std::env::var_os("BANDROOT_REQUIRE_GPU").is_none(), "{error}");
    // Not eprintln: the test harness would swallow it.
    let _ = writeln!(std::io::stderr(), "\nNOT TESTED on a GPU: {error}\n");
    None
}

/// Parameters, a batch, and the gradients of its images one at a time.
struct Case {
    architecture: Architecture,
    parameters: Vec<f32>,
    images: Vec<f32>,
    labels: Vec<u32>,
    examples: Vec<Example>,
}

impl Case {
    fn new(architecture: Architecture, images: usize) -> Self {
        let mut parameters = initial_parameters(&architecture, RunSeed(5));
        // Normalization that is not the identity.
        parameters.iter_mut().enumerate().for_each(|(i, p)| *p *= 1.0 + 0.3 * (i as f32).sin());
        Self::with(architecture, parameters, images)
    }

    fn with(architecture: Architecture, parameters: Vec<f32>, count: usize) -> Self {
        let (images, labels) = batch(&architecture, count);
        let pixels = architecture.input().len();
        let each = images.chunks(pixels).zip(&labels);
        let examples = each.map(|(image, &label)| {
            reference::example(&architecture, &wide(&parameters), &wide(image), label as usize)
        });
        let examples = examples.collect();
        Self { architecture, parameters, images, labels, examples }
    }

    fn engine(&self, device: Device, microbatch: usize) -> GpuEngine {
        let options = EngineOptions { microbatch, ..EngineOptions::default() };
        GpuEngine::new(&self.architecture, device, options).unwrap()
    }

    /// An engine whose products have this form.
    fn engine_in(&self, form: Form, device: Device) -> GpuEngine {
        let mut engine = self.engine(device, 0);
        engine.set_form(form);
        engine
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.images, &self.labels)
    }

    /// The sum of gradients, each times a factor.
    fn sum(&self, factor: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        let mut sum = vec![0.0; self.parameters.len()];
        for Example { gradient, .. } in &self.examples {
            let factor = factor(gradient);
            sum.iter_mut().zip(gradient).for_each(|(s, g)| *s += factor * g);
        }
        sum
    }

    /// Plain and clipped sums, counts, losses and logits agree to the rounding of f32.
    fn check(&self, engine: &mut GpuEngine) {
        let what = format!("{:?}", self.architecture.layers());
        let norms: Vec<f64> = self.examples.iter().map(|e| norm(&e.gradient)).collect();
        let (plain, metrics) = engine.gradient_sum(&self.parameters, self.batch()).unwrap();
        let error = distance(&plain, &self.sum(|_| 1.0)) / norms.iter().sum::<f64>();
        assert!(error < 3e-6, "plain sum: {error:e}, {what}");
        let loss: f64 = self.examples.iter().map(|e| e.loss).sum();
        assert!((metrics.loss_sum - loss).abs() < 1e-5 * loss, "{} {loss}", metrics.loss_sum);
        assert_eq!(metrics.images, self.labels.len());
        let mut sorted = norms.clone();
        sorted.sort_by(f64::total_cmp);
        // Some are clipped and some are not; all; none.
        let middle = 1.002 * sorted[sorted.len() / 2];
        for clip in [middle, 0.01 * middle, 100.0 * middle] {
            let (sum, _) = engine.clipped_sum(&self.parameters, self.batch(), clip).unwrap();
            let clipped = norms.iter().filter(|n| **n > clip).count();
            let examples = self.labels.len();
            assert_eq!(sum.counts(), ClipCounts { examples, clipped, non_finite: 0 }, "{what}");
            let expected = self.sum(|g| (clip / norm(g)).min(1.0));
            let scale: f64 = norms.iter().map(|n| n.min(clip)).sum();
            let error = distance(&sum.into_values(), &expected) / scale;
            assert!(error < 6e-4, "clipped sum: {error:e}, {what}");
        }
        let classes = self.architecture.output().len();
        let mut logits = vec![0.0; self.labels.len() * classes];
        engine.forward(&self.parameters, &self.images, &mut logits).unwrap();
        for ((logits, example), &label) in
            logits.chunks(classes).zip(&self.examples).zip(&self.labels)
        {
            let total: f64 = logits.iter().map(|&z| f64::from(z).exp()).sum();
            let loss = total.ln() - f64::from(logits[label as usize]);
            assert!((loss - example.loss).abs() < 1e-5 * (1.0 + loss), "{loss} {}", example.loss);
        }
    }

    /// Norms are at least the true ones, and not much larger.
    fn check_norms(&self, engine: &mut GpuEngine, guard: f64) {
        let norms = engine.norms(&self.parameters, self.batch()).unwrap();
        assert_eq!(norms.len(), self.labels.len());
        for (found, example) in norms.iter().zip(&self.examples) {
            let excess = f64::from(*found) / norm(&example.gradient) - 1.0;
            // The gradient itself is off by a few units.
            let layers = self.architecture.layers();
            assert!((-1e-6..guard).contains(&excess), "{excess:e}, {layers:?}");
        }
    }
}

/// The forms that products can have here: tiles everywhere, and what suits the device.
fn forms(gpu: Device) -> Vec<Form> {
    let own = super::adapter::open(gpu, None).unwrap().form;
    if own == Form::Tiles { vec![own] } else { vec![own, Form::Tiles] }
}

/// Every layer and geometry, on images of odd sizes. A shader is compiled for every shape, which takes a while.
fn stacks() -> Vec<Architecture> {
    let max = |kernel, stride| Layer::MaxPool2d { kernel, stride };
    let mean = |kernel, stride| Layer::AvgPool2d { kernel, stride };
    let layers = [
        vec![
            conv(2, 4, 3, 1, 1),
            Layer::Relu,
            max(2, 2),
            conv(4, 20, 3, 2, 1),
            Layer::GroupNorm { groups: 2 },
            Layer::Tanh,
            conv(20, 24, 3, 1, 1),
        ],
        vec![conv(2, 3, 2, 2, 0), Layer::Tanh, mean(2, 1), Layer::Relu],
        vec![conv(2, 9, 1, 1, 2), max(3, 2), Layer::Relu, Layer::Tanh, conv(9, 70, 5, 3, 3)],
        vec![Layer::Tanh, grouped(2, 6, (3, 2, 1), 2), Layer::Relu, grouped(6, 12, (3, 1, 1), 6)],
        vec![Layer::GroupNorm { groups: 1 }, conv(2, 5, 3, 3, 3), Layer::GroupNorm { groups: 5 }],
        vec![
            max(2, 1),
            conv(2, 33, 3, 1, 0),
            Layer::Relu,
            mean(3, 2),
            Layer::GroupNorm { groups: 3 },
        ],
        vec![],
    ];
    let mut all: Vec<_> = layers.into_iter().map(|layers| classifier((2, 12, 9), layers)).collect();
    // Maxima that convolutions take, and sides that are no multiple of a square's.
    let layers = [
        vec![conv(2, 12, 3, 1, 1), Layer::Relu, max(2, 2), conv(12, 9, 2, 1, 0), Layer::Tanh],
        vec![conv(2, 70, 5, 1, 1), max(2, 2), conv(70, 11, 3, 1, 2), Layer::Relu],
        vec![grouped(2, 20, (3, 1, 1), 2), Layer::Tanh, max(2, 2), grouped(20, 24, (3, 1, 1), 2)],
        vec![
            max(2, 2),
            Layer::Relu,
            conv(2, 33, 4, 1, 2),
            Layer::Relu,
            max(2, 2),
            conv(33, 40, 3, 1, 1),
        ],
    ];
    all.extend(layers.into_iter().map(|layers| classifier((2, 12, 18), layers)));
    let linear = Layer::linear;
    let layers = vec![linear(21, 19), Layer::Tanh, linear(19, 140), Layer::Relu, linear(140, 3)];
    all.push(Architecture::new(Shape::Vector { features: 21 }, layers).unwrap());
    all
}

#[test]
fn every_layer_agrees_with_the_definition() {
    let Some(gpu) = gpu() else { return };
    for architecture in stacks() {
        // Two parts, the second not whole.
        let case = Case::new(architecture, 19);
        for form in forms(gpu) {
            let mut engine = case.engine_in(form, gpu);
            case.check(&mut engine);
            case.check_norms(&mut engine, 3e-4);
        }
        // And where the batch does not fit onto the device.
        case.check(&mut case.engine(gpu, 7));
    }
}

#[test]
fn both_convnets_and_one_with_normalization_agree_with_the_definition() {
    let Some(gpu) = gpu() else { return };
    let mut normalized = convnet().layers().to_vec();
    let mut at = 0;
    while at < normalized.len() {
        if normalized[at] == Layer::Relu {
            at += 1;
            normalized.insert(at, Layer::GroupNorm { groups: 8 });
        }
        at += 1;
    }
    let normalized = Architecture::new(convnet().input(), normalized).unwrap();
    for architecture in [convnet(), convnet_tanh(), normalized] {
        let case = Case::new(architecture, 2);
        for form in forms(gpu) {
            let mut engine = case.engine_in(form, gpu);
            case.check(&mut engine);
            case.check_norms(&mut engine, 1e-3);
        }
    }
}

#[test]
fn a_device_is_compared_with_the_cpu_when_it_is_opened() {
    let Some(gpu) = gpu() else { return };
    let model = &stacks()[0];
    let mut engine = GpuEngine::open(model, gpu, EngineOptions::default()).unwrap();
    assert!(engine.describe().name.contains("of the CPU engine"), "{:?}", engine.describe());
    // What a run is bound to says what makes programs out of the kernels.
    let arithmetic = engine.describe().arithmetic;
    assert!(arithmetic.contains("wgpu<") && arithmetic.contains("own kernels in "), "{arithmetic}");
    let before = engine.deviation.unwrap();
    engine.compare(3).unwrap();
    assert!(engine.deviation.unwrap() >= before);
}

#[test]
fn grids_that_need_a_second_axis_agree_with_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let mean = Layer::AvgPool2d { kernel: 8, stride: 8 };
    let layers = vec![conv(1, 3, 3, 1, 1), Layer::Relu, mean, Layer::Tanh];
    let model = classifier((1, 32, 32), layers);
    // Tiles of 64 pixels.
    let examples = SPAN * UNITS / 1024 + 40;
    let parameters = initial_parameters(&model, RunSeed(5));
    let (images, labels) = batch(&model, examples);
    let batch = Batch::new(&images, &labels);
    let mut cpu = Engine::new(&model, EngineOptions::default()).unwrap();
    let (expected, of_cpu) = cpu.clipped_sum(&parameters, batch, 0.3).unwrap();
    let expected = expected.into_values();
    for form in forms(gpu) {
        let options = EngineOptions { microbatch: examples, ..EngineOptions::default() };
        let mut engine = GpuEngine::new(&model, gpu, options).unwrap();
        engine.set_form(form);
        let (found, metrics) = engine.clipped_sum(&parameters, batch, 0.3).unwrap();
        let error = distance(&found.into_values(), &expected) / norm(&expected);
        assert!(error < 1e-3, "{form:?}: {error:e}");
        assert!((metrics.loss_sum - of_cpu.loss_sum).abs() < 1e-4 * of_cpu.loss_sum);
    }
}

#[test]
fn too_little_memory_says_which_microbatch_needs_half() {
    let Some(gpu) = gpu() else { return };
    let model = &stacks()[0];
    let mut engine = GpuEngine::new(model, gpu, EngineOptions::default()).unwrap();
    let refused = |_: &mut GpuEngine| Err::<(), _>("can't allocate buffer of size: 9".to_owned());
    let error = engine.run(refused).unwrap_err();
    assert!(error.to_string().contains("engine.microbatch = 256"), "{error}");
    // A batch is smaller than what may go through the network together.
    let case = Case::new(model.clone(), 48);
    engine.clipped_sum(&case.parameters, case.batch(), 1.0).unwrap();
    let error = engine.run(refused).unwrap_err();
    assert!(error.to_string().contains("engine.microbatch = 24"), "{error}");
    let error = engine.run(|_| -> Result<(), String> { panic!("a driver's") }).unwrap_err();
    assert!(error.to_string().contains("failed: a driver's"), "{error}");
}
