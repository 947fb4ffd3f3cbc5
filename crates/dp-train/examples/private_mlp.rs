//! An MLP on a table, trained privately.
//!
//! ```sh
//! cargo run --release -p dp-train --features flex --example private_mlp
//! ```
//!
//! The table is CSV: 3,000 rows of six measurements and a yes or no that depends on two of them, made by this program.
//! Put a file of your own in its place.

use std::sync::LazyLock;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData, activation::relu};
use dp_train::mf_core::{Method, Participation, Sgd};
use dp_train::module::{PrivateTraining, Tapped, cross_entropy, trained_parameters};
use dp_train::{Budget, Clipping, Disclosure, NoiseKey, PlanRequest, RunSeed, verify};

type Failure = Box<dyn std::error::Error>;

#[derive(Module, Debug)]
pub(crate) struct Mlp {
    first: Linear,
    second: Linear,
}

impl Mlp {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.second.tapped(relu(self.first.tapped(x)))
    }
}

/// The rows of the table: six measurements, and 0 or 1.
static TABLE: LazyLock<Vec<([f32; 6], i32)>> = LazyLock::new(|| {
    let rows = csv::Reader::from_reader(std::io::Cursor::new(text())).into_deserialize();
    rows.collect::<Result<_, _>>().expect("all rows have seven numbers")
});

/// A line of names, and a line for every row.
fn text() -> String {
    let number = |i: u64| {
        let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / 8e6 - 1.05
    };
    let row = |row: u64| {
        let [a, b, c, d, e, f] = std::array::from_fn(|column| number(6 * row + column as u64));
        format!("{a},{b},{c},{d},{e},{f},{}\n", i32::from(a * d > 0.0))
    };
    "a,b,c,d,e,f,answer\n".to_owned() + &(0..3000).map(row).collect::<String>()
}

/// Some rows as tensors.
fn load(rows: &[u32], device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
    let (x, y): (Vec<[f32; 6]>, Vec<i32>) = rows.iter().map(|&row| TABLE[row as usize]).unzip();
    let x = Tensor::from_data(TensorData::new(x.concat(), [rows.len(), 6]), device);
    (x, Tensor::from_data(&y[..], device))
}

/// The run before its first step. The plan comes before any data: 10 epochs of 10 batches at epsilon 3.
pub(crate) fn begin(device: &Device, key: NoiseKey) -> Result<PrivateTraining<Mlp>, Failure> {
    device.seed(1);
    let (first, second) = (LinearConfig::new(6, 32), LinearConfig::new(32, 2));
    let model = Mlp { first: first.init(device), second: second.init(device) };
    let plan = PlanRequest::new(
        Method::Bsr { bands: 10 },
        Sgd::new(1.0, 0.9)?,
        Participation::epochs(10, 10)?,
        Budget { epsilon: 3.0, delta: 1e-5 },
        Clipping { batch_size: 200, clip_norm: 1.0 },
        trained_parameters(&model)?,
    );
    Ok(PrivateTraining::new(model, plan.plan()?, 2000, 0.5, RunSeed(1), key)?)
}

/// One loss for each of some examples.
pub(crate) fn losses(model: &Mlp, examples: &[u32], device: &Device) -> Tensor<1> {
    let (x, y) = load(examples, device);
    cross_entropy(model.forward(x), y)
}

/// Trains, checks the certificate, and returns the accuracy on 1,000 unseen rows.
pub(crate) fn train() -> Result<f64, Failure> {
    let device = Device::flex().autodiff();
    let mut private = begin(&device, NoiseKey::from_os()?)?;
    while !private.is_finished() {
        private.step(|model, examples| losses(model, examples, &device))?;
    }
    let (model, certificate) = private.finish(Disclosure::default());
    println!("{}", certificate.statement);
    assert!(verify(&certificate).is_private(), "the certificate does not hold");
    let (x, y) = load(&(2000..3000).collect::<Vec<u32>>(), &device);
    let right = model.forward(x).argmax(1).reshape([1000]).equal(y).int().sum();
    Ok(f64::from(right.into_scalar::<i32>()) / 1000.0)
}

fn main() -> Result<(), Failure> {
    println!("{:.1} % of unseen rows", 100.0 * train()?);
    Ok(())
}
