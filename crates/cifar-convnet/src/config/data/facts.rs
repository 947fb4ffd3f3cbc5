//! What a plan needs to know of data of one's own, found where the config leaves it out.

use super::{Classes, Data, DataName, FeaturesKey, Size};
use crate::data::Shape;
use crate::data::own::Facts;

impl Data {
    /// Fills in the keys that are left out and stand in the listing of a folder or the header of a file: the
    /// number of examples, their shape, classes and columns. No example is read. They become part of the
    /// config, so that a plan can be checked later where the data are not.
    ///
    /// # Errors
    /// The folder or file that is missing or is no such file.
    pub fn complete(mut self) -> anyhow::Result<Self> {
        if self.check_keys().is_err() || !self.lacks_facts() {
            // What is wrong with it is said where it is used.
            return Ok(self);
        }
        let folder = &self.folder;
        let facts = match self.name {
            DataName::Folder => Facts::of_folder(folder, self.test_share)?,
            DataName::Npy => {
                let [[train, _], _] = self.file_names();
                Facts::of_array(folder, &train, self.layout)?
            }
            DataName::Idx => {
                let [[train, _], _] = self.file_names();
                Facts::of_grid(folder, &train)?
            }
            DataName::Csv => {
                let [train, _] = self.table_names();
                Facts::of_table(folder, &train, self.label_column())?
            }
            DataName::Textures | DataName::Cifar10 | DataName::FashionMnist => return Ok(self),
        };
        self.examples.get_or_insert(facts.examples);
        if self.classes.is_none() {
            self.classes = facts.classes.map(Classes::Names);
        }
        if self.columns.is_none() {
            self.columns = facts.columns;
        }
        self.dtype = self.dtype.or(facts.dtype);
        match facts.shape {
            Some(shape) if shape.is_vector() && self.size.is_none() => {
                self.features.get_or_insert(FeaturesKey::Numbers(shape.channels));
            }
            Some(Shape { channels, height, width }) if self.vector_len().is_none() => {
                self.size.get_or_insert(Size::Sides([height, width]));
                if self.name == DataName::Npy {
                    self.channels.get_or_insert(channels);
                }
            }
            _ => {}
        }
        Ok(self)
    }

    /// Whether the config says less than a plan needs.
    fn lacks_facts(&self) -> bool {
        let no_image = self.size.is_none() || self.channels.is_none();
        self.examples.is_none()
            || match self.name {
                DataName::Folder => self.classes.is_none(),
                DataName::Npy => self.dtype.is_none() || self.vector_len().is_none() && no_image,
                DataName::Idx => self.size.is_none(),
                DataName::Csv => self.columns.is_none(),
                DataName::Textures | DataName::Cifar10 | DataName::FashionMnist => false,
            }
    }
}
