//! The key `data.features`: a table of features in place of pixels, or the numbers of a vector.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::Data;
use crate::config::error::ConfigError;
use crate::data::Shape;
use crate::data::features::{Extraction, Features};

/// What the key says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum FeaturesKey {
    /// Numbers of a vector, for npy.
    Numbers(usize),
    /// Features in place of pixels.
    Made(Features),
}

impl Data {
    /// The features that a model sees in place of pixels, if there are any.
    pub fn made_features(&self) -> Option<Features> {
        match self.features {
            Some(FeaturesKey::Made(features)) => Some(features),
            Some(FeaturesKey::Numbers(_)) | None => None,
        }
    }

    /// Numbers of a vector, for npy.
    pub(super) fn vector_len(&self) -> Option<usize> {
        match self.features {
            Some(FeaturesKey::Numbers(numbers)) => Some(numbers),
            Some(FeaturesKey::Made(_)) | None => None,
        }
    }

    /// What a model takes in of an example: the example, or its features.
    pub fn shape(&self) -> Result<Shape, ConfigError> {
        let examples = self.example_shape()?;
        let Some(features) = self.made_features() else { return Ok(examples) };
        let wrong = |reason| ConfigError::Data { key: "features", reason };
        features.check(examples).map_err(wrong)?;
        if self.augmentation.crop_padding > 0 {
            return Err(ConfigError::Data {
                key: "augmentation.crop_padding",
                reason: "moves pixels, but data.features are made of whole images: leave it out (flip is possible)"
                    .to_owned(),
            });
        }
        if self.augmentation.views > 1 && !self.augmentation.flip {
            return Err(ConfigError::Data {
                key: "augmentation.views",
                reason: "shows the same features several times, for as much more work: set augmentation.flip, or leave \
                         it out"
                    .to_owned(),
            });
        }
        Ok(features.shape(examples))
    }

    /// What makes the features of new examples, if a model sees features. 0.6 s of one core.
    ///
    /// # Errors
    /// If examples of this shape have no such features.
    pub fn extraction(&self) -> Result<Option<Extraction>, ConfigError> {
        self.shape()?;
        let examples = self.example_shape()?;
        Ok(self.made_features().map(|features| Extraction::new(features, examples)))
    }

    /// The same data as they are, without features.
    pub fn of_examples(self) -> Self {
        let features = self.features.filter(|key| matches!(key, FeaturesKey::Numbers(_)));
        Self { features, ..self }
    }
}

impl<'de> Deserialize<'de> for FeaturesKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrTable)
    }
}

struct NumberOrTable;

impl<'de> Visitor<'de> for NumberOrTable {
    type Value = FeaturesKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "data.features = { kind = \"scattering\", scales = 2, angles = 8 }, or the numbers of a vector for npy",
        )
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<FeaturesKey, E> {
        let numbers = usize::try_from(number);
        numbers
            .map(FeaturesKey::Numbers)
            .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<FeaturesKey, E> {
        let numbers = usize::try_from(number);
        numbers
            .map(FeaturesKey::Numbers)
            .map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FeaturesKey, A::Error> {
        Features::deserialize(MapAccessDeserializer::new(map)).map(FeaturesKey::Made)
    }
}

/// The keys of the table, which is all that the reference page and the check of keys look at.
impl JsonSchema for FeaturesKey {
    fn schema_name() -> Cow<'static, str> {
        "FeaturesKey".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Features::json_schema(generator)
    }
}
