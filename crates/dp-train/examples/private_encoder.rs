//! A small Transformer encoder on sentences, trained privately.
//!
//! ```sh
//! cargo run --release -p dp-train --features flex --example private_encoder
//! ```
//!
//! The sentences are made by this program: twelve words of forty, and the question whether there are more of the first ten
//! than of the second ten.

use burn::module::{Module, Param};
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use dp_train::mf_core::{Method, Participation, Sgd};
use dp_train::module::{
    PrivateTraining, Tapped, cross_entropy, for_each_example, trained_parameters,
};
use dp_train::{Budget, Clipping, Disclosure, NoiseKey, PlanRequest, RunSeed, verify};

type Failure = Box<dyn std::error::Error>;

const WORDS: usize = 12;
const WIDTH: usize = 16;

#[derive(Module, Debug)]
pub(crate) struct Reader {
    words: Embedding,
    places: Param<Tensor<2>>,
    encoder: TransformerEncoder,
    head: Linear,
}

impl Reader {
    fn forward(&self, words: Tensor<2, Int>) -> Tensor<2> {
        let n = words.dims()[0];
        let x = self.words.tapped(words) + for_each_example(&self.places, n);
        self.head.tapped(self.encoder.tapped(x).mean_dim(1).reshape([n, WIDTH]))
    }
}

/// Some examples: sentences, and 1 for those with more of the first ten words.
fn load(examples: &[u32], device: &Device) -> (Tensor<2, Int>, Tensor<1, Int>) {
    let word = |i: u32, at: u32| {
        let mixed = (u64::from(i) << 32 | u64::from(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as i32 % 40
    };
    let sentence = |&i: &u32| (0..WORDS as u32).map(|at| word(i, at)).collect::<Vec<i32>>();
    let sentences: Vec<Vec<i32>> = examples.iter().map(sentence).collect();
    let of = |words: &[i32], tens: i32| words.iter().filter(|&&word| word / 10 == tens).count();
    let labels = sentences.iter().map(|words| i32::from(of(words, 0) > of(words, 1)));
    let labels: Vec<i32> = labels.collect();
    let words = TensorData::new(sentences.concat(), [examples.len(), WORDS]);
    (Tensor::from_data(words, device), Tensor::from_data(&labels[..], device))
}

/// The run before its first step: the model, and the plan for 8 epochs at epsilon 4.
pub(crate) fn begin(device: &Device, key: NoiseKey) -> Result<PrivateTraining<Reader>, Failure> {
    device.seed(1);
    let encoder = TransformerEncoderConfig::new(WIDTH, 32, 2, 1).with_norm_first(true);
    let (encoder, head) = (encoder.with_dropout(0.0).init(device), LinearConfig::new(WIDTH, 2));
    let places = Param::from_tensor(Tensor::zeros([WORDS, WIDTH], device));
    let words = EmbeddingConfig::new(40, WIDTH).init(device);
    let model = Reader { words, places, encoder, head: head.init(device) };
    let (sgd, participation) = (Sgd::new(1.0, 0.9)?, Participation::epochs(8, 10)?);
    let (method, budget) = (Method::Bsr { bands: 10 }, Budget { epsilon: 4.0, delta: 1e-5 });
    let clipping = Clipping { batch_size: 300, clip_norm: 1.0 };
    let size = trained_parameters(&model)?;
    let plan = PlanRequest::new(method, sgd, participation, budget, clipping, size).plan()?;
    Ok(PrivateTraining::new(model, plan, 3000, 0.3, RunSeed(1), key)?)
}

/// One loss for each of some examples.
pub(crate) fn losses(model: &Reader, examples: &[u32], device: &Device) -> Tensor<1> {
    let (words, answers) = load(examples, device);
    cross_entropy(model.forward(words), answers)
}

/// Trains, checks the certificate, and returns the accuracy on 600 unseen sentences.
pub(crate) fn train() -> Result<f64, Failure> {
    let device = Device::flex().autodiff();
    let mut private = begin(&device, NoiseKey::from_os()?)?;
    while !private.is_finished() {
        private.step(|model, examples| losses(model, examples, &device))?;
    }
    let (model, certificate) = private.finish(Disclosure::default());
    println!("{}", certificate.statement);
    assert!(verify(&certificate).is_private(), "the certificate does not hold");
    let (words, answers) = load(&(3000..3600).collect::<Vec<u32>>(), &device);
    let right = model.forward(words).argmax(1).reshape([600]).equal(answers).int().sum();
    Ok(f64::from(right.into_scalar::<i32>()) / 600.0)
}

fn main() -> Result<(), Failure> {
    println!("{:.1} % of unseen sentences", 100.0 * train()?);
    Ok(())
}
