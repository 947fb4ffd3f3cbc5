//! LoRA: a small private adapter beside a layer that was trained on public data and stays as it is.
//!
//! ```sh
//! cargo run --release -p dp-train --features flex --example private_lora
//! ```
//!
//! In public a net learns which of four numbers is largest; in private they come in another order and with the opposite sign.

use burn::module::Module;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData, activation::relu};
use dp_train::mf_core::{Method, Participation, Sgd};
use dp_train::module::{PrivateTraining, Tapped, cross_entropy, trained_parameters};
use dp_train::{Budget, Clipping, Disclosure, NoiseKey, PlanRequest, RunSeed, verify};

type Failure = Box<dyn std::error::Error>;

/// Two layers; the first has an adapter of rank 2, which begins with zeros.
#[derive(Module, Debug)]
pub(crate) struct Net {
    base: Vec<Linear>,
    down: Linear,
    up: Linear,
}

impl Net {
    fn new(device: &Device) -> Self {
        let linear = |inner, outer| LinearConfig::new(inner, outer).with_bias(false);
        let base = vec![linear(4, 32).init(device), linear(32, 4).init(device)];
        let up = linear(2, 32).with_initializer(Initializer::Zeros).init(device);
        Self { base, down: linear(4, 2).init(device), up }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = self.base[0].tapped(x.clone()) + self.up.tapped(self.down.tapped(x));
        self.base[1].tapped(relu(x))
    }
}

/// Some examples: four numbers, and the place of the largest; in private, of the smallest in another order.
fn load(examples: &[u32], private: bool, device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
    let number = |i: u32| ((f64::from(i) * 12.9898).sin() * 43_758.545_3).fract() as f32;
    let x: Vec<f32> = examples.iter().flat_map(|&i| (4 * i..4 * i + 4).map(number)).collect();
    let x = Tensor::<2>::from_data(TensorData::new(x, [examples.len(), 4]), device);
    let seen = if private { x.clone().flip([1]).neg() } else { x.clone() };
    (x, seen.argmax(1).reshape([examples.len()]))
}

/// A base, trained in public by plain gradient descent.
fn pretrained(device: &Device) -> Vec<Linear> {
    let mut net = Net::new(device);
    for step in 0..200 {
        let (x, y) = load(&(200 * step..200 * (step + 1)).collect::<Vec<u32>>(), false, device);
        let gradients = cross_entropy(net.forward(x), y).mean().backward();
        for Linear { weight, .. } in &mut net.base {
            let step = weight.val().grad(&gradients).expect("it is trained").mul_scalar(0.5);
            *weight = weight.clone().map(|old| (old.inner() - step).autodiff().require_grad());
        }
    }
    net.base
}

/// The run before its first step: the base loaded and frozen, the adapter, and the plan for 10 epochs at epsilon 4.
pub(crate) fn begin(device: &Device, key: NoiseKey) -> Result<PrivateTraining<Net>, Failure> {
    device.seed(1);
    let (record, mut model) = (pretrained(device).into_record(), Net::new(device));
    model.base = model.base.try_load_record(record)?.no_grad();
    let (sgd, participation) = (Sgd::new(1.0, 0.9)?, Participation::epochs(10, 10)?);
    let (method, budget) = (Method::Bsr { bands: 10 }, Budget { epsilon: 4.0, delta: 1e-5 });
    let clipping = Clipping { batch_size: 300, clip_norm: 1.0 };
    let size = trained_parameters(&model)?;
    let plan = PlanRequest::new(method, sgd, participation, budget, clipping, size).plan()?;
    Ok(PrivateTraining::new(model, plan, 3000, 1.0, RunSeed(1), key)?)
}

/// One loss for each of some examples.
pub(crate) fn losses(model: &Net, examples: &[u32], device: &Device) -> Tensor<1> {
    let (x, y) = load(examples, true, device);
    cross_entropy(model.forward(x), y)
}

/// Trains, checks the certificate, and returns the accuracy on 1,000 unseen examples.
pub(crate) fn train() -> Result<f64, Failure> {
    let device = Device::flex().autodiff();
    let mut private = begin(&device, NoiseKey::from_os()?)?;
    while !private.is_finished() {
        private.step(|model, examples| losses(model, examples, &device))?;
    }
    let (model, certificate) = private.finish(Disclosure::default());
    println!("{}", certificate.statement);
    assert!(verify(&certificate).is_private(), "the certificate does not hold");
    let (x, y) = load(&(50_000..51_000).collect::<Vec<u32>>(), true, &device);
    let right = model.forward(x).argmax(1).reshape([1000]).equal(y).int().sum();
    Ok(f64::from(right.into_scalar::<i32>()) / 1000.0)
}

fn main() -> Result<(), Failure> {
    println!("{:.1} % of unseen examples", 100.0 * train()?);
    Ok(())
}
