//! Why a config cannot be run, each refusal with the key that is wrong.

use dp_train::calibration::CalibrationError;
use dp_train::model::ArchitectureError;

use crate::factorizations::{MethodError, MethodName};

/// A number of the config that leaves nothing to plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the sentence of a variant says what its fields are")]
pub enum ConfigError {
    /// No batch can be filled.
    #[error(
        "training.batch_size must be between 1 and the {examples} training examples, but it is {batch_size}"
    )]
    BatchSize { batch_size: usize, examples: usize },
    /// A number of examples for a data set that has its own.
    #[error("data.examples and data.test_examples are for textures; {name} has its own number")]
    Examples { name: &'static str },
    /// A key of the data that cannot be used.
    #[error("data.{key} {reason}")]
    Data { key: &'static str, reason: String },
    /// Constants that scale nothing.
    #[error("{0}")]
    Scaling(String),
    /// Views of something else than images.
    #[error(
        "data.augmentation is for images, but the examples of {name} are vectors; leave it out"
    )]
    NoViews { name: &'static str },
    /// Mirror images of something else than images.
    #[error(
        "evaluation.mirror is for images, but the examples of {name} are vectors; leave it out"
    )]
    NoMirror { name: &'static str },
    /// No epoch is the zeroth.
    #[error("evaluation.every must be at least 1")]
    NeverEvaluated,
    /// An average without its number.
    #[error("training.average.kind = \"{kind}\" needs training.average.{key}")]
    MissingAverage { key: &'static str, kind: &'static str },
    /// The number of another average.
    #[error("training.average.{key} is given, but kind = \"{kind}\" has no use for it")]
    UnusedAverage { key: &'static str, kind: &'static str },
    /// An average of nothing.
    #[error("training.average.{key} must be at least 0 and below 1, but it is {number}")]
    Average { key: &'static str, number: f64 },
    /// A model of images for something else.
    #[error(
        "model.name = \"{model}\" is for images, but the examples of {name} are vectors; set model.name = \"own\" and give model.layers, such as {{ layer = \"linear\", in_features = {features}, out_features = {classes} }}"
    )]
    NoImages { model: &'static str, name: &'static str, features: usize, classes: usize },
    /// A share of examples that leaves nothing to train on or to validate with.
    #[error("data.validation must be 0 or leave both parts some examples, but it is {share}")]
    Validation { share: f64 },
    /// Nothing is to be trained.
    #[error("training.epochs must be at least 1")]
    NoEpochs,
    /// More steps than can be planned.
    #[error(
        "training.epochs: the run would have more than {most} steps; take fewer epochs or a larger training.batch_size"
    )]
    TooManySteps { most: usize },
    /// No such method.
    #[error("{}", .0.sentence("noise."))]
    Method(MethodError),
    /// A run is one of at least one.
    #[error("privacy.trials must be at least 1")]
    NoTrials,
    /// A number that the factorization refuses.
    #[error("optimizer: {0}")]
    Optimizer(mf_core::Error),
    /// The learning rate is not a positive finite number.
    #[error("optimizer.learning_rate must be positive and finite, but it is {learning_rate}")]
    LearningRate { learning_rate: f64 },
    /// The last learning rate is no part of the largest.
    #[error("optimizer.final_fraction must be above 0 and at most 1, but it is {fraction}")]
    FinalFraction { fraction: f64 },
    /// A cooldown that is longer than the run.
    #[error(
        "optimizer.cooldown_steps must be between 1 and {most}, one less than the steps of the run, but it is {cooldown}"
    )]
    Cooldown { cooldown: usize, most: usize },
    /// A cooldown that is no part of the run.
    #[error("optimizer.cooldown_fraction must be above 0 and at most 1, but it is {fraction}")]
    CooldownFraction { fraction: f64 },
    /// A cooldown in steps and as a part.
    #[error(
        "optimizer.cooldown_steps and optimizer.cooldown_fraction say the same: give one of them"
    )]
    TwoCooldowns,
    /// A key of a schedule that has no use for it.
    #[error("optimizer.{key} is given, but optimizer.schedule has no use for it")]
    NoCooldown { key: &'static str },
    /// A plan was asked for, but there is to be no privacy.
    #[error(
        "privacy = \"none\" leaves nothing to plan: give [privacy] with epsilon, delta and clip_norm"
    )]
    NotPrivate,
    /// No factorization is named.
    #[error("noise.method is missing: a private run needs noise")]
    NoNoise,
    /// No noise gives this privacy.
    #[error("privacy: {0}")]
    Privacy(CalibrationError),
    /// A clip norm that is not a positive finite number, with the section it stands in.
    #[error("{section}.clip_norm must be positive and finite, but it is {clip_norm}")]
    ClipNorm { section: &'static str, clip_norm: f64 },
    /// A clip norm of the optimizer in a private run.
    #[error("optimizer.clip_norm is for privacy = \"none\"; a private run has privacy.clip_norm")]
    TwoClipNorms,
    /// Nothing of a run without privacy is covered.
    #[error(
        "training.record = \"public\" keeps what the guarantee covers, but with privacy = \"none\" there is none"
    )]
    NothingPublic,
    /// Nothing that a public record may hold says how the run did.
    #[error(
        "training.record = \"public\" has nothing to show with data.validation or data.test_share: accuracy on examples from the training files is not private; leave them out to be judged by test files, or set training.record = \"no-batches\" or \"all\""
    )]
    NothingToShow,
    /// A model of one's own without its layers.
    #[error("model.name = \"own\" needs model.layers")]
    NoLayers,
    /// Layers beside a model that has its own.
    #[error("model.layers is given, but model.name is not \"own\"")]
    UnusedLayers,
    /// `bands = "best"` for a method that has none, or that takes long.
    #[error(
        "noise.bands = \"best\" is for bsr, bisr, toeplitz, inverse-toeplitz and normalised-sqrt, not for {method}"
    )]
    BestBands { method: MethodName },
    /// `zero_head` without a linear layer.
    #[error(
        "model.zero_head is set, but the model has no linear layer that could start at zero: leave it out"
    )]
    NoHead,
    /// Layers that do not fit.
    #[error("model: {0}")]
    Layers(ArchitectureError),
    /// The last layer does not give one number per class.
    #[error("model must end with a vector of {classes} numbers, one per class of the data")]
    Logits { classes: usize },
    /// No view of an example, or more than memory holds.
    #[error("data.augmentation.views must be between 1 and {most}, but it is {views}")]
    Views { views: usize, most: usize },
    /// No test example, or more examples than memory holds.
    #[error("data.{key} must be between 1 and {most}, but it is {examples}")]
    Drawn { key: &'static str, examples: usize, most: usize },
    /// More padding than an image has pixels.
    #[error(
        "data.augmentation.crop_padding must be below the {side} pixels of an image's side, but it is {padding}"
    )]
    CropPadding { padding: usize, side: usize },
    /// A way of padding where nothing is padded.
    #[error(
        "data.augmentation.padding is given, but data.augmentation.crop_padding is 0: leave it out"
    )]
    NoPadding,
}
