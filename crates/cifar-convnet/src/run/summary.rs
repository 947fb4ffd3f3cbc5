//! The end of a run: what it reached, and what it may claim.

use std::path::{Path, PathBuf};

use anyhow::Context;
use dp_train::fingerprint::Fingerprint;
use dp_train::provenance::{self, Origin};
use serde::{Deserialize, Serialize};

use super::folder::SUMMARY;
use super::metrics::Epoch;
use crate::config::average::Average;
use crate::config::{Config, Record};
use crate::run::memory;

/// What a run without noise says of itself, and of the runs that it started from.
pub(super) fn not_private(provenance: &[Origin]) -> String {
    let statement =
        "not private: privacy = \"none\", trained without noise, covered by no guarantee"
            .to_owned();
    match provenance::named(provenance) {
        None => statement,
        Some(origins) => {
            format!("{statement}; the starting parameters were trained on {origins}")
        }
    }
}

/// What `--json` prints, and `summary.json` holds. Numbers that depend on the training data are null in a
/// public record, and where batches are secret.
#[derive(Debug, Serialize, Deserialize)]
pub struct Summary {
    /// The folder of the run.
    pub run: PathBuf,
    /// None with `data.validation`: no test example was looked at.
    #[serde(default)]
    pub test_accuracy: Option<f64>,
    /// As the accuracy.
    #[serde(default)]
    pub test_loss: Option<f64>,
    /// On held-out training examples; covered by no guarantee.
    #[serde(default)]
    pub validation_accuracy: Option<f64>,
    /// As the accuracy.
    #[serde(default)]
    pub validation_loss: Option<f64>,
    /// Which average of the iterates the result is (`training.average`); none if it is the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<Average>,
    /// Of the last iterate, where the result is an average; on the same examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_iterate_test_accuracy: Option<f64>,
    /// As the accuracy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_iterate_test_loss: Option<f64>,
    /// The same on held-out training examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_iterate_validation_accuracy: Option<f64>,
    /// As the accuracy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_iterate_validation_loss: Option<f64>,
    /// None without privacy.
    #[serde(default)]
    pub epsilon: Option<f64>,
    /// None without privacy.
    #[serde(default)]
    pub delta: Option<f64>,
    /// Whether the claim is covered by a secret noise key.
    pub private: bool,
    /// What is claimed, in one sentence; the first runs had none.
    #[serde(default)]
    pub statement: Option<String>,
    /// SHA-256 of the training examples of a run without privacy, salted where they are not public; a private run has
    /// it in its certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_data_sha256: Option<Fingerprint>,
    /// Steps taken.
    pub steps: usize,
    /// Time of all epochs.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// Training examples over that time.
    #[serde(default)]
    pub examples_per_second: Option<f64>,
    /// Most memory of the process, where the system tells it.
    #[serde(default)]
    pub peak_memory_bytes: Option<u64>,
}

/// What a run claims.
pub(super) struct Claim {
    pub epsilon: Option<f64>,
    pub delta: Option<f64>,
    pub private: bool,
    pub statement: String,
    pub training_data_sha256: Option<Fingerprint>,
}

impl Summary {
    /// The summary of a run that ended with this epoch.
    pub(super) fn new(
        run: PathBuf,
        claim: Claim,
        epochs: &[Epoch],
        last: &Epoch,
        config: &Config,
    ) -> Self {
        let Claim { epsilon, delta, private, statement, training_data_sha256 } = claim;
        let seconds: f64 = epochs.iter().map(|epoch| epoch.seconds).sum();
        let examples = (last.step * config.training.batch_size) as f64;
        let open = config.training.record == Record::All;
        let held_out = config.data.holds_out();
        let (tested, validated) = (
            |number: Option<f64>| number.filter(|_| !held_out),
            |number: Option<f64>| number.filter(|_| held_out),
        );
        Self {
            run,
            test_accuracy: tested(last.accuracy),
            test_loss: tested(last.loss),
            validation_accuracy: validated(last.accuracy),
            validation_loss: validated(last.loss),
            average: config.training.average.clone(),
            last_iterate_test_accuracy: tested(last.last_iterate_accuracy),
            last_iterate_test_loss: tested(last.last_iterate_loss),
            last_iterate_validation_accuracy: validated(last.last_iterate_accuracy),
            last_iterate_validation_loss: validated(last.last_iterate_loss),
            epsilon,
            delta,
            private,
            statement: Some(statement),
            training_data_sha256,
            steps: last.step,
            seconds: open.then_some(seconds),
            examples_per_second: open.then_some(examples / seconds),
            peak_memory_bytes: memory::peak().filter(|_| open),
        }
    }

    /// The summary in the folder of a run that has ended.
    ///
    /// # Errors
    /// If it is not there or damaged; a key that stands twice is refused.
    pub fn read(run: &Path) -> anyhow::Result<Self> {
        let path = run.join(SUMMARY);
        let context = || format!("could not read {}", path.display());
        let bytes = std::fs::read(&path).with_context(context)?;
        serde_json::from_slice(&bytes).with_context(context)
    }

    /// The accuracy on the examples that the run is judged by. Before it had a name of its own, accuracy on held-out
    /// examples was called that of a test.
    pub fn accuracy(&self) -> Option<f64> {
        self.validation_accuracy.or(self.test_accuracy)
    }

    /// The accuracy of the last iterate on these examples, if the result is another model.
    pub fn last_iterate_accuracy(&self) -> Option<f64> {
        self.last_iterate_validation_accuracy.or(self.last_iterate_test_accuracy)
    }

    /// The loss on the same examples.
    pub fn loss(&self) -> Option<f64> {
        self.validation_loss.or(self.test_loss)
    }
}
