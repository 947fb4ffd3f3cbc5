//! The section `[evaluation]`: how a run is judged. All of it is settled before the run, so that nothing can be chosen
//! by what it shows on the test examples.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::ConfigError;

/// How a run is judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// Whether the model sees every picture and its mirror image, left to right, and answers with the mean of the two
    /// vectors of logits; in `bandroot eval` and `bandroot predict` too. For images only.
    #[serde(default)]
    pub mirror: bool,
    /// Evaluates after every so many epochs, and always after the last. The lines of metrics.csv in between have no
    /// accuracy and no loss besides those of the training.
    #[serde(default = "every_epoch")]
    pub every: usize,
}

impl Default for Evaluation {
    fn default() -> Self {
        Self { mirror: false, every: every_epoch() }
    }
}

fn every_epoch() -> usize {
    1
}

impl Evaluation {
    /// Whether a run of `epochs` epochs is evaluated after this one, counted from 1.
    pub fn is_due(&self, epoch: usize, epochs: usize) -> bool {
        epoch == epochs || (self.every > 0 && epoch.is_multiple_of(self.every))
    }

    /// That it can be done with examples that are vectors or not, of the data set of this name.
    pub(crate) fn check(&self, is_vector: bool, name: &'static str) -> Result<(), ConfigError> {
        if self.every == 0 {
            return Err(ConfigError::NeverEvaluated);
        }
        if self.mirror && is_vector {
            return Err(ConfigError::NoMirror { name });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_epoch_is_always_evaluated() {
        let due = |every, epochs| -> Vec<usize> {
            let keys = Evaluation { every, ..Evaluation::default() };
            (1..=epochs).filter(|&epoch| keys.is_due(epoch, epochs)).collect()
        };
        assert_eq!(due(1, 3), [1, 2, 3]);
        assert_eq!(due(3, 7), [3, 6, 7]);
        assert_eq!(due(9, 4), [4]);
    }
}
