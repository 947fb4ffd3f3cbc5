//! Why a module cannot be trained privately.

use thiserror::Error;

use crate::gradient::GradientError;
use crate::parting::LargePart;
use crate::training::TrainingError;
use crate::training::checkpoint::ResumeError;

/// Why a module cannot be trained privately, or a step cannot be taken. Where it names a parameter or a layer, that is by its
/// path in the module.
#[derive(Debug, Error)]
pub enum ModuleError {
    /// No parameter requires a gradient.
    #[error("no parameter of the module requires a gradient: there is nothing to train")]
    NothingToTrain,
    /// A parameter or the loss has another type of numbers.
    #[error(
        "{path} has numbers of type {dtype}: the bounds on what one example changes are proven for f32 only"
    )]
    NotF32 {
        /// The parameter, or what else.
        path: String,
        /// Its type.
        dtype: String,
    },
    /// Products on a device are not those of f32.
    #[error(
        "{device} multiplies matrices in fewer bits than f32 has (TF32, half precision): the bounds on what one example changes are \
         proven for f32 only; switch it off, or take another device"
    )]
    Inexact {
        /// The device.
        device: String,
    },
    /// A batch normalization trains.
    #[error(
        "{path} is a BatchNorm in training: it mixes the examples of a batch and keeps their statistics without noise; take \
         GroupNorm or LayerNorm, or freeze it"
    )]
    BatchNorm {
        /// The layer.
        path: String,
    },
    /// One parameter stands in two places of a module.
    #[error(
        "{first} and {second} are one parameter, of which a module keeps two copies: keep it in one place and use it from \
         there as often as you like"
    )]
    Shared {
        /// The first place.
        first: String,
        /// The second place.
        second: String,
    },
    /// A frozen parameter has the number of one that is trained.
    #[error(
        "{frozen} is a frozen copy of {trained} under the same number, by which burn's optimizers find parameters: they would move \
         both; give the copy numbers of its own (load its record into a new module)"
    )]
    FrozenCopy {
        /// The parameter that is trained.
        trained: String,
        /// The frozen one.
        frozen: String,
    },
    /// The losses are not one per example.
    #[error(
        "{examples} examples have {found} losses: the closure must return one per example, not their mean or sum (burn's \
         losses have a `forward_no_reduction`)"
    )]
    Losses {
        /// Examples that were asked for.
        examples: usize,
        /// Losses that were returned.
        found: usize,
    },
    /// The losses do not depend on what is trained.
    #[error(
        "the losses do not depend on any parameter that is trained: is the module that is trained the one that they are \
         computed with?"
    )]
    Constant,
    /// The losses depend on parameters of something else.
    #[error(
        "the losses depend on trained parameters of another module: use the module that the closure is given, and freeze \
         others (`no_grad`)"
    )]
    Foreign,
    /// A parameter is used by a layer without a tap.
    #[error(
        "{path} is used where no tap sees it: call the layer by `tapped` in place of `forward`, or a parameter of your own \
         by `for_each_example`, or let examples go one by one (PerExample::OneByOne)"
    )]
    NotTapped {
        /// The parameter.
        path: String,
    },
    /// A tapped layer got something else than one row per example.
    #[error(
        "{path} saw {found} rows for {examples} examples: a tapped layer takes one row per example, [examples, ..]; keep \
         positions in an axis of their own"
    )]
    Rows {
        /// A parameter of the layer.
        path: String,
        /// Examples of the pass.
        examples: usize,
        /// Rows that it saw.
        found: usize,
    },
    /// Two passes over the same examples gave different losses.
    #[error("two passes over the same examples have different losses: {reason}")]
    Random {
        /// What may be the cause, and what to do.
        reason: String,
    },
    /// A run that has taken steps was told to find gradients in another way.
    #[error(
        "{what} was {was} when the run began and is {now} now: steps that are taken again after a crash must have the same \
         gradients to the last bit, or the same noise on others would reveal the data"
    )]
    Settled {
        /// What was to change.
        what: &'static str,
        /// Since the first step.
        was: String,
        /// What it was to be.
        now: String,
    },
    /// An example's loss is another one beside others.
    #[error(
        "the loss of example {example} is {alone} alone and {beside} beside others: the module mixes examples, and no clipping \
         bounds what one of them changes"
    )]
    Mixed {
        /// The example.
        example: u32,
        /// Its loss alone.
        alone: f32,
        /// Its loss in a batch.
        beside: f32,
    },
    /// An example's loss depends on another example while the module trains.
    #[error(
        "the loss of example {example} is {found} in training, and {other} with another example in its batch: the module mixes \
         examples while its training flags are on"
    )]
    MixedInTraining {
        /// The example.
        example: u32,
        /// Its loss.
        found: f32,
        /// Its loss beside another example.
        other: f32,
    },
    /// The gradient of an example's loss goes through another example while the module trains.
    #[error(
        "in training the loss of example {example} has a gradient that goes through example {other}: the module mixes examples while \
         its training flags are on"
    )]
    Stray {
        /// The example.
        example: u32,
        /// The example that has influence on its gradient.
        other: u32,
    },
    /// Gradients disagree with those of single examples.
    #[error(
        "{what} differs from one-by-one automatic differentiation ({found:e} and {expected:e}): examples influence one \
         another, or a layer of the module is not what its taps take it for"
    )]
    Disagrees {
        /// What was compared.
        what: String,
        /// By the way that was chosen.
        found: f64,
        /// One by one.
        expected: f64,
    },
    /// A forward pass changed something that is not trained.
    #[error(
        "a forward pass changed a state of the module that is not trained (running statistics, counters): it would keep what it saw \
         of examples without any noise"
    )]
    State,
    /// There are too few examples to check a module with.
    #[error(
        "two examples are needed to check that they do not influence one another, but there are {found}"
    )]
    TooFew {
        /// Examples in the data.
        found: usize,
    },
    /// A batch of a `Learner` is not the next one of the plan.
    #[error(
        "this is the batch of step {step}, but step {next} comes next: every batch has its gradients once, in order"
    )]
    OtherStep {
        /// The batch's step.
        step: usize,
        /// The step that comes next.
        next: usize,
    },
    /// Training refused.
    #[error(transparent)]
    Training(#[from] TrainingError),
    /// A gradient cannot be added.
    #[error(transparent)]
    Gradient(#[from] GradientError),
    /// A batch that cannot be cut into parts.
    #[error(transparent)]
    Parts(#[from] LargePart),
    /// A checkpoint cannot be continued.
    #[error(transparent)]
    Resume(#[from] ResumeError),
}
