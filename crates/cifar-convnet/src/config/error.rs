//! Why a config cannot be run, each refusal with the key that is wrong.

use std::fmt;

use dp_train::calibration::CalibrationError;
use dp_train::model::ArchitectureError;

use crate::method::MethodError;

/// A number of the config that leaves nothing to plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RequestError {
    /// No batch can be filled.
    BatchSize { batch_size: usize, examples: usize },
    /// A number of examples for a data set that has its own.
    Examples { name: &'static str },
    /// A share of examples that leaves nothing to train on or to validate with.
    Validation { share: f64 },
    /// Nothing is to be trained.
    NoEpochs,
    /// More steps than can be planned.
    TooManySteps { most: usize },
    /// No such method.
    Method(MethodError),
    /// A run is one of at least one.
    NoTrials,
    /// A number that the factorization refuses.
    Optimizer(mf_core::Error),
    /// The learning rate is not a positive finite number.
    LearningRate { learning_rate: f64 },
    /// The last learning rate is no part of the largest.
    FinalFraction { fraction: f64 },
    /// A cooldown that is longer than the run.
    Cooldown { cooldown: usize, most: usize },
    /// A key of a schedule that has no use for it.
    NoCooldown { key: &'static str },
    /// A plan was asked for, but there is to be no privacy.
    NotPrivate,
    /// No factorization is named.
    NoNoise,
    /// No noise gives this privacy.
    Privacy(CalibrationError),
    /// A clip norm that is not a positive finite number, with the section it stands in.
    ClipNorm { section: &'static str, clip_norm: f64 },
    /// A clip norm of the optimizer in a private run.
    TwoClipNorms,
    /// Nothing of a run without privacy is covered.
    NothingPublic,
    /// Nothing that a public record may hold says how the run did.
    NothingToShow,
    /// A model of one's own without its layers.
    NoLayers,
    /// Layers beside a model that has its own.
    UnusedLayers,
    /// Layers that do not fit.
    Layers(ArchitectureError),
    /// The last layer does not give one number per class.
    Logits { classes: usize },
    /// No view of an example, or more than memory holds.
    Views { multiplicity: usize, most: usize },
    /// No test example, or more examples than memory holds.
    Drawn { key: &'static str, examples: usize, most: usize },
    /// More padding than a picture has pixels.
    CropPadding { padding: usize, side: usize },
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::BatchSize { batch_size, examples } => write!(
                f,
                "training.batch_size must be between 1 and the {examples} training examples, \
                 but it is {batch_size}"
            ),
            RequestError::Examples { name } => write!(
                f,
                "data.examples and data.test_examples are for textures; {name} has its own number"
            ),
            RequestError::Validation { share } => write!(
                f,
                "data.validation must be 0 or leave both parts some examples, but it is {share}"
            ),
            RequestError::NoEpochs => write!(f, "training.epochs must be at least 1"),
            RequestError::TooManySteps { most } => write!(
                f,
                "training.epochs: the run would have more than {most} steps; take fewer epochs or a \
                 larger training.batch_size"
            ),
            RequestError::Method(error) => f.write_str(&error.sentence("noise.")),
            RequestError::NoTrials => write!(f, "privacy.trials must be at least 1"),
            RequestError::Optimizer(error) => write!(f, "optimizer: {error}"),
            RequestError::LearningRate { learning_rate } => write!(
                f,
                "optimizer.learning_rate must be positive and finite, but it is {learning_rate}"
            ),
            RequestError::FinalFraction { fraction } => write!(
                f,
                "optimizer.final_fraction must be above 0 and at most 1, but it is {fraction}"
            ),
            RequestError::Cooldown { cooldown, most } => write!(
                f,
                "optimizer.cooldown_steps must be between 1 and {most}, one less than the steps of \
                 the run, but it is {cooldown}"
            ),
            RequestError::NoCooldown { key } => {
                write!(f, "optimizer.{key} is given, but optimizer.schedule has no use for it")
            }
            RequestError::NotPrivate => write!(
                f,
                "privacy = \"none\" leaves nothing to plan: give [privacy] with epsilon, delta and \
                 clip_norm"
            ),
            RequestError::NoNoise => {
                write!(f, "noise.method is missing: a private run needs noise")
            }
            RequestError::Privacy(error) => write!(f, "privacy: {error}"),
            RequestError::ClipNorm { section, clip_norm } => {
                write!(f, "{section}.clip_norm must be positive and finite, but it is {clip_norm}")
            }
            RequestError::TwoClipNorms => write!(
                f,
                "optimizer.clip_norm is for privacy = \"none\"; a private run has privacy.clip_norm"
            ),
            RequestError::NothingPublic => write!(
                f,
                "training.record = \"public\" keeps what the guarantee covers, but with \
                 privacy = \"none\" there is none"
            ),
            RequestError::NothingToShow => write!(
                f,
                "training.record = \"public\" has nothing to show with data.validation above 0: accuracy on \
                 held-out training examples is not private; set data.validation = 0 to be judged by the \
                 test examples, or training.record = \"all\""
            ),
            RequestError::NoLayers => write!(f, "model.name = \"own\" needs model.layers"),
            RequestError::UnusedLayers => {
                write!(f, "model.layers is given, but model.name is not \"own\"")
            }
            RequestError::Layers(error) => write!(f, "model: {error}"),
            RequestError::Logits { classes } => write!(
                f,
                "model must end with a vector of {classes} numbers, one per class of the data"
            ),
            RequestError::Views { multiplicity, most } => write!(
                f,
                "data.augmentation.multiplicity must be between 1 and {most}, but it is {multiplicity}"
            ),
            RequestError::Drawn { key, examples, most } => {
                write!(f, "data.{key} must be between 1 and {most}, but it is {examples}")
            }
            RequestError::CropPadding { padding, side } => write!(
                f,
                "data.augmentation.crop_padding must be below the {side} pixels of a picture's side, \
                 but it is {padding}"
            ),
        }
    }
}
