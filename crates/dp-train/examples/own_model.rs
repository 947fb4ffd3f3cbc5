//! A model and a data set of one's own, trained privately with nothing but this library.
//!
//! ```sh
//! cargo run --release -p dp-train --example own_model
//! ```
//!
//! The data: 4,000 images of 8 x 8 pixels with a bright bar, lying or standing, in noise. The model: a
//! convolution, pooling and a linear layer. Eight epochs at epsilon 3, in a few seconds.

use std::error::Error;

use dp_train::engine::{Batch, Engine, EngineOptions, GradientEngine};
use dp_train::mf_core::{Method, Participation, Sgd};
use dp_train::model::{Architecture, Layer, Shape, initial_parameters};
use dp_train::{
    Budget, Certificate, Clipping, Disclosure, NoiseKey, PlanRequest, RunSeed, Training, verify,
};

const SIDE: usize = 8;
const EXAMPLES: u32 = 4000;
const SEED: RunSeed = RunSeed(1);

/// Example `index`: its image, and 0 for a bar that lies or 1 for one that stands.
fn example(index: u32) -> ([f32; SIDE * SIDE], u32) {
    // Any source of images will do; this one is a hash of (index, pixel).
    let random = |pixel: usize| {
        let mixed = (u64::from(index) << 32 | pixel as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 40) as f32 / (1 << 24) as f32
    };
    let (label, line) = (index % 2, 1 + (random(1000) * 6.0) as usize);
    let image = std::array::from_fn(|pixel| {
        let (row, column) = (pixel / SIDE, pixel % SIDE);
        let bar = if label == 0 { row == line } else { column == line };
        random(pixel) - 0.5 + if bar { 0.8 } else { 0.0 }
    });
    (image, label)
}

fn load(indices: &[u32]) -> (Vec<f32>, Vec<u32>) {
    let (images, labels): (Vec<_>, Vec<_>) = indices.iter().map(|&index| example(index)).unzip();
    (images.concat(), labels)
}

/// Trains, checks the certificate, and returns the accuracy on 1,000 unseen images.
pub(crate) fn train() -> Result<f64, Box<dyn Error>> {
    // The model: layers that fit one another, ending with one number per class.
    let (in_channels, out_channels) = (1, 16);
    let model = Architecture::new(
        Shape::Image { channels: 1, height: SIDE, width: SIDE },
        vec![
            Layer::Conv2d {
                in_channels,
                out_channels,
                kernel: 3,
                stride: 1,
                padding: 1,
                groups: 1,
            },
            Layer::Tanh,
            Layer::AvgPool2d { kernel: 4, stride: 4 },
            Layer::Flatten,
            Layer::Linear { in_features: 64, out_features: 2 },
        ],
    )?;

    // The plan: everything that privacy depends on, before any data is read. 8 epochs of 20 batches.
    let plan = PlanRequest::new(
        Method::Bsr { bands: 20 },
        Sgd::new(1.0, 0.9)?,
        Participation::epochs(8, 20)?,
        Budget { epsilon: 3.0, delta: 1e-5 },
        Clipping { batch_size: 200, clip_norm: 1.0 },
        model.parameter_count(),
    )
    .plan()?;
    println!("{plan}");

    // The training: batches come in a fixed order, the engine clips the gradients, and noise is added
    // before anything else sees them.
    let mut engine = Engine::new(&model, EngineOptions::default())?;
    let parameters = initial_parameters(&model, SEED);
    let mut training = Training::new(plan, parameters, EXAMPLES, 0.5, SEED, NoiseKey::from_os()?)?;
    while !training.is_finished() {
        training.step(|parameters, batch, sum| -> Result<_, Box<dyn Error>> {
            let (images, labels) = load(batch);
            let batch = Batch::new(&images, &labels);
            *sum = engine.clipped_sum(parameters, batch, sum.clip_norm())?.0;
            Ok(())
        })?;
    }

    // The certificate: what is claimed, for anyone to check.
    let certificate = Certificate::of(&training, Disclosure::default());
    println!("{}", certificate.statement);
    if !verify(&certificate).is_private() {
        return Err("the certificate does not hold".into());
    }

    // The result: images that were not trained on.
    let unseen: Vec<u32> = (EXAMPLES..EXAMPLES + 1000).collect();
    let (images, labels) = load(&unseen);
    let mut logits = vec![0.0; 2 * unseen.len()];
    engine.forward(training.parameters(), &images, &mut logits)?;
    let right = logits.chunks(2).zip(&labels).filter(|(z, label)| (z[1] > z[0]) == (**label == 1));
    Ok(right.count() as f64 / unseen.len() as f64)
}

#[cfg_attr(test, allow(dead_code, reason = "the test calls train"))]
fn main() -> Result<(), Box<dyn Error>> {
    println!("{:.1} % of unseen images", 100.0 * train()?);
    Ok(())
}
