//! The certificate: what a run writes to `privacy.json` for others to check.

use mf_core::{Method, StrategyRecord};
use serde::{Deserialize, Serialize};

use crate::accounting::stopping::Selection;
use crate::accounting::tuning::{self, Tried};
use crate::fingerprint::Fingerprint;
use crate::ledger::{Ledger, Realized};
use crate::plan::{DpPlan, PlanRecord, PlanRequest, Sampling};
use crate::provenance::{self, Origin};
use crate::seeds::{KeyOrigin, SamplingKey};
use crate::training::Training;

/// The format that is written.
pub const FORMAT: &str = "bandroot privacy 2";

/// The format before it, which is still read: it had no artifacts, called zero-out "add or remove", and its noise
/// was rounded to f32 before it was added.
pub const FORMAT_1: &str = "bandroot privacy 1";

/// The class of the noise generator.
pub const GENERATOR: &str = "ChaCha20 with a 256-bit key, addressed by (step, coordinate); ziggurat normals in \
                             f64; rows dithered below the last place of f32, added in f64, rounded to 2^-30 of the \
                             noise";

/// The same of a run on a GPU, which adds sum and noise as whole numbers.
pub(crate) const GENERATOR_ON_DEVICE: &str = "ChaCha20 with a 256-bit key, addressed by (step, coordinate); ziggurat normals in f64; rows dithered below the \
     last place of f32, rounded to at most 2^-26 of the noise or 2^-35 clip norms, added in whole numbers";

/// The generator of [`FORMAT_1`].
pub(crate) const GENERATOR_1: &str =
    "ChaCha20 with a 256-bit key, addressed by (step, coordinate); ziggurat normals in f64";

/// What is not claimed.
pub const LIMITS: &str = "the Gaussian is sampled in floating point, on a grid of 2^-30 of its deviation: in every \
                          coordinate and step probabilities are right to about 1 part in 10^6, not exactly; one \
                          example moves a sum by at most 1 + sum_rounding clip norms, which is proven but for \
                          convolutions with ghost norms, where it is searched for; timing is not covered";

/// The limits of a run of a burn module.
pub(crate) const LIMITS_OF_MODULE: &str = "the Gaussian is sampled in floating point, on a grid of 2^-30 of its deviation: in every coordinate and step \
     probabilities are right to about 1 part in 10^6, not exactly; one example moves a sum by at most 1 + sum_rounding clip norms, \
     which is proven but for convolutions, linear layers at several positions and large embeddings whose norms are found without their \
     gradients, and for backward passes of scaled losses, where it is searched for; that an example's loss depends on no other \
     example is checked on a few; what layers draw at random (dropout) is taken for ideal and unknown; timing is not covered";

/// The limits of a run on a GPU.
pub(crate) const LIMITS_ON_DEVICE: &str = "the Gaussian is sampled in floating point, on a grid of at most 2^-26 of its deviation or 2^-35 clip norms: in every \
     coordinate and step probabilities are right to about 1 part in 10^6, not exactly; one example moves a sum by at most 1 + \
     sum_rounding clip norms, which is proven but for convolutions with ghost norms, where it is searched for; timing is not \
     covered";

/// The limits of [`FORMAT_1`].
pub(crate) const LIMITS_1: &str =
    "Gaussian noise in floating point; attacks on its last bits are not excluded";

/// Whether a recorded number may be published along with a private model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exposure {
    /// Computed from the config, from other data, or from released gradients alone.
    Covered,
    /// Computed from the training data: covered by no guarantee.
    NotPrivate,
}

/// A number that the run recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Its name in the run's records.
    pub name: String,
    /// Whether it may be published.
    pub exposure: Exposure,
}

/// Files and data that a certificate speaks of, so that it cannot be laid beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifacts {
    /// SHA-256 of the config, in whatever canonical form the program that wrote it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<Fingerprint>,
    /// SHA-256 of the training examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_data_sha256: Option<Fingerprint>,
    /// SHA-256 of the file with the trained parameters; of a burn module, unless a file is named, of their values: f32 in little-endian,
    /// in the order of the plan's coordinates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_sha256: Option<Fingerprint>,
    /// SHA-256 of the names and shapes of a burn module's trained parameters, in the order of the plan's coordinates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_sha256: Option<Fingerprint>,
    /// SHA-256 of what training leaves as it is in a burn module: frozen parameters (types, shapes and values), states. None where there
    /// is nothing of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_sha256: Option<Fingerprint>,
}

/// What a run tells of itself besides its plan and its ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct Disclosure {
    /// What was recorded, and what of it may be published.
    pub metrics: Vec<Metric>,
    /// Runs on the same data among which this one was chosen, itself included.
    pub trials: u64,
    /// Training examples that were held out to validate with; nothing protects them.
    pub held_out_examples: usize,
    /// What the model saw in place of the examples, in words; features of an example that depend on no other.
    pub features: Option<String>,
    /// Hashes of what the certificate belongs to.
    pub artifacts: Artifacts,
    /// The runs that the parameters before the first step came from, nearest first; none if they were random.
    pub provenance: Vec<Origin>,
}

/// One run from random parameters, with nothing recorded, nothing held out and nothing bound.
impl Default for Disclosure {
    fn default() -> Self {
        Self {
            metrics: Vec::new(),
            trials: 1,
            held_out_examples: 0,
            features: None,
            artifacts: Artifacts::default(),
            provenance: Vec::new(),
        }
    }
}

/// All that the privacy of one run rests on.
///
/// Says what was claimed and what happened; that the claim follows is for
/// [`verify`](crate::verification::verify) to find.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// [`FORMAT`].
    pub format: String,
    /// In one sentence, what the run can claim.
    pub statement: String,
    /// The plan, with the hash of `C` and the method of its sensitivity.
    pub plan: PlanRecord,
    /// The rows of `C` by lag, diagonal first, where a search found them. A strategy of the caller's own stands in the
    /// plan.
    pub strategy: Option<Vec<Vec<f64>>>,
    /// The same for a Toeplitz strategy that was fitted, in short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toeplitz: Option<StrategyRecord>,
    /// The class of the noise generator.
    pub generator: String,
    /// Whether the noise key was secret or a fixed seed.
    pub noise_key: KeyOrigin,
    /// Where the key of the batches came from, if they are secret. None in certificates from before it was stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_key: Option<SamplingKey>,
    /// Who took part, as the ledger saw it.
    #[serde(rename = "realised")]
    pub realized: Realized,
    /// What was recorded, and what of it may be published.
    pub metrics: Vec<Metric>,
    /// Runs on the same data among which this one was chosen, itself included. The guarantee is for
    /// one run.
    pub trials: u64,
    /// The `epsilon` of all these runs together at the same `delta`, as far as the noise of every one of them is known; of
    /// a single run its own. None where it is not known, where it is the best of a secret number, and in certificates from
    /// before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon_all_trials: Option<f64>,
    /// What that follows from, if there were several runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
    /// The random number of runs that this is the best of, nothing else of which was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
    /// Training examples that were held out to validate with. The guarantee is not for them.
    #[serde(default)]
    pub held_out_examples: usize,
    /// What the model saw in place of the examples, if anything; for who wants to use the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<String>,
    /// Hashes of what this belongs to; empty in [`FORMAT_1`].
    #[serde(default)]
    pub artifacts: Artifacts,
    /// The runs that the parameters before the first step came from, nearest first. The guarantee is not for what
    /// they were trained on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provenance: Vec<Origin>,
    /// What is not claimed.
    pub limits: String,
}

impl Certificate {
    /// The certificate of a run with the [`Batches`](crate::batches::Batches) of its plan, finished or not.
    pub fn new(
        plan: &DpPlan,
        noise_key: KeyOrigin,
        ledger: &Ledger,
        disclosure: Disclosure,
    ) -> Self {
        let request = plan.request();
        let Disclosure { metrics, trials, held_out_examples, features, artifacts, provenance } =
            disclosure;
        let mut certificate = Self {
            format: FORMAT.to_string(),
            statement: String::new(),
            plan: plan.record().clone(),
            strategy: match request.method {
                Method::Aof { .. } => {
                    Some((0..request.steps).map(|i| plan.strategy().row(i).to_vec()).collect())
                }
                _ => None,
            },
            toeplitz: request.method.is_fitted().then(|| plan.strategy().record()),
            generator: GENERATOR.to_string(),
            noise_key,
            sampling_key: (request.sampling != Sampling::FixedOrder)
                .then_some(SamplingKey::DerivedFromNoiseKey),
            realized: match tells_uses(plan.record(), ledger.next_step()) {
                true => ledger.realized(),
                false => ledger.realized().without_uses(),
            },
            metrics,
            trials,
            epsilon_all_trials: (trials <= 1 && noise_key == KeyOrigin::OperatingSystem)
                .then_some(request.epsilon),
            tried: Vec::new(),
            selection: None,
            held_out_examples,
            features,
            limits: match artifacts.module_sha256 {
                Some(_) => LIMITS_OF_MODULE.to_string(),
                None => LIMITS.to_string(),
            },
            artifacts,
            provenance,
        };
        certificate.statement = certificate.derived_statement();
        certificate
    }

    /// The same of a run on a GPU ([`ResidentTraining`](crate::training::resident::ResidentTraining)), whose noise is on a
    /// grid of its own.
    #[cfg(feature = "gpu")]
    pub fn on_device(mut self) -> Self {
        self.generator = GENERATOR_ON_DEVICE.to_string();
        self.limits = LIMITS_ON_DEVICE.to_string();
        self
    }

    /// The certificate of a run, finished or not.
    pub fn of(training: &Training, disclosure: Disclosure) -> Self {
        Self::new(training.plan(), training.key_origin(), training.ledger(), disclosure)
    }

    /// The same certificate after more runs were made on the same data, of whose noise nothing is said. The number never
    /// falls.
    pub fn with_trials(mut self, trials: u64) -> Self {
        if trials > self.trials {
            self.trials = trials;
            self.epsilon_all_trials = None;
            self.tried.clear();
        }
        self.statement = self.derived_statement();
        self
    }

    /// The same certificate beside all runs that it was chosen among, itself included: what they cost together. If they
    /// are fewer than it counts, or if there is no such number, it stays as it is.
    pub fn with_tried(self, tried: &[Tried]) -> Self {
        let runs = tried.iter().map(|tried| tried.runs).fold(0, u64::saturating_add);
        let known = self.format == FORMAT && self.noise_key == KeyOrigin::OperatingSystem;
        if runs < self.trials || runs <= 1 || !known || self.selection.is_some() {
            return self;
        }
        let mut certificate = self.with_trials(runs);
        let delta = certificate.plan.request.delta;
        if let Ok(epsilon) = tuning::epsilon(tried, delta) {
            // Together they cannot cost less than one, whose epsilon may be smaller by secret batches.
            let least = certificate.plan.request.epsilon;
            certificate.epsilon_all_trials = Some(epsilon.max(least));
            certificate.tried = tried.to_vec();
        }
        certificate.statement = certificate.derived_statement();
        certificate
    }

    /// The certificate of the best of a random number of runs, which nobody counts.
    pub fn with_selection(mut self, selection: Selection) -> Self {
        self.selection = Some(selection);
        self.epsilon_all_trials = None;
        self.tried.clear();
        self.statement = self.derived_statement();
        self
    }

    /// The statement that the numbers of this certificate make.
    pub(crate) fn derived_statement(&self) -> String {
        let statement = self.statement_of_today();
        match self.format.as_str() {
            FORMAT_1 => statement.replace("zero out one example", "add or remove one example"),
            _ => statement,
        }
    }

    /// In one sentence, what a run can claim.
    fn statement_of_today(&self) -> String {
        if self.noise_key == KeyOrigin::FixedSeed {
            return "reproducible, not private: the noise seed was fixed and can be subtracted"
                .to_string();
        }
        let PlanRequest { epsilon, delta, neighbouring, sampling, .. } = &self.plan.request;
        // Up to the next hundredth: never less than is true.
        let rounded_up = |epsilon: f64| (100.0 * epsilon).ceil() / 100.0;
        let secret = match sampling {
            Sampling::FixedOrder => "",
            Sampling::BallsInBins | Sampling::Poisson | Sampling::CyclicPoisson => {
                "; as long as nobody learns which batches an example was in"
            }
        };
        let held_out = match (self.held_out_examples, self.selection) {
            (0, _) | (_, Some(_)) => String::new(),
            (held_out, None) => format!(
                "; it holds for the examples trained on, not for the {held_out} held out to validate with"
            ),
        };
        let origins = provenance::named(&self.provenance).map_or(String::new(), |origins| {
            format!(
                "; it does not cover the data that the starting parameters were trained on: {origins}"
            )
        });
        let selected = self.selection.map_or(String::new(), |Selection { mean, epsilon, .. }| {
            let epsilon = rounded_up(epsilon);
            format!(
                "; as the best of a random number of runs, {mean} in the mean, it is ({epsilon}, {delta:e})-\
                 differentially private, as long as nobody learns their number or sees another of them"
            )
        });
        let all = self.epsilon_all_trials.filter(|_| !self.tried.is_empty());
        let all = all.map_or(String::new(), |all| {
            let all = rounded_up(all);
            let held_out = match self.tried.iter().any(|tried| tried.held_out) {
                true => ", but for what scores tell of examples held out to validate with",
                false => "",
            };
            format!(
                ": all of them together are ({all}, {delta:e})-differentially private{held_out}"
            )
        });
        let sweep = match self.trials {
            0 | 1 => String::new(),
            trials => format!("; choosing among {trials} runs is not covered{all}"),
        };
        format!(
            "one run is ({epsilon}, {delta:e})-differentially private, \
             neighbours: {neighbouring}{secret}{held_out}{origins}{selected}{sweep}"
        )
    }
}

/// Whether the uses of examples follow from so many steps of a plan, so that they tell nothing of secret batches.
pub(crate) fn tells_uses(plan: &PlanRecord, steps: usize) -> bool {
    match plan.request.sampling {
        Sampling::FixedOrder => true,
        Sampling::BallsInBins => steps.is_multiple_of(plan.participation.min_separation().max(1)),
        Sampling::Poisson | Sampling::CyclicPoisson => false,
    }
}
