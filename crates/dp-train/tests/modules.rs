//! The examples of burn modules do what they say, by every way to their gradients and on every device that there is.
//!
//! The noise of whole runs differs from run to run. Each accuracy is far above guessing and below what ten runs had at least.
#![allow(dead_code, reason = "the main functions of the examples")]

use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use dp_train::module::{PerExample, PrivateTraining};
use dp_train::{NoiseKey, RunSeed};

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

/// flex, and a software GPU if there is one.
fn devices() -> Vec<(&'static str, Device)> {
    #[allow(unused_mut)]
    let mut devices = vec![("flex", Device::flex().autodiff())];
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

/// The module passes its check by every way, and a step by taps ends where a step by one-by-one gradients ends under the same noise.
fn every_way_agrees<M: Module>(
    begin: fn(&Device, NoiseKey) -> Begun<M>,
    losses: fn(&M, &[u32], &Device) -> Tensor<1>,
) {
    let _alone = alone();
    for (name, device) in devices() {
        let begin = || begin(&device, NoiseKey::fixed(RunSeed(7))).unwrap();
        let mut losses = |model: &M, examples: &[u32]| losses(model, examples, &device);
        let mut run = begin();
        for way in [PerExample::OneByOne, PerExample::TwoPasses, PerExample::Taps] {
            run = run.gradients(way);
            run.check(&mut losses).unwrap_or_else(|error| panic!("{way:?} on {name}: {error}"));
            assert_eq!(run.way(), way);
        }
        let mut other = begin().gradients(PerExample::OneByOne);
        let start = run.training().parameters().to_vec();
        assert_eq!(other.training().parameters(), start);
        run.step(&mut losses).unwrap();
        other.step(&mut losses).unwrap();
        let most = |other: &[f32]| {
            let pairs = run.training().parameters().iter().zip(other);
            pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        let (apart, moved) = (most(other.training().parameters()), most(&start));
        println!("{name}: {apart:e} apart, {moved} from the start");
        assert!(apart < TOLERANCE && moved > 100.0 * TOLERANCE, "{name}: {apart:e} of {moved}");
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
