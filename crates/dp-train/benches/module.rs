//! Steps of burn modules, private and plain: the worker of `scripts/peers/module.py`, which takes turns with Opacus.
//!
//! ```sh
//! cargo bench -p dp-train --features flex --bench module
//! ```
//!
//! prints a table by itself. With `--worker` it answers lines `MODEL WAY BATCH` with the seconds of one step.

use std::io::BufRead;
use std::time::Instant;

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::MaxPool2dConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};
use burn::nn::{
    Embedding, EmbeddingConfig, GroupNorm, GroupNormConfig, Linear, LinearConfig, PaddingConfig2d,
};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use dp_train::mf_core::{Method, Participation, Sgd};
use dp_train::module::{PerExample, PrivateTraining, Tapped, cross_entropy, trained_parameters};
use dp_train::{Budget, Clipping, NoiseKey, PlanRequest, RunSeed};

const WAYS: [&str; 4] = ["plain", "taps", "two-passes", "one-by-one"];
const MODELS: [&str; 3] = ["mlp", "convnet", "transformer"];

/// A model of the comparison.
trait Contender: Module + 'static {
    /// Numbers of an example.
    const LENGTH: usize;

    fn new(device: &Device) -> Self;
    fn logits(&self, x: Tensor<2>) -> Tensor<2>;
}

/// Examples that are on the device before anything is timed, as the peers' are.
struct Examples {
    inputs: Tensor<2>,
    targets: Tensor<1, Int>,
    device: Device,
}

impl Examples {
    /// Numbers that look random, in `[-1, 1)`.
    fn new(examples: usize, length: usize, device: &Device) -> Self {
        let number = |i: usize| ((i * 7919 + i / 13 * 104_729) % 2003) as f32 / 1001.5 - 1.0;
        let values: Vec<f32> = (0..examples * length).map(number).collect();
        let targets: Vec<i32> = (0..examples as i32).map(|i| i % 10).collect();
        Self {
            inputs: Tensor::from_data(TensorData::new(values, [examples, length]), device),
            targets: Tensor::from_data(&targets[..], device),
            device: device.clone(),
        }
    }

    /// The loss of every one of some examples.
    fn losses<M: Contender>(&self, model: &M, examples: &[u32]) -> Tensor<1> {
        let rows: Vec<i32> = examples.iter().map(|&example| example as i32).collect();
        let rows = Tensor::<1, Int>::from_data(&rows[..], &self.device);
        let inputs = self.inputs.clone().select(0, rows.clone());
        cross_entropy(model.logits(inputs), self.targets.clone().select(0, rows))
    }
}

/// 784 - 512 - 256 - 10.
#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
}

impl Contender for Mlp {
    const LENGTH: usize = 784;

    fn new(device: &Device) -> Self {
        let sizes = [(784, 512), (512, 256), (256, 10)];
        Self { layers: sizes.map(|(a, b)| LinearConfig::new(a, b).init(device)).into() }
    }

    fn logits(&self, x: Tensor<2>) -> Tensor<2> {
        let x = relu(self.layers[0].tapped(x));
        self.layers[2].tapped(relu(self.layers[1].tapped(x)))
    }
}

/// Three convolutions with group normalization on 28 x 28 pixels, the last in a residual block.
#[derive(Module, Debug)]
struct ConvNet {
    convolutions: Vec<Conv2d>,
    norms: Vec<GroupNorm>,
    head: Linear,
}

impl Contender for ConvNet {
    const LENGTH: usize = 28 * 28;

    fn new(device: &Device) -> Self {
        let conv = |channels| {
            let config = Conv2dConfig::new(channels, [3, 3]).with_padding(PaddingConfig2d::Same);
            config.init(device)
        };
        let norm = |channels| GroupNormConfig::new(4, channels).init(device);
        Self {
            convolutions: vec![conv([1, 16]), conv([16, 32]), conv([32, 32])],
            norms: vec![norm(16), norm(32), norm(32)],
            head: LinearConfig::new(32 * 49, 10).init(device),
        }
    }

    fn logits(&self, x: Tensor<2>) -> Tensor<2> {
        let layer = |i: usize, x| relu(self.norms[i].tapped(self.convolutions[i].tapped(x)));
        let pool = MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init();
        let n = x.dims()[0];
        let x = pool.forward(layer(0, x.reshape([n, 1, 28, 28])));
        let x = pool.forward(layer(1, x));
        let x = x.clone() + layer(2, x);
        self.head.tapped(x.flatten(1, 3))
    }
}

/// Two layers of width 64 and 4 heads over 32 of 1,000 words.
#[derive(Module, Debug)]
struct Transformer {
    words: Embedding,
    encoder: TransformerEncoder,
    head: Linear,
}

impl Contender for Transformer {
    const LENGTH: usize = 32;

    fn new(device: &Device) -> Self {
        let encoder = TransformerEncoderConfig::new(64, 128, 4, 2).with_dropout(0.0);
        Self {
            words: EmbeddingConfig::new(1000, 64).init(device),
            encoder: encoder.with_norm_first(true).init(device),
            head: LinearConfig::new(64, 10).init(device),
        }
    }

    fn logits(&self, x: Tensor<2>) -> Tensor<2> {
        let n = x.dims()[0];
        // From [-1, 1) to the numbers of words.
        let words = x.add_scalar(1.0).mul_scalar(500.0).int();
        let x = self.encoder.tapped(self.words.tapped(words)).mean_dim(1).reshape([n, 64]);
        self.head.tapped(x)
    }
}

/// Plain SGD.
struct Descend<'a>(&'a Gradients);

impl ModuleMapper for Descend<'_> {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = parameter.val().grad(self.0) else {
            return parameter;
        };
        parameter.map(|old| (old.inner() - gradient.mul_scalar(0.01)).autodiff().require_grad())
    }
}

/// A function that takes one step of a batch and returns its seconds.
fn stepper<M: Contender>(way: &str, batch: usize) -> Box<dyn FnMut() -> f64> {
    let device = Device::flex().autodiff();
    let mut model = M::new(&device).train();
    let data = Examples::new(2 * batch, M::LENGTH, &device);
    if way == "plain" {
        let examples: Vec<u32> = (0..batch as u32).collect();
        return Box::new(move || {
            let start = Instant::now();
            let gradients = data.losses(&model, &examples).mean().backward();
            model = model.clone().map(&mut Descend(&gradients));
            start.elapsed().as_secs_f64()
        });
    }
    let way = match way {
        "taps" => PerExample::Taps,
        "two-passes" => PerExample::TwoPasses,
        "one-by-one" => PerExample::OneByOne,
        other => panic!("{other} is no way: one of {WAYS:?}"),
    };
    let plan = PlanRequest::new(
        Method::Identity,
        Sgd::new(1.0, 0.0).expect("it is plain"),
        Participation::epochs(1000, 2).expect("they fit"),
        Budget { epsilon: 8.0, delta: 1e-5 },
        Clipping { batch_size: batch, clip_norm: 1.0 },
        trained_parameters(&model).expect("it can be trained"),
    );
    let (plan, key) = (plan.plan().expect("it can be planned"), NoiseKey::fixed(RunSeed(1)));
    let examples = 2 * batch as u32;
    let private = PrivateTraining::new(model, plan, examples, 0.01, RunSeed(1), key);
    let mut private = private.expect("it can be trained").gradients(way);
    private.check(|model, examples| data.losses(model, examples)).expect("taps agree");
    Box::new(move || {
        let start = Instant::now();
        let step = private.step(|model, examples| data.losses(model, examples));
        step.expect("a step");
        start.elapsed().as_secs_f64()
    })
}

fn stepper_of(model: &str, way: &str, batch: usize) -> Box<dyn FnMut() -> f64> {
    match model {
        "mlp" => stepper::<Mlp>(way, batch),
        "convnet" => stepper::<ConvNet>(way, batch),
        "transformer" => stepper::<Transformer>(way, batch),
        other => panic!("{other} is no model: one of {MODELS:?}"),
    }
}

/// Steps that are timed: noise is drawn for sixteen at once, and all of them have their share of it.
const STEPS: usize = 16;

/// The mean of several steps, after one that warms up.
fn seconds(step: &mut dyn FnMut() -> f64) -> f64 {
    step();
    (0..STEPS).map(|_| step()).sum::<f64>() / STEPS as f64
}

/// Most of the memory that this process had at a time, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    1024 * kilobytes.unwrap_or(0)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--peak") {
        // One step in a process of its own: `--peak MODEL WAY BATCH`.
        let [model, way, batch] = &arguments[at + 1..at + 4] else { unreachable!("three follow") };
        stepper_of(model, way, batch.parse().expect("a number"))();
        println!("{}", peak());
        return;
    }
    if arguments.iter().any(|argument| argument == "--worker") {
        for line in std::io::stdin().lock().lines() {
            let line = line.expect("a line");
            let words: Vec<&str> = line.split_whitespace().collect();
            let [model, way, batch] = words[..] else { panic!("MODEL WAY BATCH") };
            let mut step = stepper_of(model, way, batch.parse().expect("a number"));
            println!("{}", seconds(&mut *step));
        }
        return;
    }
    println!("{:12} {:10} {:>6} {:>12} {:>8}", "model", "way", "batch", "examples/s", "of plain");
    for model in MODELS {
        let batch = 256;
        let speed = |way| batch as f64 / seconds(&mut *stepper_of(model, way, batch));
        let plain = speed("plain");
        for way in WAYS {
            let found = if way == "plain" { plain } else { speed(way) };
            println!("{model:12} {way:10} {batch:6} {found:12.0} {:8.2}", found / plain);
        }
    }
}
