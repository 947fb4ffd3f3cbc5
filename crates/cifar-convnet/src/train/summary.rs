//! The end of a run: what it reached, and what it may claim.

use std::path::PathBuf;

use serde::Serialize;

use super::metrics::Epoch;
use crate::config::Record;
use crate::memory;

/// What a run without noise says of itself.
pub(super) const NOT_PRIVATE: &str =
    "not private: privacy = \"none\", trained without noise, covered by no guarantee";

/// What `--json` prints, and `summary.json` holds. Numbers that depend on the training data are null in a
/// public record.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) run: PathBuf,
    pub(super) test_accuracy: f64,
    pub(super) test_loss: f64,
    /// None without privacy.
    pub(super) epsilon: Option<f64>,
    pub(super) delta: Option<f64>,
    pub(super) private: bool,
    pub(super) statement: String,
    pub(super) steps: usize,
    pub(super) seconds: Option<f64>,
    pub(super) examples_per_second: Option<f64>,
    pub(super) peak_memory_bytes: Option<u64>,
}

/// What a run claims.
pub(super) struct Claim {
    pub(super) epsilon: Option<f64>,
    pub(super) delta: Option<f64>,
    pub(super) private: bool,
    pub(super) statement: String,
}

impl Summary {
    /// The summary of a run that ended with this epoch.
    pub(super) fn new(
        run: PathBuf,
        claim: Claim,
        epochs: &[Epoch],
        last: &Epoch,
        batch_size: usize,
        record: Record,
    ) -> Self {
        let Claim { epsilon, delta, private, statement } = claim;
        let seconds: f64 = epochs.iter().map(|epoch| epoch.seconds).sum();
        let open = record == Record::All;
        Self {
            run,
            test_accuracy: last.test_accuracy,
            test_loss: last.test_loss,
            epsilon,
            delta,
            private,
            statement,
            steps: last.step,
            seconds: open.then_some(seconds),
            examples_per_second: open.then_some((last.step * batch_size) as f64 / seconds),
            peak_memory_bytes: memory::peak().filter(|_| open),
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "test accuracy  {:.2} %\nprivacy        {}\n",
            100.0 * self.test_accuracy,
            self.statement
        );
        if let Some(speed) = self.examples_per_second {
            text += &format!("speed          {speed:.0} examples/s\n");
            let most = memory::describe(self.peak_memory_bytes);
            text += &format!("peak memory    {most}\n");
        }
        text + &format!("run folder     {}\n", self.run.display())
    }
}
