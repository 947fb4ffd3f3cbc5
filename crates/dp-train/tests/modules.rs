//! The examples of burn modules do what they say, by every way to their gradients and on every device that there is; and what needs
//! burn's one generator for itself: a run with dropout, continued.
//!
//! The noise of whole runs differs from run to run. Each accuracy is far above guessing and below what ten runs had at least.
#![allow(dead_code, reason = "the main functions of the examples")]

use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData};
use dp_train::mf_core::{Method, Participation, Sgd};
use dp_train::module::{PerExample, PrivateTraining, Tapped, cross_entropy, trained_parameters};
use dp_train::seal::Seal;
use dp_train::{Budget, Clipping, DpPlan, NoiseKey, PlanRequest, RunSeed};

#[path = "../examples/private_encoder.rs"]
mod private_encoder;
#[path = "../examples/private_lora.rs"]
mod private_lora;
#[path = "../examples/private_mlp.rs"]
mod private_mlp;
#[path = "../examples/private_residual.rs"]
mod private_residual;

/// One example at a time: burn draws the parameters of all models from one generator.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// burn's backends on the CPU, and a software GPU if there is one.
fn devices() -> Vec<(&'static str, Device)> {
    #[allow(unused_mut)]
    let mut devices = vec![("flex", Device::flex().autodiff())];
    #[cfg(feature = "ndarray")]
    #[allow(deprecated, reason = "it is offered as long as it exists")]
    devices.push(("ndarray", Device::ndarray().autodiff()));
    #[cfg(feature = "gpu")]
    devices.extend(software_gpu().map(|device| ("a Vulkan device in software", device)));
    devices
}

/// A Vulkan device in software; none, loudly, if there is none.
#[cfg(feature = "gpu")]
fn software_gpu() -> Option<Device> {
    use std::io::Write;
    use std::sync::OnceLock;

    // It is opened once in a process.
    static OPENED: OnceLock<Option<Device>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        let options = Device::wgpu_options().device_kind(burn::tensor::DeviceKind::Cpu);
        let error = match options.init() {
            Ok(device) => return Some(device.autodiff()),
            Err(error) => error,
        };
        assert!(std::env::var_os("BANDROOT_REQUIRE_GPU").is_none(), "{error}");
        // Not eprintln: the test harness would swallow it.
        let _ = writeln!(std::io::stderr(), "\nNOT TESTED on a GPU: {error}\n");
        None
    });
    opened.clone()
}

/// Rates times numbers of mean gradients, which are at most 1 in all: what f32 loses in passes that sum in other orders.
const TOLERANCE: f32 = 5e-6;

type Begun<M> = Result<PrivateTraining<M>, Box<dyn Error>>;

/// Each trained number moved a little: an adapter that begins with zeros passes nothing on to the one before it.
struct Shake(u32);

impl ModuleMapper for Shake {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !parameter.is_require_grad() {
            return parameter;
        }
        parameter.map(|old| {
            let mut moved = || {
                self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (self.0 >> 8) as f32 / 8.4e7 - 0.1
            };
            let shape = old.dims();
            let moved: Vec<f32> = (0..shape.iter().product()).map(|_| moved()).collect();
            let old = old.inner();
            let moved = Tensor::from_data(TensorData::new(moved, shape), &old.device());
            (old + moved).autodiff().require_grad()
        })
    }
}

/// The module passes its check by every way, and a step by taps or in two passes ends where a step by one-by-one gradients ends under
/// the same noise.
fn every_way_agrees<M: Module>(
    begin: fn(&Device, NoiseKey) -> Begun<M>,
    losses: fn(&M, &[u32], &Device) -> Tensor<1>,
) {
    let _alone = alone();
    for (name, device) in devices() {
        let begin = || {
            let run = begin(&device, NoiseKey::fixed(RunSeed(7))).unwrap();
            let (plan, module) = (run.training().plan().clone(), run.module().clone());
            let (module, examples) =
                (module.map(&mut Shake(1)), run.training().ledger().realized().examples as u32);
            let key = NoiseKey::fixed(RunSeed(7));
            PrivateTraining::new(module, plan, examples, 0.5, RunSeed(1), key).unwrap()
        };
        let mut losses = |model: &M, examples: &[u32]| losses(model, examples, &device);
        let mut stepped = |way| {
            let mut run = begin().gradients(way);
            run.check(&mut losses).unwrap_or_else(|error| panic!("{way:?} on {name}: {error}"));
            assert_eq!(run.way(), way);
            let start = run.training().parameters().to_vec();
            run.step(&mut losses).unwrap();
            (start, run.training().parameters().to_vec())
        };
        let (start, definition) = stepped(PerExample::OneByOne);
        for way in [PerExample::Taps, PerExample::TwoPasses] {
            let (other_start, end) = stepped(way);
            assert_eq!(other_start, start);
            let most = |other: &[f32]| {
                let pairs = end.iter().zip(other);
                pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
            };
            let (apart, moved) = (most(&definition), most(&start));
            println!("{name}, {way:?}: {apart:e} apart, {moved} from the start");
            let agrees = apart < TOLERANCE && moved > 100.0 * TOLERANCE;
            assert!(agrees, "{name}, {way:?}: {apart:e} of {moved}");
        }
    }
}

#[test]
fn every_way_to_the_gradients_of_the_mlp_agrees() {
    every_way_agrees(private_mlp::begin, private_mlp::losses);
}

#[test]
fn every_way_to_the_gradients_of_the_residual_net_agrees() {
    every_way_agrees(private_residual::begin, private_residual::losses);
}

#[test]
fn every_way_to_the_gradients_of_the_encoder_agrees() {
    every_way_agrees(private_encoder::begin, private_encoder::losses);
}

#[test]
fn every_way_to_the_gradients_of_the_adapters_agrees() {
    every_way_agrees(private_lora::begin, private_lora::losses);
}

#[test]
fn an_mlp_learns_a_table_privately() {
    let _alone = alone();
    let accuracy = private_mlp::train().unwrap();
    println!("{accuracy}");
    assert!(accuracy > 0.9, "{accuracy}");
}

#[test]
fn a_residual_net_learns_textures_privately() {
    let _alone = alone();
    let accuracy = private_residual::train().unwrap();
    println!("{accuracy}");
    assert!(accuracy > 0.95, "{accuracy}");
}

#[test]
fn an_encoder_learns_sentences_privately() {
    let _alone = alone();
    let accuracy = private_encoder::train().unwrap();
    println!("{accuracy}");
    assert!(accuracy > 0.8, "{accuracy}");
}

#[test]
fn adapters_of_a_frozen_net_learn_privately() {
    let _alone = alone();
    let accuracy = private_lora::train().unwrap();
    println!("{accuracy}");
    assert!(accuracy > 0.8, "{accuracy}");
}

#[derive(Module, Debug)]
struct Dropping {
    first: Linear,
    dropout: Dropout,
    second: Linear,
}

impl Dropping {
    fn new(device: &Device, probability: f64) -> Self {
        device.seed(4);
        let linear = |inner, outer| LinearConfig::new(inner, outer).init(device);
        let dropout = DropoutConfig::new(probability).init();
        Self { first: linear(4, 16), dropout, second: linear(16, 2) }
    }

    fn losses(&self, examples: &[u32]) -> Tensor<1> {
        let (x, y) = private_lora::base::load(examples, false, &self.first.weight.device());
        let logits = self.second.tapped(self.dropout.forward(self.first.tapped(x)));
        cross_entropy(logits, y.remainder_scalar(2))
    }
}

fn plan_of(module: &Dropping) -> DpPlan {
    let (sgd, participation) = (Sgd::new(1.0, 0.9).unwrap(), Participation::epochs(2, 3).unwrap());
    let (method, budget) = (Method::Bsr { bands: 3 }, Budget { epsilon: 8.0, delta: 1e-5 });
    let clipping = Clipping { batch_size: 40, clip_norm: 1.0 };
    let size = trained_parameters(module).unwrap();
    PlanRequest::new(method, sgd, participation, budget, clipping, size).plan().unwrap()
}

#[test]
fn a_run_with_dropout_is_continued_to_the_last_bit_and_under_no_other_probability() {
    let _alone = alone();
    for (name, device) in devices() {
        for way in [PerExample::Taps, PerExample::TwoPasses, PerExample::OneByOne] {
            let net = Dropping::new(&device, 0.5);
            let plan = plan_of(&net);
            let key = NoiseKey::fixed(RunSeed(5));
            let run = PrivateTraining::new(net, plan, 120, 0.5, RunSeed(3), key).unwrap();
            let mut run = run.gradients(way).microbatch(16);
            let losses = |net: &Dropping, examples: &[u32]| net.losses(examples);
            for _ in 0..2 {
                run.step(losses).unwrap();
            }
            let mut file = Vec::new();
            run.save(&mut file, Seal::default(), b"").unwrap();
            let resume = |probability| {
                let net = Dropping::new(&device, probability);
                let (plan, seal) = (plan_of(&net), Seal::default());
                PrivateTraining::resume(net, plan, 120, 0.5, RunSeed(3), seal, &file[..])
            };
            // Whatever the generator has drawn by then.
            let (mut resumed, _) = resume(0.5).unwrap();
            while !run.is_finished() {
                run.step(losses).unwrap();
            }
            device.seed(99);
            while !resumed.is_finished() {
                resumed.step(losses).unwrap();
            }
            let (whole, again) = (run.training().parameters(), resumed.training().parameters());
            assert_eq!(whole, again, "{name}, {way:?}");
            let error = resume(0.4).unwrap_err().to_string();
            assert!(error.contains("module.settings was"), "{error}");
        }
    }
}
