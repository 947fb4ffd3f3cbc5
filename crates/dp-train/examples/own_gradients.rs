//! Gradients from anywhere: logistic regression written by hand, trained privately and certified.
//!
//! ```sh
//! cargo run --release -p dp-train --example own_gradients
//! ```
//!
//! No engine and no layers of this library: all that it needs is one example's gradient at a time, from whatever
//! computes it. Memory is O(d), whatever the batch size.

use std::error::Error;

use dp_train::mf_core::{Method, Participation, Sgd};
use dp_train::{
    Budget, Certificate, Clipping, Disclosure, NoiseKey, PlanRequest, RunSeed, Training,
    TrainingError, verify,
};

const FEATURES: usize = 10;
const EXAMPLES: u32 = 5000;

/// Example `index`: features in [-1, 1], and whether the even ones outweigh the odd ones.
fn example(index: u32) -> ([f32; FEATURES], bool) {
    let x: [f32; FEATURES] = std::array::from_fn(|feature| {
        let mixed = (u64::from(index) << 8 | feature as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 40) as f32 / (1 << 23) as f32 - 1.0
    });
    let balance: f32 = x.iter().enumerate().map(|(i, x)| if i % 2 == 0 { *x } else { -x }).sum();
    (x, balance > 0.0)
}

fn score(weights: &[f32], x: &[f32]) -> f32 {
    weights.iter().zip(x).map(|(w, x)| w * x).sum()
}

/// The gradient of `log(1 + exp(-y w x))` by `w`, for `y = 1` or `-1`.
fn gradient(weights: &[f32], index: u32) -> Vec<f32> {
    let (x, label) = example(index);
    let y = if label { 1.0 } else { -1.0 };
    let slope = -y / (1.0 + (y * score(weights, &x)).exp());
    x.iter().map(|x| slope * x).collect()
}

/// Trains, checks the certificate as a file that someone else reads, and returns the accuracy on 1,000 unseen
/// examples.
pub(crate) fn train() -> Result<f64, Box<dyn Error>> {
    let plan = PlanRequest::new(
        Method::Bisr { bands: 4 },
        Sgd::new(1.0, 0.9)?,
        Participation::epochs(5, 20)?,
        Budget { epsilon: 2.0, delta: 1e-6 },
        Clipping { batch_size: 250, clip_norm: 1.0 },
        FEATURES,
    )
    .plan()?;
    let (start, key) = (vec![0.0; FEATURES], NoiseKey::from_os()?);
    let mut training = Training::new(plan, start, EXAMPLES, 0.5, RunSeed(1), key)?;
    while !training.is_finished() {
        training.step(|weights, batch, sum| -> Result<_, TrainingError> {
            batch.iter().try_for_each(|&index| Ok(sum.add(&gradient(weights, index))?))
        })?;
    }
    let file = serde_json::to_string(&Certificate::of(&training, Disclosure::default()))?;
    let verdict = verify(&serde_json::from_str(&file)?);
    println!("{verdict}");
    if !verdict.is_private() {
        return Err("the certificate does not hold".into());
    }
    let right = (EXAMPLES..EXAMPLES + 1000).filter(|&index| {
        let (x, label) = example(index);
        (score(training.parameters(), &x) > 0.0) == label
    });
    Ok(right.count() as f64 / 1000.0)
}

#[cfg_attr(test, allow(dead_code, reason = "the test calls train"))]
fn main() -> Result<(), Box<dyn Error>> {
    println!("{:.1} % of unseen examples", 100.0 * train()?);
    Ok(())
}
