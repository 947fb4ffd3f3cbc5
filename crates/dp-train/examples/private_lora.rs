//! LoRA: a small private adapter beside layers that were trained on public data, are loaded from a file and stay as they are.
//! In public a net learned which of four numbers is largest; in private they come in another order and with the opposite sign.
//!
//! `cargo run --release -p dp-train --features flex --example private_lora`

#[path = "lora/base.rs"]
pub(crate) mod base;

use base::load;
use burn::module::Module;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::store::ModuleRecord;
use burn::tensor::{Device, Tensor, activation::relu};
use dp_train::fingerprint::Fingerprint;
use dp_train::mf_core::{Method, Participation, Sgd};
use dp_train::module::{PrivateTraining, Tapped, cross_entropy, trained_parameters};
use dp_train::provenance::{Origin, Protection};
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
        let (linear, base) =
            (|a, b| LinearConfig::new(a, b).with_bias(false), base::layers(device));
        let up = linear(2, 32).with_initializer(Initializer::Zeros).init(device);
        Self { base, down: linear(4, 2).init(device), up }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = self.base[0].tapped(x.clone()) + self.up.tapped(self.down.tapped(x));
        self.base[1].tapped(relu(x))
    }
}

/// The run before its first step: the base loaded and frozen, the adapter, and the plan for 10 epochs at epsilon 4.
pub(crate) fn begin(device: &Device, key: NoiseKey) -> Result<PrivateTraining<Net>, Failure> {
    base::write(device)?;
    let mut model = Net::new(device);
    model.base = model.base.try_load_record(ModuleRecord::load(base::file())?)?.no_grad();
    let (sgd, epochs) = (Sgd::new(1.0, 0.9)?, Participation::epochs(10, 10)?);
    let (budget, size) = (Budget { epsilon: 4.0, delta: 1e-5 }, trained_parameters(&model)?);
    let clipping = Clipping { batch_size: 300, clip_norm: 1.0 };
    let plan = PlanRequest::new(Method::Bsr { bands: 10 }, sgd, epochs, budget, clipping, size);
    Ok(PrivateTraining::new(model, plan.plan()?, 3000, 1.0, RunSeed(1), key)?)
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
    // The guarantee does not cover what the base was trained on, and the certificate says so.
    let origin = Origin {
        parameters_sha256: Fingerprint::of_bytes(&std::fs::read(base::file())?),
        data: "numbers of which the largest counts".to_owned(),
        training_data_sha256: None,
        protection: Protection::Generated,
    };
    let disclosure = Disclosure { provenance: vec![origin], ..Disclosure::default() };
    let (model, certificate) = private.finish(disclosure);
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
