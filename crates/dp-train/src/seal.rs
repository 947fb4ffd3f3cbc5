//! The seal of a checkpoint: what must be the same for a run to go on.
//!
//! A continuation adds the same rows of noise again to the steps after the checkpoint. If those steps have other
//! gradients than before, because the model, the data, a rate or the arithmetic is another, two releases share one
//! row, and their difference shows a clipped sum without any noise. So everything that a gradient depends on is
//! written into the checkpoint by name, and a continuation has to agree with all of it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Names and values that a run is bound to: the keys of its config, the hash of its data, its arithmetic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seal(BTreeMap<String, String>);

impl Seal {
    /// Binds the run to a value.
    pub fn bind(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.0.insert(key.into(), value.into());
    }

    /// The first key, in alphabetical order, whose value is not the same here and in `other`.
    pub fn difference(&self, other: &Seal) -> Option<SealDifference> {
        let key = self
            .0
            .keys()
            .chain(other.0.keys())
            .filter(|key| self.0.get(*key) != other.0.get(*key))
            .min()?;
        let value = |seal: &Seal| seal.0.get(key).cloned();
        Some(SealDifference { key: key.clone(), sealed: value(self), found: value(other) })
    }
}

/// A key under which a run and its checkpoint disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealDifference {
    /// The name of what differs.
    pub key: String,
    /// Its value when the checkpoint was written.
    pub sealed: Option<String>,
    /// Its value now.
    pub found: Option<String>,
}

impl fmt::Display for SealDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
        write!(
            f,
            "{} was {} when the run began and is {} now; the same noise on other gradients would reveal the data",
            self.key,
            word(&self.sealed),
            word(&self.found)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_differs_is_named() {
        let seal = |pairs: &[(&str, &str)]| {
            let mut seal = Seal::default();
            pairs.iter().for_each(|(key, value)| seal.bind(*key, *value));
            seal
        };
        let then = seal(&[("a", "1"), ("b", "2")]);
        assert_eq!(then.difference(&then.clone()), None);
        let named = |now: &[(&str, &str)]| then.difference(&seal(now)).unwrap().to_string();
        assert!(
            named(&[("a", "1"), ("b", "3")]).starts_with("b was 2 when the run began and is 3 now")
        );
        assert!(named(&[("a", "1")]).starts_with("b was 2 when the run began and is not set now"));
        assert!(named(&[("a", "1"), ("aa", "0"), ("b", "3")]).starts_with("aa was not set"));
    }
}
