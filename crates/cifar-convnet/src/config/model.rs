//! What is trained: a model by name, or layer by layer.

use std::path::PathBuf;

use crate::convnet;
use dp_train::model::{
    Architecture, ArchitectureError, Distribution, Initialization, Layer, Shape,
};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::data::Data;
use super::error::ConfigError;

/// What is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Which model. The ConvNets fit themselves to the size of the images and to the number of classes;
    /// own stands for `layers`.
    pub name: ModelName,
    /// A model of one's own, one table per layer, from the example to a vector with one number per class:
    /// `{ layer = "conv2d", in_channels = 3, out_channels = 16, kernel = 3, stride = 1, padding = 1 }`,
    /// `{ layer = "linear", in_features = 256, out_features = 10 }`, `{ layer = "relu" }`,
    /// `{ layer = "tanh" }`, `{ layer = "max_pool2d", kernel = 2, stride = 2 }`,
    /// `{ layer = "avg_pool2d", kernel = 2, stride = 2 }`, `{ layer = "group_norm", groups = 4 }`,
    /// `{ layer = "flatten" }`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "layers")]
    #[schemars(with = "Option<Vec<serde_json::Value>>")]
    pub layers: Option<Vec<Layer>>,
    /// How the weights are drawn before the first step: as PyTorch does, or as He et al. do for ReLU, which keeps
    /// the signal from shrinking from layer to layer.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub init: Distribution,
    /// Whether the last linear layer starts at zero: all classes are equally likely then.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub zero_head: bool,
    /// The folder of a finished run whose parameters this one starts from, all but those of the last linear layer,
    /// which is made anew: the classes may be others, all other layers must be the same. A private run may not
    /// start from one that was trained on the data it trains on itself, private or not, unless these are the generated textures,
    /// which are nobody's. Data are the same by their name,
    /// or by the hash of all examples trained on: a copy under another name is not noticed if one example differs or
    /// another share is held out, so do not give it one. What that run was trained on, and by what it is covered, stands
    /// in the certificate: this run's guarantee does not cover it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_from: Option<PathBuf>,
}

/// A model by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ModelName {
    /// The ConvNet of the paper: six 3 x 3 convolutions with ReLU and a linear layer.
    Convnet,
    /// The same convolutions with tanh, and linear layers of 128 and 10.
    ConvnetTanh,
    /// Three 3 x 3 convolutions with ReLU and group normalization, and a linear layer: a fifth of the parameters.
    ConvnetSmall,
    /// The one that the layers describe.
    Own,
}

/// Reads the layers one by one, so that the one that is wrong is named.
fn layers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Layer>>, D::Error> {
    let entries = Vec::<toml::Value>::deserialize(deserializer)?;
    let layer = |(index, entry): (usize, toml::Value)| {
        entry.try_into::<Layer>().map_err(|error| {
            let reason = error.to_string().trim().replace('\n', " ");
            D::Error::custom(format!("model.layers, layer {index}: {reason}"))
        })
    };
    entries.into_iter().enumerate().map(layer).collect::<Result<_, _>>().map(Some)
}

impl Model {
    /// How its parameters begin.
    pub fn initialization(&self) -> Initialization {
        Initialization { distribution: self.init, zero_head: self.zero_head }
    }

    /// The layers of the model for the examples and classes of a data set.
    pub fn architecture(&self, data: &Data) -> Result<Architecture, ConfigError> {
        let (shape, classes) = (data.shape()?, data.classes()?.len());
        let crate::data::Shape { channels, height, width } = shape;
        let input = match shape.is_vector() {
            true => Shape::Vector { features: channels },
            false => Shape::Image { channels, height, width },
        };
        let for_images = match self.name {
            ModelName::Convnet => Some("convnet"),
            ModelName::ConvnetTanh => Some("convnet-tanh"),
            ModelName::ConvnetSmall => Some("convnet-small"),
            ModelName::Own => None,
        };
        if let Some(model) = for_images.filter(|_| shape.is_vector()) {
            let name = data.name.as_str();
            return Err(ConfigError::NoImages { model, name, features: channels, classes });
        }
        let wrong = |error: ArchitectureError| ConfigError::Layers(error);
        let architecture = match (self.name, &self.layers) {
            (ModelName::Convnet, None) => convnet::convnet_for(input, classes),
            (ModelName::ConvnetTanh, None) => convnet::convnet_tanh_for(input, classes),
            (ModelName::ConvnetSmall, None) => convnet::convnet_small_for(input, classes),
            (ModelName::Own, Some(layers)) => Architecture::new(input, layers.clone()),
            (ModelName::Own, None) => return Err(ConfigError::NoLayers),
            (_, Some(_)) => return Err(ConfigError::UnusedLayers),
        }
        .map_err(wrong)?;
        if self.zero_head && architecture.head().is_none() {
            return Err(ConfigError::NoHead);
        }
        match architecture.shapes().last() {
            Some(&Shape::Vector { features }) if features == classes => Ok(architecture),
            _ => Err(ConfigError::Logits { classes }),
        }
    }
}
