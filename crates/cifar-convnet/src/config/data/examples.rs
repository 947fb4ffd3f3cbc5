//! How many examples there are, and the examples themselves.

use anyhow::ensure;

use super::{Data, DataName};
use crate::config::error::ConfigError;
use crate::data::features::Mirrored;
use crate::data::textures::Textures;
use crate::data::{Dataset, Name, share_of};

/// Most textures to draw: 3 GB of them.
const MOST_DRAWN: usize = 1_000_000;

impl Data {
    /// How many examples there will be to train on, without reading them.
    pub fn training_examples(&self) -> Result<usize, ConfigError> {
        self.check_keys()?;
        let drawn = self.examples.is_some() || self.test_examples.is_some();
        let all = match self.name.known() {
            Some(Name::Textures) => {
                let keys = [("examples", self.examples), ("test_examples", self.test_examples)];
                for (key, number) in keys {
                    let wrong = number.filter(|number| !(1..=MOST_DRAWN).contains(number));
                    if let Some(examples) = wrong {
                        return Err(ConfigError::Drawn { key, examples, most: MOST_DRAWN });
                    }
                }
                self.textures().train
            }
            Some(name) if drawn => return Err(ConfigError::Examples { name: name.as_str() }),
            Some(Name::Cifar10) => 50_000,
            Some(Name::FashionMnist) => 60_000,
            None => self.own_examples()?,
        };
        let Some(held_out) = self.holds_out().then(|| share_of(self.validation, all)) else {
            return Ok(all);
        };
        let held_out = held_out.ok_or(ConfigError::Validation { share: self.validation })?;
        Ok(all - held_out)
    }

    /// Those of one's own, without those to test on.
    fn own_examples(&self) -> Result<usize, ConfigError> {
        if self.test_examples.is_some() {
            return Err(ConfigError::Examples { name: self.name.as_str() });
        }
        let Some(all) = self.examples else {
            return Err(self.unknown("examples"));
        };
        let most = u32::MAX as usize;
        if !(1..=most).contains(&all) {
            return Err(ConfigError::Drawn { key: "examples", examples: all, most });
        }
        match self.test_share.map(|share| (share, share_of(share, all))) {
            None => Ok(all),
            Some((_, Some(test))) => Ok(all - test),
            Some((share, None)) => Err(ConfigError::Data {
                key: "test_share",
                reason: format!(
                    "must leave at least one of {all} examples in each part, but it is {share}"
                ),
            }),
        }
    }

    /// Whether the examples are published, so that a plain hash of them shows nothing.
    pub fn is_public(&self) -> bool {
        self.name.known().is_some()
    }

    /// Whether what the run is judged by comes from the files that are trained on: no guarantee covers it.
    pub fn judges_by_training_files(&self) -> bool {
        self.holds_out() || self.test_share.is_some()
    }

    /// Whether the run is judged by held-out training examples in place of the test examples.
    pub fn holds_out(&self) -> bool {
        self.validation != 0.0
    }

    /// How many training examples are held out; none if the config cannot be run.
    pub fn held_out_examples(&self) -> usize {
        let all = Self { validation: 0.0, ..self.clone() }.training_examples();
        let rest = self.training_examples();
        all.ok().zip(rest.ok()).map_or(0, |(all, rest)| all - rest)
    }

    fn textures(&self) -> Textures {
        let default = Textures::default();
        Textures {
            train: self.examples.unwrap_or(default.train),
            test: self.test_examples.unwrap_or(default.test),
            ..default
        }
    }

    /// The data set to train on: as [`load_with`](Self::load_with), with features of mirror images if training needs
    /// them.
    ///
    /// # Errors
    /// Those of [`load_with`](Self::load_with).
    pub fn load(&self) -> anyhow::Result<Dataset> {
        self.load_with(Mirrored { train: self.augmentation.flip, test: false })
    }

    /// Reads or draws the data set, and sees that it has as many examples as
    /// [`training_examples`](Self::training_examples) says. If a model sees features, they are made or read from
    /// their cache, those of mirror images only as asked for.
    ///
    /// # Errors
    /// The file and the record that cannot be used, or numbers that are not those of the config.
    pub fn load_with(&self, mirrored: Mirrored) -> anyhow::Result<Dataset> {
        let mut data = match (self.name, self.name.known()) {
            (DataName::Textures, _) => self.textures().draw(),
            (_, Some(name)) => name.load(&self.folder)?,
            (_, None) => self.own()?.load()?,
        };
        let shape = self.example_shape()?;
        let held_out = self.held_out_examples();
        let (found, expected) = (data.train.len(), self.training_examples()? + held_out);
        ensure!(
            data.shape == shape && found == expected,
            "{} has {found} training examples of {}, but the config says {expected} of {shape}; if the data have \
             changed, start a new run",
            data.name,
            data.shape
        );
        if let Some(features) = self.made_features() {
            self.shape()?;
            let mut mirrored = mirrored;
            if self.holds_out() {
                // Both parts come from the training examples, whose features are kept as a whole.
                data.test = data.test.emptied();
                mirrored.train |= mirrored.test;
            }
            // Textures have no folder.
            let folder = (self.name != DataName::Textures).then_some(self.folder.as_path());
            data = features.of(data, folder, mirrored)?;
        }
        if self.holds_out() { data.for_tuning(self.validation) } else { Ok(data) }
    }
}
