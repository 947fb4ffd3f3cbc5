//! Which keys of `[data]` belong to which data set.

use super::{Data, DataName};
use crate::config::error::ConfigError;

use DataName::{Cifar10, Csv, FashionMnist, Folder, Idx, Npy, Textures};

impl Data {
    /// Refuses a key that the data set has no use for: it would be passed over in silence.
    pub(super) fn check_keys(&self) -> Result<(), ConfigError> {
        let files = &[Npy, Idx][..];
        let keys: [(&'static str, bool, &[DataName]); 18] = [
            ("test_share", self.test_share.is_some(), &[Folder, Npy, Idx, Csv]),
            ("classes", self.classes.is_some(), &[Folder, Npy, Idx, Csv]),
            ("size", self.size.is_some(), &[Folder, Npy, Idx]),
            ("channels", self.channels.is_some(), &[Folder, Npy]),
            ("layout", self.layout.is_some(), &[Npy]),
            ("dtype", self.dtype.is_some(), &[Npy]),
            ("features", self.vector_len().is_some(), &[Npy]),
            (
                "features",
                self.made_features().is_some(),
                &[Textures, Cifar10, FashionMnist, Folder, Npy, Idx],
            ),
            ("train_images", self.train_images.is_some(), files),
            ("train_labels", self.train_labels.is_some(), files),
            ("test_images", self.test_images.is_some(), files),
            ("test_labels", self.test_labels.is_some(), files),
            ("train_table", self.train_table.is_some(), &[Csv]),
            ("test_table", self.test_table.is_some(), &[Csv]),
            ("label", self.label.is_some(), &[Csv]),
            ("columns", self.columns.is_some(), &[Csv]),
            ("offset", self.offset.is_some(), &[Npy, Csv]),
            ("scale", self.scale.is_some(), &[Npy, Csv]),
        ];
        let tests = ["test_images", "test_labels", "test_table"];
        let beside = keys.iter().find(|(key, given, _)| *given && tests.contains(key));
        if let (Some((key, ..)), Some(_)) = (beside, self.test_share) {
            let reason = "is given beside data.test_share, which takes test examples from the training files: leave \
                          one of them out";
            return Err(ConfigError::Data { key, reason: reason.to_owned() });
        }
        let columns = self.columns.iter().flatten();
        let twice = columns
            .enumerate()
            .find(|(i, name)| self.columns.iter().flatten().take(*i).any(|before| before == *name));
        if let Some((_, name)) = twice {
            return Err(ConfigError::Data {
                key: "columns",
                reason: format!("has {name:?} twice"),
            });
        }
        let unused = keys.iter().find(|(_, given, of)| *given && !of.contains(&self.name));
        match unused {
            None => Ok(()),
            Some((key, _, of)) => {
                let of: Vec<&str> = of.iter().map(|name| name.as_str()).collect();
                let reason = format!("is for {}, not for {}", of.join(", "), self.name.as_str());
                Err(ConfigError::Data { key, reason })
            }
        }
    }
}
