//! The certificate: what a run writes to `privacy.json` for others to check.

use mf_core::{Method, StrategyRecord};
use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::ledger::{Ledger, Realized};
use crate::plan::{DpPlan, PlanRecord, PlanRequest, Sampling};
use crate::provenance::{self, Origin};
use crate::seeds::KeyOrigin;
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

/// The generator of [`FORMAT_1`].
pub(crate) const GENERATOR_1: &str =
    "ChaCha20 with a 256-bit key, addressed by (step, coordinate); ziggurat normals in f64";

/// What is not claimed.
pub const LIMITS: &str = "the Gaussian is sampled in floating point, on a grid of 2^-30 of its deviation: in every \
                          coordinate and step probabilities are right to about 1 part in 10^6, not exactly; one \
                          example moves a sum by at most 1 + sum_rounding clip norms, which is proven but for \
                          convolutions with ghost norms, where it is searched for; timing is not covered";

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
    /// SHA-256 of the file with the trained parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_sha256: Option<Fingerprint>,
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
    /// Who took part, as the ledger saw it.
    #[serde(rename = "realised")]
    pub realized: Realized,
    /// What was recorded, and what of it may be published.
    pub metrics: Vec<Metric>,
    /// Runs on the same data among which this one was chosen, itself included. The guarantee is for
    /// one run.
    pub trials: u64,
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
        Self {
            format: FORMAT.to_string(),
            statement: statement(request, noise_key, trials, held_out_examples, &provenance),
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
            realized: match tells_uses(plan.record(), ledger.next_step()) {
                true => ledger.realized(),
                false => ledger.realized().without_uses(),
            },
            metrics,
            trials,
            held_out_examples,
            features,
            artifacts,
            provenance,
            limits: LIMITS.to_string(),
        }
    }

    /// The certificate of a run, finished or not.
    pub fn of(training: &Training, disclosure: Disclosure) -> Self {
        Self::new(training.plan(), training.key_origin(), training.ledger(), disclosure)
    }

    /// The same certificate after more runs were made on the same data. The number never falls.
    pub fn with_trials(mut self, trials: u64) -> Self {
        self.trials = trials.max(self.trials);
        self.statement = self.derived_statement();
        self
    }

    /// The statement that the numbers of this certificate make.
    pub(crate) fn derived_statement(&self) -> String {
        let (trials, held_out) = (self.trials, self.held_out_examples);
        let statement =
            statement(&self.plan.request, self.noise_key, trials, held_out, &self.provenance);
        match self.format.as_str() {
            FORMAT_1 => statement.replace("zero out one example", "add or remove one example"),
            _ => statement,
        }
    }
}

/// In one sentence, what a run can claim.
fn statement(
    request: &PlanRequest,
    noise_key: KeyOrigin,
    trials: u64,
    held_out_examples: usize,
    provenance: &[Origin],
) -> String {
    if noise_key == KeyOrigin::FixedSeed {
        return "reproducible, not private: the noise seed was fixed and can be subtracted"
            .to_string();
    }
    let sweep = match trials {
        0 | 1 => String::new(),
        trials => format!("; choosing among {trials} runs is not covered"),
    };
    let held_out = match held_out_examples {
        0 => String::new(),
        held_out => format!(
            "; it holds for the examples trained on, not for the {held_out} held out to validate with"
        ),
    };
    let origins = provenance::named(provenance).map_or(String::new(), |origins| {
        format!(
            "; it does not cover the data that the starting parameters were trained on: {origins}"
        )
    });
    let PlanRequest { epsilon, delta, neighbouring, sampling, .. } = request;
    let secret = match sampling {
        Sampling::FixedOrder => "",
        Sampling::BallsInBins | Sampling::Poisson | Sampling::CyclicPoisson => {
            "; as long as nobody learns which batches an example was in"
        }
    };
    format!(
        "one run is ({epsilon}, {delta:e})-differentially private, \
         neighbours: {neighbouring}{secret}{held_out}{origins}{sweep}"
    )
}

/// Whether the uses of examples follow from so many steps of a plan, so that they tell nothing of secret batches.
pub(crate) fn tells_uses(plan: &PlanRecord, steps: usize) -> bool {
    match plan.request.sampling {
        Sampling::FixedOrder => true,
        Sampling::BallsInBins => steps.is_multiple_of(plan.participation.min_separation().max(1)),
        Sampling::Poisson | Sampling::CyclicPoisson => false,
    }
}
