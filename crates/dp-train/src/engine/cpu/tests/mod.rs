//! The engine against the definition.

use std::collections::HashMap;

use crate::engine::cases::{
    batch, classifier, conv, convnet, convnet_tanh, distance, grouped, norm, wide,
};
use crate::engine::cpu::Engine;
use crate::engine::cpu::kernels::vector::Isa;
use crate::engine::reference::{self, Example};
use crate::engine::{
    Batch, BatchMetrics, ConvolutionMethod, EngineError, EngineOptions, GradientEngine,
};
use crate::gradient::{ClipCounts, GradientError};
use crate::model::{Architecture, Layer, Shape, initial_parameters};
use crate::seeds::RunSeed;

mod clipping;
mod golden;
mod sensitivity;
mod views;

const METHODS: [ConvolutionMethod; 2] = [ConvolutionMethod::Winograd, ConvolutionMethod::Direct];

struct Case {
    architecture: Architecture,
    parameters: Vec<f32>,
    images: Vec<f32>,
    labels: Vec<u32>,
    examples: Vec<Example>,
}

impl Case {
    fn new(architecture: Architecture, examples: usize) -> Self {
        let mut parameters = initial_parameters(&architecture, RunSeed(5));
        // Normalization that is not the identity.
        parameters.iter_mut().enumerate().for_each(|(i, p)| *p *= 1.0 + 0.3 * (i as f32).sin());
        let (images, labels) = batch(&architecture, examples);
        let pixels = architecture.shapes()[0].len();
        let examples = images
            .chunks(pixels)
            .zip(&labels)
            .map(|(image, &label)| {
                let parameters = wide(&parameters);
                reference::example(&architecture, &parameters, &wide(image), label as usize)
            })
            .collect();
        Self { architecture, parameters, images, labels, examples }
    }

    fn engine(&self, options: EngineOptions) -> Engine {
        Engine::new(&self.architecture, options).unwrap()
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.images, &self.labels)
    }

    fn sum(&self, scale: impl Fn(&Example) -> f64) -> Vec<f64> {
        let mut sum = vec![0.0; self.parameters.len()];
        for example in &self.examples {
            let scale = scale(example);
            sum.iter_mut().zip(&example.gradient).for_each(|(s, g)| *s += scale * g);
        }
        sum
    }

    /// Forward, plain and clipped sums agree with the definition to `tolerance`, relative to the
    /// sum of the norms.
    fn check(&self, options: EngineOptions, tolerance: f64) {
        let mut engine = self.engine(options);
        let classes = self.architecture.shapes().last().unwrap().len();
        let mut logits = vec![0.0; self.labels.len() * classes];
        engine.forward(&self.parameters, &self.images, &mut logits).unwrap();
        for (logits, example) in logits.chunks(classes).zip(&self.examples) {
            let error = distance(logits, &example.logits);
            assert!(error < tolerance * (1.0 + norm(&example.logits)), "logits: {error:e}");
        }
        let norms: Vec<f64> = self.examples.iter().map(|e| norm(&e.gradient)).collect();
        let total: f64 = norms.iter().sum();
        let (plain, metrics) = engine.gradient_sum(&self.parameters, self.batch()).unwrap();
        let error = distance(&plain, &self.sum(|_| 1.0)) / total;
        assert!(error < tolerance, "plain: {error:e} {options:?} {:?}", self.architecture.shapes());
        let loss: f64 = self.examples.iter().map(|e| e.loss).sum();
        assert!((metrics.loss_sum - loss).abs() < 10.0 * tolerance * loss);
        // A norm in the middle: some are clipped, some are not.
        let mut sorted = norms.clone();
        sorted.sort_by(f64::total_cmp);
        let clip = 1.0001 * sorted[sorted.len() / 2];
        for clip in [clip, 0.01 * clip, 100.0 * clip] {
            let (sum, _) = engine.clipped_sum(&self.parameters, self.batch(), clip).unwrap();
            let clipped = norms.iter().filter(|n| **n > clip).count();
            let examples = self.labels.len();
            assert_eq!(sum.counts(), ClipCounts { examples, clipped, non_finite: 0 });
            let expected = self.sum(|e| (clip / norm(&e.gradient)).min(1.0));
            let scale: f64 = norms.iter().map(|n| n.min(clip)).sum();
            let error = distance(&sum.into_values(), &expected) / scale;
            assert!(error < 3.0 * tolerance + 2e-5, "clipped: {error:e}");
        }
    }

    fn check_all(&self) {
        for convolution in METHODS {
            for (threads, microbatch, portable) in [(1, 0, false), (2, 3, false), (1, 1, true)] {
                let options =
                    EngineOptions { threads, microbatch, convolution, portable, adapter: None };
                let tolerance = if convolution == ConvolutionMethod::Direct { 2e-6 } else { 2e-5 };
                self.check(options, tolerance);
            }
            self.check_bits(EngineOptions { convolution, ..EngineOptions::default() });
        }
    }

    /// Instruction sets that are said to compute the same do so to the last bit: a run may go on with another of them.
    fn check_bits(&self, options: EngineOptions) {
        let mut found: HashMap<&str, Vec<u64>> = HashMap::new();
        for isa in Isa::all() {
            let mut engine = self.engine(options).on(isa);
            let classes = self.architecture.shapes().last().unwrap().len();
            let mut logits = vec![0.0; self.labels.len() * classes];
            engine.forward(&self.parameters, &self.images, &mut logits).unwrap();
            let (plain, _) = engine.gradient_sum(&self.parameters, self.batch()).unwrap();
            let (sum, _) = engine.clipped_sum(&self.parameters, self.batch(), 0.1).unwrap();
            let floats = logits.iter().chain(&plain).map(|x| u64::from(x.to_bits()));
            let bits = floats.chain(sum.into_values().iter().map(|x| x.to_bits())).collect();
            let first = found.entry(isa.arithmetic()).or_insert_with(|| Vec::clone(&bits));
            assert!(*first == bits, "{} {:?}", isa.name(), self.architecture.shapes());
        }
    }
}

#[test]
fn convolutions_of_every_geometry_agree_with_the_definition() {
    for kernel in [1, 3, 5] {
        for stride in [1, 2] {
            for padding in [0, 1, 2] {
                let layers = vec![
                    conv(2, 7, kernel, stride, padding),
                    Layer::Tanh,
                    conv(7, 3, kernel, stride, padding),
                ];
                // A kernel that no longer fits after the first layer is not a case.
                let input = if stride == 2 { (2, 15, 13) } else { (2, 11, 10) };
                Case::new(classifier(input, layers), 3).check_all();
            }
        }
    }
}

#[test]
fn grouped_convolutions_agree_with_the_definition() {
    for window in [(1, 1, 0), (3, 1, 1), (3, 2, 1), (3, 1, 0), (5, 2, 2), (3, 1, 3)] {
        let stacks = [
            // First, so that nothing needs the gradient of its input; then in the middle.
            vec![grouped(4, 6, window, 2), Layer::Relu, grouped(6, 4, window, 2)],
            // Depthwise, then every channel with two outputs.
            vec![conv(4, 5, 3, 1, 1), Layer::Tanh, grouped(5, 5, window, 5)],
            vec![grouped(4, 8, window, 4), Layer::GroupNorm { groups: 2 }, conv(8, 3, 1, 1, 0)],
            // Groups wider than a tile, and beside layers that go through Winograd. Not ReLU: of
            // these many values one is so close to its kink that f32 and f64 disagree.
            vec![
                conv(4, 34, 3, 1, 1),
                Layer::Tanh,
                grouped(34, 36, window, 2),
                Layer::Tanh,
                conv(36, 20, 3, 1, 1),
            ],
            vec![Layer::Tanh, Layer::MaxPool2d { kernel: 2, stride: 1 }, grouped(4, 6, window, 2)],
        ];
        for layers in stacks {
            Case::new(classifier((4, 11, 9), layers), 4).check_all();
        }
    }
    // One output pixel.
    let layers = vec![conv(4, 6, 3, 1, 1), Layer::Relu, grouped(6, 9, (5, 1, 0), 3)];
    Case::new(classifier((4, 5, 5), layers), 7).check_all();
}

#[test]
fn fast_convolutions_of_odd_sizes_agree_with_the_definition() {
    for (height, width) in [(4, 4), (5, 7), (8, 8), (9, 12), (10, 13)] {
        for (inner, outer) in [(16, 16), (17, 33), (40, 16)] {
            let layers = vec![
                conv(3, inner, 3, 1, 1),
                Layer::Relu,
                conv(inner, outer, 3, 1, 1),
                Layer::Relu,
                conv(outer, 16, 3, 1, 1),
            ];
            Case::new(classifier((3, height, width), layers), 4).check_all();
        }
    }
}

#[test]
fn a_first_layer_with_many_channels_agrees_with_the_definition() {
    for channels in [16, 27] {
        let layers = vec![conv(channels, 18, 3, 1, 1), Layer::Relu, conv(18, 16, 3, 1, 1)];
        Case::new(classifier((channels, 8, 9), layers), 4).check_all();
    }
}

#[test]
fn pools_norms_and_activations_agree_with_the_definition() {
    let stacks = [
        vec![conv(3, 6, 3, 1, 1), Layer::GroupNorm { groups: 3 }, Layer::Relu],
        vec![conv(3, 6, 3, 1, 1), Layer::Relu, Layer::GroupNorm { groups: 2 }],
        vec![Layer::GroupNorm { groups: 1 }, conv(3, 4, 3, 1, 1), Layer::Tanh, Layer::Relu],
        vec![conv(3, 6, 3, 1, 1), Layer::MaxPool2d { kernel: 2, stride: 2 }, Layer::Relu],
        vec![conv(3, 6, 3, 1, 1), Layer::Relu, Layer::MaxPool2d { kernel: 3, stride: 2 }],
        vec![conv(3, 6, 3, 1, 1), Layer::Tanh, Layer::MaxPool2d { kernel: 3, stride: 1 }],
        vec![conv(3, 6, 3, 1, 1), Layer::AvgPool2d { kernel: 2, stride: 2 }, Layer::Tanh],
        vec![conv(3, 6, 3, 1, 1), Layer::AvgPool2d { kernel: 3, stride: 1 }, conv(6, 20, 3, 1, 1)],
        vec![Layer::MaxPool2d { kernel: 2, stride: 2 }, Layer::Tanh, conv(3, 20, 3, 1, 1)],
        vec![Layer::Relu],
        vec![],
    ];
    for layers in stacks {
        Case::new(classifier((3, 9, 8), layers), 5).check_all();
    }
}

/// ReLU is part of what comes before it on the way forward and of what follows it on the way back.
#[test]
fn relu_between_any_two_layers_agrees_with_the_definition() {
    let first = || vec![conv(3, 20, 3, 1, 1), Layer::Relu];
    let seconds = [
        vec![conv(20, 18, 3, 1, 1), Layer::Relu, conv(18, 17, 3, 1, 1)],
        vec![conv(20, 4, 3, 2, 1), Layer::Relu, conv(4, 3, 1, 1, 0)],
        vec![Layer::GroupNorm { groups: 5 }, conv(20, 18, 3, 1, 1), Layer::Relu],
        vec![Layer::GroupNorm { groups: 20 }, Layer::Relu, Layer::GroupNorm { groups: 1 }],
        vec![Layer::MaxPool2d { kernel: 2, stride: 2 }, conv(20, 16, 3, 1, 1), Layer::Tanh],
        vec![Layer::MaxPool2d { kernel: 3, stride: 2 }, Layer::Relu, conv(20, 4, 3, 1, 1)],
        vec![Layer::AvgPool2d { kernel: 2, stride: 1 }, Layer::Relu],
        vec![grouped(20, 4, (3, 1, 1), 4), Layer::Relu, Layer::Tanh],
    ];
    for second in seconds {
        let layers = first().into_iter().chain(second).collect();
        Case::new(classifier((3, 9, 7), layers), 3).check_all();
    }
}

#[test]
fn vectors_go_through_linear_layers() {
    let layers = vec![
        Layer::Linear { in_features: 21, out_features: 19 },
        Layer::Tanh,
        Layer::Linear { in_features: 19, out_features: 40 },
        Layer::Relu,
        Layer::Linear { in_features: 40, out_features: 3 },
    ];
    let architecture = Architecture::new(Shape::Vector { features: 21 }, layers).unwrap();
    Case::new(architecture, 19).check_all();
}

#[test]
fn both_convnets_agree_with_the_definition() {
    for architecture in [convnet(), convnet_tanh()] {
        Case::new(architecture, 3).check_all();
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let layers = vec![conv(3, 16, 3, 1, 1), conv(16, 32, 3, 1, 1), grouped(32, 32, (3, 1, 1), 4)];
    let case = Case::new(classifier((3, 8, 8), layers), 0);
    let (images, labels) = batch(&case.architecture, 301);
    for convolution in METHODS {
        let results: Vec<_> = [1, 2, 3]
            .map(|threads| {
                let options = EngineOptions { threads, convolution, ..EngineOptions::default() };
                let mut engine = case.engine(options);
                let batch = Batch::new(&images, &labels);
                // Twice: what an earlier batch left in the buffers must not matter.
                let first = engine.clipped_sum(&case.parameters, batch, 0.5).unwrap();
                assert_eq!(first, engine.clipped_sum(&case.parameters, batch, 0.5).unwrap());
                let hundreds = Batch::new(&images[..300 * 192], &labels[..100]);
                let means = engine.clipped_sum(&case.parameters, hundreds.with_views(3), 0.5);
                (first, means.unwrap(), engine.gradient_sum(&case.parameters, batch).unwrap())
            })
            .into();
        assert_eq!(results[0], results[1]);
        assert_eq!(results[0], results[2]);
    }
}

#[test]
fn winograd_costs_one_digit_of_accuracy() {
    let case = Case::new(convnet(), 4);
    let expected = case.sum(|_| 1.0);
    // The worst tensor, relative to its own norm: some are much smaller than others.
    let error = |convolution| {
        let mut engine = case.engine(EngineOptions { convolution, ..EngineOptions::default() });
        let (sum, _) = engine.gradient_sum(&case.parameters, case.batch()).unwrap();
        let tensors = case.architecture.parameters().iter().map(|p| {
            let expected = &expected[p.range.clone()];
            distance(&sum[p.range.clone()], expected) / norm(expected)
        });
        tensors.fold(0.0, f64::max)
    };
    let (direct, winograd) = (error(ConvolutionMethod::Direct), error(ConvolutionMethod::Winograd));
    println!("worst tensor's relative error: direct {direct:.1e}, Winograd {winograd:.1e}");
    assert!(direct < 2e-6 && winograd < 2e-5, "direct {direct:e}, Winograd {winograd:e}");
}
