//! The certificate: what a run writes to `privacy.json` for others to check.

use mf_core::{Buffer, Method, Noising, Strategy};
use serde::{Deserialize, Serialize};

use crate::ledger::{Ledger, Realised};
use crate::plan::{DpPlan, PlanRecord};
use crate::seeds::KeyOrigin;

/// The format that is written and read here.
pub const FORMAT: &str = "bandroot privacy 1";

/// The class of the noise generator.
pub const GENERATOR: &str =
    "ChaCha20 with a 256-bit key, addressed by (step, coordinate); ziggurat normals in f64";

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

/// A Toeplitz strategy by the numbers that a search found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case", deny_unknown_fields)]
pub enum RecordedToeplitz {
    /// The first column of `C`, up to its last coefficient that is not zero.
    Strategy {
        /// By lag.
        coefficients: Vec<f64>,
    },
    /// The same of `C^-1`.
    Inverse {
        /// By lag.
        coefficients: Vec<f64>,
    },
    /// The buffers of a buffered linear Toeplitz strategy.
    Buffered {
        /// Weight and decay of each.
        buffers: Vec<Buffer>,
    },
}

impl RecordedToeplitz {
    fn of(strategy: &Strategy) -> Option<Self> {
        Some(match strategy.noising() {
            Noising::Taps(taps) => Self::Inverse { coefficients: taps.to_vec() },
            Noising::Buffers(buffers) => Self::Buffered { buffers: buffers.to_vec() },
            Noising::Recurrence => {
                Self::Strategy { coefficients: strategy.as_toeplitz()?.to_vec() }
            }
        })
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
    /// The rows of `C` by lag, diagonal first, where no formula gives them.
    pub strategy: Option<Vec<Vec<f64>>>,
    /// The same for a Toeplitz strategy that was fitted, in short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toeplitz: Option<RecordedToeplitz>,
    /// The class of the noise generator.
    pub generator: String,
    /// Whether the noise key was secret or a fixed seed.
    pub noise_key: KeyOrigin,
    /// Who took part, as the ledger saw it.
    pub realised: Realised,
    /// What was recorded, and what of it may be published.
    pub metrics: Vec<Metric>,
    /// Runs on the same data among which this one was chosen, itself included. The guarantee is for
    /// one run.
    pub trials: u64,
    /// What is not claimed.
    pub limits: String,
}

impl Certificate {
    /// The certificate of a run, finished or not.
    pub fn new(
        plan: &DpPlan,
        noise_key: KeyOrigin,
        ledger: &Ledger,
        metrics: Vec<Metric>,
        trials: u64,
    ) -> Self {
        let request = plan.request();
        let statement = match noise_key {
            KeyOrigin::FixedSeed => {
                "reproducible, not private: the noise seed was fixed and can be subtracted"
                    .to_string()
            }
            KeyOrigin::OperatingSystem => {
                let sweep = match trials {
                    0 | 1 => String::new(),
                    trials => format!("; choosing among {trials} runs is not covered"),
                };
                let (epsilon, delta) = (request.epsilon, request.delta);
                let neighbours = request.neighbouring;
                format!(
                    "one run is ({epsilon}, {delta:e})-differentially private, \
                     neighbours: {neighbours}{sweep}"
                )
            }
        };
        Self {
            format: FORMAT.to_string(),
            statement,
            plan: plan.record().clone(),
            strategy: match request.method {
                Method::Aof { .. } => {
                    Some((0..request.steps).map(|i| plan.strategy().row(i).to_vec()).collect())
                }
                _ => None,
            },
            toeplitz: match request.method.is_fitted() {
                true => RecordedToeplitz::of(plan.strategy()),
                false => None,
            },
            generator: GENERATOR.to_string(),
            noise_key,
            realised: ledger.realised(),
            metrics,
            trials,
            limits: "Gaussian noise in floating point; attacks on its last bits are not excluded"
                .to_string(),
        }
    }
}
