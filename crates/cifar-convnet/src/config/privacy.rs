//! What is guaranteed: a table with epsilon and delta, or the word "none".

use std::borrow::Cow;
use std::fmt;

use dp_train::Neighbouring;
use dp_train::plan::{Accountant, Sampling};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What is guaranteed, if anything. There is no default: who wants no privacy has to say so.
#[derive(Debug, Clone, PartialEq)]
pub enum Privacy {
    /// `privacy = "none"`: training without noise.
    None,
    /// `[privacy]` with its keys.
    Guaranteed(Guarantee),
}

impl Privacy {
    /// Runs on the same data among which this one is chosen, itself included.
    pub fn trials(&self) -> u64 {
        match self {
            Privacy::None => 1,
            Privacy::Guaranteed(guarantee) => guarantee.trials,
        }
    }

    /// Whether batches have to stay secret.
    pub fn has_secret_batches(&self) -> bool {
        match self {
            Privacy::None => false,
            Privacy::Guaranteed(guarantee) => guarantee.sampling != Sampling::FixedOrder,
        }
    }

    /// The seed that stands in place of a secret noise key, if there is one.
    pub fn noise_seed(&self) -> Option<u64> {
        match self {
            Privacy::None => None,
            Privacy::Guaranteed(guarantee) => guarantee.noise_seed,
        }
    }
}

/// What is guaranteed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Guarantee {
    /// The privacy loss of the whole training.
    pub epsilon: f64,
    /// The probability with which it may be exceeded; below one in the number of training examples.
    pub delta: f64,
    /// Which data sets are told apart at most that well: those in which one example's gradients are zero,
    /// while the number of examples is public and the others keep their places, or those in which one
    /// example is another one, which needs twice the noise. `"add-remove"` is an older word for
    /// `"zero-out"`.
    #[serde(default, serialize_with = "super::kebab_case")]
    pub neighbouring: Neighbouring,
    /// How batches are made. `"fixed-order"`: all of one size, in an order that may be known. `"balls-in-bins"`: every
    /// example in a batch of its own drawing, from a secret key, the same in every epoch. Not knowing which one hides
    /// it further, so less noise is needed: by an eighth for long runs, more for short bands and for one epoch.
    /// `"poisson"`: every step takes each example with one probability, for method identity: DP-SGD as other libraries
    /// account for it. `"cyclic-poisson"`: the same from one of as many groups in turn as the strategy has bands. Where
    /// batches are secret they are of `training.batch_size` examples on average, and what tells them apart must not be
    /// published: the loss or the time of a single step, and all that an exact number of examples can be read from. A run
    /// writes none of it unless `training.record = "all"` asks for it. A step takes time in proportion to the examples in its
    /// batch: whoever can time single steps learns their number, so train where nobody can. For zero-out neighbours.
    #[serde(
        default,
        skip_serializing_if = "super::is_default",
        serialize_with = "super::kebab_case"
    )]
    pub sampling: Sampling,
    /// How the noise for secret batches is found: by a bound that needs no coins, or verified by sampling, which takes
    /// some ten seconds and finds up to a tenth less noise.
    #[serde(
        default,
        skip_serializing_if = "super::is_default",
        serialize_with = "super::kebab_case"
    )]
    pub accountant: Accountant,
    /// The gradient of every example is scaled down to at most this norm.
    pub clip_norm: f64,
    /// Draws the noise from this seed instead of a secret key: the run is then reproducible and not
    /// private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_seed: Option<u64>,
    /// Runs on the same data among which this one is chosen, itself included; a sweep adds its own to those that its
    /// base names. It is stated in the certificate, whose epsilon is that of one run: choosing by what runs show,
    /// also on held-out examples, is not covered by it.
    #[serde(default = "one_run")]
    pub trials: u64,
    /// The law of the number of runs that this one is chosen from. Written by `bandroot sweep --random-stopping` into the
    /// configs of its runs, not by hand: `bandroot verify` holds the certificate to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_stopping: Option<RandomStopping>,
}

/// A truncated negative binomial law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomStopping {
    /// The mean number of runs.
    pub mean: f64,
    /// Its shape: 0 is the logarithmic law, 1 the geometric one.
    pub shape: f64,
}

fn one_run() -> u64 {
    1
}

/// A word for zero-out that promises more than it means; configs from before may have it.
pub(super) const OLD_ZERO_OUT: &str = "add-remove";

impl Serialize for Privacy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Privacy::None => serializer.serialize_str("none"),
            Privacy::Guaranteed(guarantee) => guarantee.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Privacy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NoneOrTable)
    }
}

struct NoneOrTable;

impl<'de> Visitor<'de> for NoneOrTable {
    type Value = Privacy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("privacy = \"none\", or a section [privacy] with epsilon, delta and clip_norm")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Privacy, E> {
        match word {
            "none" => Ok(Privacy::None),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Privacy, A::Error> {
        Guarantee::deserialize(MapAccessDeserializer::new(map)).map(Privacy::Guaranteed)
    }
}

/// The keys of the section, which is all that the reference page and the check of keys look at.
impl JsonSchema for Privacy {
    fn schema_name() -> Cow<'static, str> {
        "Privacy".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Guarantee::json_schema(generator)
    }
}
