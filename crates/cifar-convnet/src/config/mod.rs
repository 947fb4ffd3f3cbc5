//! Configs: one TOML file per experiment, checked before anything happens.

use clap::ValueEnum;
use dp_train::StrategyFor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::factorizations::MethodName;

pub mod average;
mod bands;
pub mod canonical;
pub mod data;
pub mod engine;
pub mod evaluation;
pub mod file;
pub mod page;
pub mod privacy;
pub mod model;
pub mod schedule;
pub mod slurm;
pub mod error;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod fuzz;

use average::Average;
use data::Data;
use evaluation::Evaluation;
use model::Model;
use privacy::Privacy;
use schedule::Schedule;

/// An experiment: the data, the model, the privacy, the noise and the training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What is trained on.
    pub data: Data,
    /// What is trained.
    pub model: Model,
    /// What is guaranteed; or `privacy = "none"` in place of this section, for training without noise
    /// and without any guarantee.
    pub privacy: Privacy,
    /// How the noise is correlated. Needed unless `privacy = "none"`, and not looked at then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// How the parameters move.
    pub optimizer: Optimizer,
    /// How long, and in which batches.
    pub training: Training,
    /// How the run is judged, while it goes on and by `bandroot eval`. It is settled before the run, so that nothing is
    /// chosen by what it shows on the test examples.
    #[serde(default, skip_serializing_if = "is_default")]
    pub evaluation: Evaluation,
    /// What computes.
    #[serde(default)]
    pub engine: engine::Engine,
}

/// How the noise is correlated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// The factorization.
    pub method: MethodName,
    /// Diagonals of the strategy, for bsr, toeplitz, normalised-sqrt and aof, the steps of one epoch if left
    /// out; of its inverse, for bisr and inverse-toeplitz, 4 if left out. `"best"`, for all of these but aof, is the number
    /// with the least noise on the iterates at this privacy among those that it tries: the powers of two up to an epoch
    /// and others around the best of them. With `privacy.accountant = "verified"` they are ranked without sampling first,
    /// and from the best of them on the noise is followed by sampling as long as it falls, some six plans. What was
    /// found stands in the config of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<bands::NumberOrBest>")]
    pub bands: Option<usize>,
    /// Share of the row before that lambda-cgd takes back, in [0, 1]; the best one if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lambda: Option<f64>,
    /// Maximum number of buffers of blt; 3 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffers: Option<usize>,
    /// Rows of noise kept in memory by bisr, lambda-cgd and inverse-toeplitz; the others are drawn again, the
    /// same bits for more time. All if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_rows: Option<usize>,
    /// Certified relative gap to the optimum at which aof stops.
    #[serde(default = "default_tolerance")]
    pub tolerance: f64,
    /// Which learning rates the factorization is made for, if `optimizer.schedule` changes them. Privacy
    /// does not depend on it. If left out, it is `"schedule"` where that was never worse: for bsr without decay
    /// (`decay_factor = 1`), with a momentum of at least 0.9 and a rate that falls over more than 5 epochs to a tenth or
    /// less, where it takes about an eighth off the final error; not for cyclic Poisson batches. Elsewhere either can be better (for aof the mean error falls and the
    /// final one rises), and `bandroot plan` tells; some methods know `"constant-rate"` only.
    #[serde(default, serialize_with = "kebab_case")]
    pub strategy_for: StrategyFor,
}

pub(crate) fn default_tolerance() -> f64 {
    1e-4
}

/// A word as configs write it; plans and certificates have their own way.
fn kebab_case<S: Serializer>(word: &impl ValueEnum, serializer: S) -> Result<S::Ok, S::Error> {
    let value = word.to_possible_value();
    serializer.serialize_str(value.as_ref().map_or("", |value| value.get_name()))
}

/// How the parameters move: `m = momentum m + gradient`, `theta = decay_factor theta - learning_rate m`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Optimizer {
    /// The step size, or the largest one if there is a schedule.
    pub learning_rate: f64,
    /// How the learning rate changes from step to step.
    #[serde(default)]
    pub schedule: Schedule,
    /// Steps over which linear-cooldown falls, at the end of the run; all after the first if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown_steps: Option<usize>,
    /// The same as a part of all steps, in (0, 1], so that it fits runs of any length: rounded, and at least one
    /// step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown_fraction: Option<f64>,
    /// The last step's learning rate as a part of `learning_rate`, in (0, 1], for linear-cooldown and
    /// cosine; 0.01 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_fraction: Option<f64>,
    /// beta: the momentum buffer is multiplied by it in every step, in [0, `decay_factor`).
    #[serde(default)]
    pub momentum: f64,
    /// alpha: the weights are multiplied by it in every step, in (0, 1]; 1 is no weight decay.
    #[serde(default = "one")]
    pub decay_factor: f64,
    /// With `privacy = "none"`, the gradient of every example is scaled down to at most this norm; not
    /// clipped if left out. A private run has `privacy.clip_norm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
}

fn one() -> f64 {
    1.0
}

/// How long, and in which batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// How often every example is used.
    pub epochs: usize,
    /// Examples in a batch. What is left over at the end of the data is never used.
    pub batch_size: usize,
    /// Seed of the initial parameters, of the order of the examples and of their views.
    #[serde(default)]
    pub seed: u64,
    /// Steps between checkpoints, besides the one at the end of every epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_steps: Option<usize>,
    /// What is written to metrics.csv, to the TensorBoard events and to the summary. If left out, everything for batches
    /// in a fixed order, and `"no-batches"` for secret ones (`privacy.sampling`): their losses, counts and times tell who
    /// was in them, which takes away what secret batches are worth.
    #[serde(default)]
    pub record: Record,
    /// An average of the iterates, kept beside them; none if left out. If there is one, it is the result of the run:
    /// `parameters.safetensors` and all accuracies and losses on other examples are its own, and those of the last
    /// iterate stand beside them with `last_iterate_` before their names. It is made of what the mechanism releases,
    /// so the guarantee covers both. It is added up in f64 on the CPU, so with the device `gpu` every step waits for the
    /// parameters: 4 bytes each come back, which a step without an average does not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<Average>,
}

/// Which numbers a run writes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// Everything; what no guarantee covers is marked not private in the metrics, in the events and in the
    /// certificate.
    #[default]
    All,
    /// Everything but what tells of the batches: nothing of training loss, training accuracy, clipping, speed, time and
    /// memory. Accuracy on held-out training examples stays, and is marked not private.
    NoBatches,
    /// Only what may be published along with the model: the same without what is computed from held-out
    /// training examples.
    Public,
}

/// Whether a key may be left out of files and canonical forms, which had none before the key was there.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
