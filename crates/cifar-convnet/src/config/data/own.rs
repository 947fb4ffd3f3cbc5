//! Data of one's own as the config describes it: its shape, its classes and its files.

use std::collections::BTreeSet;

use super::{Classes, Constants, Data, DataName, Size};
use crate::config::error::ConfigError;
use crate::data::own::inputs::Taken;
use crate::data::own::{Columns, Dtype, Files, Form, Own, Pair};
use crate::data::{Scaling, Shape};

/// Most classes: a label has two bytes.
const MOST_CLASSES: usize = 1 << 16;

/// The longest side of an image to train on.
const LONGEST_SIDE: usize = 4096;

/// Most channels of an image, and most numbers of a vector.
const MOST_CHANNELS: usize = 1 << 20;

fn wrong(key: &'static str, reason: impl Into<String>) -> ConfigError {
    ConfigError::Data { key, reason: reason.into() }
}

impl Data {
    /// A key that is left out although nothing else can say it.
    pub(super) fn unknown(&self, key: &'static str) -> ConfigError {
        wrong(key, format!("is missing: {} needs it", self.name.as_str()))
    }

    /// What an example looks like.
    pub fn example_shape(&self) -> Result<Shape, ConfigError> {
        self.check_keys()?;
        let shape = match (self.name.known(), self.name) {
            (Some(name), _) => return Ok(name.shape()),
            (None, DataName::Csv) => {
                let columns = self.columns.as_ref().ok_or_else(|| self.unknown("columns"))?;
                Shape::vector(columns.len())
            }
            (None, name) => match (self.vector_len(), self.size) {
                (Some(features), None) => Shape::vector(features),
                (Some(_), Some(_)) => {
                    return Err(wrong(
                        "features",
                        "is for vectors and data.size for images: give one",
                    ));
                }
                (None, None) => return Err(self.unknown("size")),
                (None, Some(size)) => {
                    let [height, width] = match size {
                        Size::Side(side) => [side; 2],
                        Size::Sides(sides) => sides,
                    };
                    let usual = if name == DataName::Folder { 3 } else { 1 };
                    Shape { channels: self.channels.unwrap_or(usual), height, width }
                }
            },
        };
        let sides = [shape.height, shape.width];
        if let Some(side) = sides.iter().find(|side| !(1..=LONGEST_SIDE).contains(side)) {
            return Err(wrong(
                "size",
                format!("must be between 1 and {LONGEST_SIDE}, but it is {side}"),
            ));
        }
        if !(1..=MOST_CHANNELS).contains(&shape.channels) {
            let key = match (self.name, shape.is_vector()) {
                (DataName::Csv, _) => "columns",
                (_, true) => "features",
                (_, false) => "channels",
            };
            return Err(wrong(
                key,
                format!("gives {} numbers, which is no model's input", shape.channels),
            ));
        }
        if self.name == DataName::Folder && ![1, 3].contains(&shape.channels) {
            return Err(wrong("channels", "must be 1 for grey or 3 for colour"));
        }
        Ok(shape)
    }

    /// The names of the labels 0, 1, ...
    pub fn classes(&self) -> Result<Vec<String>, ConfigError> {
        if let Some(name) = self.name.known() {
            return Ok(name.classes());
        }
        let (count, names) = match &self.classes {
            None => return Err(self.unknown("classes")),
            Some(Classes::Number(_)) if self.name == DataName::Folder => {
                return Err(wrong("classes", "are the names of class folders, not their number"));
            }
            Some(Classes::Number(count)) => (*count, None),
            Some(Classes::Names(names)) => (names.len(), Some(names)),
        };
        if !(2..=MOST_CLASSES).contains(&count) {
            return Err(wrong(
                "classes",
                format!("must be between 2 and {MOST_CLASSES}, but there are {count}"),
            ));
        }
        let names = names.cloned().unwrap_or_else(|| (0..count).map(|i| i.to_string()).collect());
        let different: BTreeSet<&String> = names.iter().collect();
        if different.len() < count {
            return Err(wrong("classes", "has a name twice"));
        }
        Ok(names)
    }

    /// How `f32` are scaled; none if the examples are bytes.
    fn scaling(&self) -> Result<Option<Scaling>, ConfigError> {
        let floats = match self.name {
            DataName::Csv => true,
            DataName::Npy => self.dtype.ok_or_else(|| self.unknown("dtype"))? == Dtype::F32,
            _ => false,
        };
        if !floats {
            if self.offset.is_some() || self.scale.is_some() {
                let reason = "is for float32; a byte p is always seen as p / 127.5 - 1";
                return Err(wrong("scale", reason));
            }
            return Ok(None);
        }
        let constants = |given: &Option<Constants>, usual: f64| {
            given.as_ref().map_or(vec![usual], |given| given.as_slice().to_vec())
        };
        let (offset, scale) = (constants(&self.offset, 0.0), constants(&self.scale, 1.0));
        Scaling::new(&offset, &scale, self.example_shape()?.channels)
            .map(Some)
            .map_err(|error| ConfigError::Scaling(error.to_string()))
    }

    /// The files of examples and labels, to train on and to test on.
    pub(super) fn file_names(&self) -> [Pair; 2] {
        let usual = match self.name {
            DataName::Idx => [
                ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"],
                ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"],
            ],
            _ => [["train_images.npy", "train_labels.npy"], ["test_images.npy", "test_labels.npy"]],
        };
        let name =
            |given: &Option<String>, usual: &str| given.as_deref().unwrap_or(usual).to_owned();
        let [[a, b], [c, d]] = usual;
        [
            [name(&self.train_images, a), name(&self.train_labels, b)],
            [name(&self.test_images, c), name(&self.test_labels, d)],
        ]
    }

    /// The tables to train on and to test on.
    pub(super) fn table_names(&self) -> [String; 2] {
        let name =
            |given: &Option<String>, usual: &str| given.as_deref().unwrap_or(usual).to_owned();
        [name(&self.train_table, "train.csv"), name(&self.test_table, "test.csv")]
    }

    /// The column of the label.
    pub(super) fn label_column(&self) -> &str {
        self.label.as_deref().unwrap_or("label")
    }

    fn table_columns(&self) -> Result<Columns, ConfigError> {
        let features = self.columns.clone().ok_or_else(|| self.unknown("columns"))?;
        let label = self.label_column().to_owned();
        if features.contains(&label) {
            return Err(wrong("columns", format!("has the column of the label, {label:?}")));
        }
        let scaling = self.scaling()?.ok_or_else(|| self.unknown("scale"))?;
        Ok(Columns { label, features, scaling })
    }

    /// The files that new examples are read from.
    pub fn taken(&self) -> Result<Taken, ConfigError> {
        if self.name == DataName::Csv {
            return self.table_columns().map(Taken::Table);
        }
        let (shape, scaling) = (self.example_shape()?, self.scaling()?);
        Ok(Taken::Arrays(Form { shape, layout: self.layout, scaling }))
    }

    /// The data set of one's own that the config describes.
    pub(super) fn own(&self) -> Result<Own, ConfigError> {
        let names = self.file_names();
        let files = match (self.name, self.taken()?) {
            (_, Taken::Table(columns)) => Files::Tables { names: self.table_names(), columns },
            (DataName::Npy, Taken::Arrays(form)) => Files::Arrays { names, form },
            (DataName::Idx, _) => Files::Grids { names },
            _ => Files::Folder,
        };
        Ok(Own {
            name: self.name.as_str(),
            folder: self.folder.clone(),
            files,
            shape: self.example_shape()?,
            classes: self.classes()?,
            test_share: self.test_share,
        })
    }

    /// That everything that is known before an example is read can be used.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.training_examples()?;
        self.shape()?;
        if self.name.known().is_none() {
            self.own()?;
        }
        Ok(())
    }
}
