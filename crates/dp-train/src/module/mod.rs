//! Any burn module, trained privately.
//!
//! You have a burn [`Module`](burn::module::Module) and a training loop, and want its model to be differentially private. Three things
//! change: a plan comes first, the loss is one number per example, and layers are called by [`tapped`](Tapped::tapped).
//!
//! ```diff
//!  impl Net {
//!      fn forward(&self, x: Tensor<2>) -> Tensor<2> {
//! -        self.second.forward(relu(self.first.forward(x)))
//! +        self.second.tapped(relu(self.first.tapped(x)))
//!      }
//!  }
//!
//! +let plan = PlanRequest::new(method, sgd, participation, budget, clipping, trained_parameters(&net)?).plan()?;
//! +let mut private = PrivateTraining::new(net, plan, examples, 0.5, RunSeed(1), NoiseKey::from_os()?)?;
//! -for batch in loader.iter() {
//! -    let loss = CrossEntropyLoss::new(None, &device).forward(net.forward(batch.x), batch.y);
//! -    let gradients = GradientsParams::from_grads(loss.backward(), &net);
//! -    net = optimizer.step(0.5, net, gradients);
//! +while !private.is_finished() {
//! +    private.step(|net, examples| {
//! +        let batch = load(examples);
//! +        cross_entropy(net.forward(batch.x), batch.y)
//! +    })?;
//!  }
//! +let (net, certificate) = private.finish(Disclosure::default());
//! ```
//!
//! # A whole run
//!
//! ```
//! use burn::module::Module;
//! use burn::nn::{Linear, LinearConfig};
//! use burn::tensor::{Device, Int, Tensor, activation::relu};
//! use dp_train::mf_core::{Method, Participation, Sgd};
//! use dp_train::module::{PrivateTraining, Tapped, cross_entropy, trained_parameters};
//! use dp_train::{Budget, Clipping, Disclosure, NoiseKey, PlanRequest, RunSeed, verify};
//!
//! #[derive(Module, Debug)]
//! struct Net {
//!     first: Linear,
//!     second: Linear,
//! }
//!
//! let device = Device::default().autodiff();
//! let linear = |a, b| LinearConfig::new(a, b).init(&device);
//! let net = Net { first: linear(1, 8), second: linear(8, 2) };
//!
//! // 1. The plan, before any data is read: 3 epochs of 4 batches of 25 examples at epsilon 4.
//! let (sgd, participation) = (Sgd::new(1.0, 0.9)?, Participation::epochs(3, 4)?);
//! let budget = Budget { epsilon: 4.0, delta: 1e-5 };
//! let clipping = Clipping { batch_size: 25, clip_norm: 1.0 };
//! let size = trained_parameters(&net)?;
//! let plan = PlanRequest::new(Method::Bsr { bands: 4 }, sgd, participation, budget, clipping, size).plan()?;
//!
//! // 2. The run. The plan decides which examples come when; the closure loads them, and returns one loss for each.
//! let mut private = PrivateTraining::new(net, plan, 100, 0.5, RunSeed(1), NoiseKey::from_os()?)?;
//! while !private.is_finished() {
//!     private.step(|net, examples| {
//!         let x: Vec<f32> = examples.iter().map(|&i| i as f32 / 50.0 - 1.0).collect();
//!         let x = Tensor::<1>::from_data(&x[..], &device).reshape([examples.len(), 1]);
//!         let y = x.clone().greater_scalar(0.0).int().reshape([examples.len()]);
//!         cross_entropy(net.second.tapped(relu(net.first.tapped(x))), y)
//!     })?;
//! }
//!
//! // 3. The module, and what can be claimed of it, for anyone to check.
//! let (net, certificate) = private.finish(Disclosure::default());
//! assert!(verify(&certificate).is_private());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # One loss per example
//! Clipping needs to know whose gradient is whose, so a mean over the batch is refused by its shape. [`cross_entropy`] has no
//! mean; burn's `MseLoss` and others have `forward_no_reduction`. A loss may depend on its own example and on the module,
//! and on nothing else: a batch normalization is refused by name, and what else mixes examples by comparing a loss alone and beside
//! others.
//!
//! The closure is called several times in a step, and an example's loss must be the same in every call of it, in whatever company. So
//! augmentation draws from a generator that is seeded by the example's number and the step, and not from one that runs on from call to
//! call. What burn's own layers draw (dropout) is taken care of: its seeds are derived from the noise key, for every pass of a step anew. For
//! the same reason examples of different lengths are padded to a fixed length, and not to that of the longest one beside them: a mask tells
//! what is padding.
//!
//! ```
//! # use dp_train::module::{ModuleError, PrivateTraining};
//! # use burn::{nn::Linear, tensor::Tensor};
//! # fn augmented(example: u32, seed: u64) -> u64 { u64::from(example) ^ seed }
//! # fn losses(_: &Linear, _: impl Iterator<Item = u64>) -> Tensor<1> { unimplemented!() }
//! # fn run(mut private: PrivateTraining<Linear>) -> Result<(), ModuleError> {
//! while !private.is_finished() {
//!     let step = private.training().steps_taken() as u64;
//!     private.step(|net, examples| {
//!         let seed = |example: u32| step << 32 | u64::from(example);
//!         losses(net, examples.iter().map(|&example| augmented(example, seed(example))))
//!     })?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Layers
//! [`Tapped`] has burn's `Linear`, `Conv1d`, `Conv2d`, `Embedding`, `LayerNorm`, `GroupNorm`, `RmsNorm`, `MultiHeadAttention` (with
//! [`Attend`]), `PositionWiseFeedForward`, `TransformerEncoder` (with [`Encode`]), `Gru` and `Lstm`; a parameter of your own is used by
//! [`for_each_example`]. Outside of a private step `tapped` is `forward`. Layers without parameters are called as ever. A layer may be used as
//! often as you like, frozen in part or as a whole (`no_grad`), and its first axis counts examples.
//!
//! # Three ways
//! [`PerExample`] says how single examples are found. Taps cost one forward and one backward pass: about the price of ordinary
//! training. Where a trained parameter is used without a tap, examples go one by one, which is right wherever burn's automatic
//! differentiation is ([but for one convolution](PerExample::OneByOne)), and many times slower;
//! [`PrivateTraining::way`] says which it is. Before the first step four examples are [compared](PrivateTraining::check) with one-by-one automatic
//! differentiation, and a module that disagrees takes no step. A device that takes fewer bits than f32 for its products (TF32) is refused.
//!
//! # Fine-tuning
//! Only parameters that require gradients are trained and counted by [`trained_parameters`]. Load a pre-trained module as
//! burn does (records), freeze it by `no_grad`, and train a head or adapters: `examples/private_lora.rs`. burn's own `apply_lora` computes
//! weights from adapters, which no tap sees: it goes one by one. What the pre-trained parameters were trained on is not covered by this run's
//! guarantee; say so in [`Disclosure::provenance`](crate::certificate::Disclosure). The certificate has the hash of what is frozen.
//!
//! # burn's Learner
//! With the feature `learner`, `PrivateSteps` gives burn's `Learner` its batches and private gradients, and leaves loop, optimizer, metrics and
//! dashboards to burn. Any optimizer is post-processing of what is released; the plan's error is that of SGD with the plan's momentum and
//! decay. Such a run cannot be saved and resumed.
//!
//! # Going on after a crash
//! [`PrivateTraining::save`] and [`resume`](PrivateTraining::resume) continue bit by bit, dropout included, with the way and the microbatch
//! that were saved, and refuse others, as they refuse other settings of layers and other processors. burn has one generator for all
//! threads: while a step is taken, no other thread may draw from it, or the steps taken again would draw something else. A checkpoint
//! holds the noise key: keep it as you keep the data.

mod check;
mod draws;
mod error;
mod layer_use;
mod layout;
#[cfg(feature = "learner")]
mod learner;
mod loss;
mod microbatch;
mod parts;
mod per_example;
mod settings;
mod tape;
mod taps;
mod training;
mod window;

#[cfg(all(test, feature = "flex"))]
mod tests;

pub use error::ModuleError;
#[cfg(feature = "learner")]
pub use learner::{PrivateBatch, PrivateSteps};
pub use loss::cross_entropy;
pub use per_example::PerExample;
pub use taps::{Attend, Encode, Tapped, for_each_example};
pub use training::PrivateTraining;

/// Numbers that are trained in a module: those of all parameters that require gradients. The dimension of its plan.
///
/// # Errors
/// [`ModuleError`] if the module cannot be trained privately.
pub fn trained_parameters<M: burn::module::Module>(module: &M) -> Result<usize, ModuleError> {
    Ok(layout::Layout::of(&module.clone().train())?.dim())
}
