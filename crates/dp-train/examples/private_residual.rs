//! A small residual ConvNet on textures, trained privately.
//!
//! ```sh
//! cargo run --release -p dp-train --features flex --example private_residual
//! ```
//!
//! The images are made by this program: 16 x 16 pixels of waves that lie, stand or run across, in noise.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::AdaptiveAvgPool2dConfig;
use burn::nn::{GroupNorm, GroupNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Int, Tensor, TensorData, activation::relu};
use dp_train::mf_core::{Method, Participation, Sgd};
use dp_train::module::{PrivateTraining, Tapped, cross_entropy, trained_parameters};
use dp_train::{Budget, Clipping, Disclosure, NoiseKey, PlanRequest, RunSeed, verify};

type Failure = Box<dyn std::error::Error>;

#[derive(Module, Debug)]
pub(crate) struct ResidualNet {
    stem: Conv2d,
    norm: GroupNorm,
    block: Conv2d,
    head: Linear,
}

impl ResidualNet {
    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let x = relu(self.norm.tapped(self.stem.tapped(x)));
        let x = x.clone() + relu(self.block.tapped(x));
        let pooled = AdaptiveAvgPool2dConfig::new([2, 2]).init().forward(x);
        self.head.tapped(pooled.flatten(1, 3))
    }
}

/// Some examples: waves in one of three directions.
fn load(examples: &[u32], device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let random = |i: u32, j: u32| {
        let mixed = (u64::from(i) << 32 | u64::from(j)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / 16_777_216.0
    };
    let pixel = |i: u32, at: u32| {
        let (row, column) = ((at / 16) as f32, (at % 16) as f32);
        let along = [row, column, row + column][i as usize % 3];
        let wave = (along * (0.6 + 0.6 * random(i, 999)) + 6.0 * random(i, 998)).sin();
        wave + 2.0 * random(i, at) - 1.0
    };
    let pixels = examples.iter().flat_map(|&i| (0..256).map(move |at| pixel(i, at)));
    let images = TensorData::new(pixels.collect::<Vec<f32>>(), [examples.len(), 1, 16, 16]);
    let labels: Vec<i32> = examples.iter().map(|&i| (i % 3) as i32).collect();
    (Tensor::from_data(images, device), Tensor::from_data(&labels[..], device))
}

/// The run before its first step: the model, and the plan for 8 epochs at epsilon 4.
pub(crate) fn begin(
    device: &Device,
    key: NoiseKey,
) -> Result<PrivateTraining<ResidualNet>, Failure> {
    device.seed(1);
    let conv = |channels| Conv2dConfig::new(channels, [3, 3]).with_padding(PaddingConfig2d::Same);
    let stem = conv([1, 8]).with_stride([2, 2]).init(device);
    let (norm, block) = (GroupNormConfig::new(2, 8).init(device), conv([8, 8]).init(device));
    let model = ResidualNet { stem, norm, block, head: LinearConfig::new(32, 3).init(device) };
    let (sgd, participation) = (Sgd::new(1.0, 0.9)?, Participation::epochs(8, 10)?);
    let (method, budget) = (Method::Bsr { bands: 10 }, Budget { epsilon: 4.0, delta: 1e-5 });
    let clipping = Clipping { batch_size: 180, clip_norm: 1.0 };
    let size = trained_parameters(&model)?;
    let plan = PlanRequest::new(method, sgd, participation, budget, clipping, size).plan()?;
    Ok(PrivateTraining::new(model, plan, 1800, 0.5, RunSeed(1), key)?)
}

/// One loss for each of some examples.
pub(crate) fn losses(model: &ResidualNet, examples: &[u32], device: &Device) -> Tensor<1> {
    let (x, y) = load(examples, device);
    cross_entropy(model.forward(x), y)
}

/// Trains, checks the certificate, and returns the accuracy on 600 unseen images.
pub(crate) fn train() -> Result<f64, Failure> {
    let device = Device::flex().autodiff();
    let mut private = begin(&device, NoiseKey::from_os()?)?;
    while !private.is_finished() {
        private.step(|model, examples| losses(model, examples, &device))?;
    }
    let (model, certificate) = private.finish(Disclosure::default());
    println!("{}", certificate.statement);
    assert!(verify(&certificate).is_private(), "the certificate does not hold");
    let (x, y) = load(&(1800..2400).collect::<Vec<u32>>(), &device);
    let right = model.forward(x).argmax(1).reshape([600]).equal(y).int().sum();
    Ok(f64::from(right.into_scalar::<i32>()) / 600.0)
}

fn main() -> Result<(), Failure> {
    println!("{:.1} % of unseen images", 100.0 * train()?);
    Ok(())
}
