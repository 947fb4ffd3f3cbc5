//! What a data set is called where others read of it.

use super::{Data, DataName};

impl Data {
    /// Its name if it is known by one; else the format with the names of folder and file of the training examples.
    /// Never the path to them, which says something of a machine only.
    pub fn title(&self) -> String {
        let name = self.name.as_str();
        let file = match self.name {
            DataName::Npy | DataName::Idx => Some(self.file_names()[0][0].clone()),
            DataName::Csv => Some(self.table_names()[0].clone()),
            DataName::Folder => None,
            DataName::Textures | DataName::Cifar10 | DataName::FashionMnist => {
                return name.to_owned();
            }
        };
        let folder = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
        let folder = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let place = [Some(folder), file].into_iter().flatten().collect::<Vec<_>>().join("/");
        format!("{name} data in {place}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::canonical::tests::config;

    #[test]
    fn data_are_named_without_the_path_to_them() {
        let mut data = config("").data;
        assert_eq!(data.title(), "textures");
        data.folder = "/no/such/place/patients".into();
        data.name = DataName::Folder;
        assert_eq!(data.title(), "folder data in patients");
        data.name = DataName::Csv;
        assert_eq!(data.title(), "csv data in patients/train.csv");
        data.train_table = Some("2024.csv".to_owned());
        assert_eq!(data.title(), "csv data in patients/2024.csv");
        data.name = DataName::Npy;
        assert_eq!(data.title(), "npy data in patients/train_images.npy");
    }
}
