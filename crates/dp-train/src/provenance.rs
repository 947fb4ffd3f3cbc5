//! Provenance: the runs that the parameters before the first step came from, and what their data are covered by.
//!
//! The guarantee of a run is for the examples that it trains on. Parameters that it starts from were trained on
//! others, or they are random. What those others were, and what protects them, stands in the certificate and in its
//! statement: nothing in this run does.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;

/// A run whose parameters another run started from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// SHA-256 of the file of its parameters.
    pub parameters_sha256: Fingerprint,
    /// What it was trained on, by name.
    pub data: String,
    /// SHA-256 of its training examples, as that run states it: salted where they are not public. None where the
    /// run stated none because the name says which they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_data_sha256: Option<Fingerprint>,
    /// What covers these examples.
    pub protection: Protection,
}

/// What covers the examples that an [`Origin`] was trained on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum Protection {
    /// A program made them: they are nobody's.
    Generated,
    /// Nothing.
    None,
    /// The certificate of that run, and only that.
    Certified {
        /// The epsilon of that run.
        epsilon: f64,
        /// Its delta.
        delta: f64,
        /// SHA-256 of its certificate, as it was when this run began.
        certificate_sha256: Fingerprint,
    },
}

impl Origin {
    /// Whether its numbers are such as a run can have.
    pub(crate) fn is_possible(&self) -> bool {
        let possible = match self.protection {
            Protection::Generated | Protection::None => true,
            Protection::Certified { epsilon, delta, .. } => {
                epsilon > 0.0 && epsilon.is_finite() && delta > 0.0 && delta < 1.0
            }
        };
        possible && !self.data.is_empty()
    }
}

/// `cifar10 (not private)`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.data)?;
        match self.protection {
            Protection::Generated => f.write_str("generated, nobody's data)"),
            Protection::None => f.write_str("not private)"),
            Protection::Certified { epsilon, delta, certificate_sha256 } => {
                let hash = certificate_sha256.to_string();
                write!(
                    f,
                    "({epsilon}, {delta:e})-differentially private by that run's own certificate, SHA-256 {})",
                    &hash[..16]
                )
            }
        }
    }
}

/// The origins in one phrase, nearest run first; none if a run started from random numbers.
pub fn named(provenance: &[Origin]) -> Option<String> {
    let origins: Vec<String> = provenance.iter().map(Origin::to_string).collect();
    (!origins.is_empty()).then(|| origins.join(", before that "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(data: &str, protection: Protection) -> Origin {
        let parameters_sha256 = Fingerprint::of_bytes(data.as_bytes());
        let data = data.to_owned();
        Origin { parameters_sha256, data, training_data_sha256: None, protection }
    }

    #[test]
    fn every_origin_is_named_with_what_covers_it() {
        assert_eq!(named(&[]), None);
        let certificate_sha256 = Fingerprint::of_bytes(b"certificate");
        let certified = Protection::Certified { epsilon: 2.0, delta: 1e-6, certificate_sha256 };
        let chain = [
            origin("faces", certified),
            origin("cifar10", Protection::None),
            origin("textures", Protection::Generated),
        ];
        let said = named(&chain).unwrap();
        let hash = &certificate_sha256.to_string()[..16];
        for words in [
            "faces ((2, 1e-6)-differentially private by that run's own certificate, SHA-256 ",
            hash,
            ", before that cifar10 (not private), before that textures (generated, nobody's data)",
        ] {
            assert!(said.contains(words), "no {words:?} in {said:?}");
        }
    }

    #[test]
    fn an_origin_survives_its_own_text_and_impossible_ones_are_seen() {
        let certificate_sha256 = Fingerprint::of_bytes(b"certificate");
        let certified =
            |epsilon, delta| Protection::Certified { epsilon, delta, certificate_sha256 };
        for protection in [Protection::Generated, Protection::None, certified(0.1, 1e-300)] {
            let origin = origin("data", protection);
            let text = serde_json::to_string(&origin).unwrap();
            assert_eq!(serde_json::from_str::<Origin>(&text).unwrap(), origin);
            assert!(origin.is_possible());
        }
        for (epsilon, delta) in [(0.0, 1e-5), (f64::INFINITY, 1e-5), (1.0, 0.0), (1.0, 1.0)] {
            assert!(!origin("data", certified(epsilon, delta)).is_possible());
        }
        assert!(!origin("", Protection::None).is_possible());
        let more = r#"{"parameters_sha256": "", "data": "x", "protection": {"kind": "some"}}"#;
        assert!(serde_json::from_str::<Origin>(more).is_err());
    }
}
