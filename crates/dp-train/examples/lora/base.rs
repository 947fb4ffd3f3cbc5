//! The base of `private_lora`: two layers that learn in public which of four numbers is the largest, in a file.

use std::path::PathBuf;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData, activation::relu};
use dp_train::module::cross_entropy;

/// Layers as they begin.
pub(crate) fn layers(device: &Device) -> Vec<Linear> {
    let linear = |inner, outer| LinearConfig::new(inner, outer).with_bias(false).init(device);
    vec![linear(4, 32), linear(32, 4)]
}

/// Some examples: four numbers, and the place of the largest; in private, of the smallest in another order.
pub(crate) fn load(
    examples: &[u32],
    private: bool,
    device: &Device,
) -> (Tensor<2>, Tensor<1, Int>) {
    let number = |i: u32| ((f64::from(i) * 12.9898).sin() * 43_758.545_3).fract() as f32;
    let x: Vec<f32> = examples.iter().flat_map(|&i| (4 * i..4 * i + 4).map(number)).collect();
    let x = Tensor::<2>::from_data(TensorData::new(x, [examples.len(), 4]), device);
    let seen = if private { x.clone().flip([1]).neg() } else { x.clone() };
    (x, seen.argmax(1).reshape([examples.len()]))
}

/// Where this process keeps the record.
pub(crate) fn file() -> PathBuf {
    std::env::temp_dir().join(format!("private-lora-{}.bpk", std::process::id()))
}

/// Trains the layers by plain gradient descent and writes them as a record of burn.
pub(crate) fn write(device: &Device) -> Result<(), Box<dyn std::error::Error>> {
    device.seed(1);
    let mut base = layers(device);
    for step in 0..200 {
        let (x, y) = load(&(200 * step..200 * (step + 1)).collect::<Vec<u32>>(), false, device);
        let logits = base[1].forward(relu(base[0].forward(x)));
        let gradients = cross_entropy(logits, y).mean().backward();
        for Linear { weight, .. } in &mut base {
            let step = weight.val().grad(&gradients).expect("it is trained").mul_scalar(0.5);
            *weight = weight.clone().map(|old| (old.inner() - step).autodiff().require_grad());
        }
    }
    Ok(base.into_record().save(file())?)
}
