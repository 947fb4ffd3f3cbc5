//! The data sets that are known by name.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::ValueEnum;

use super::{Dataset, Shape, cifar10, fashion_mnist, scene, textures};

/// The data sets that are known by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Ten classes of textures, made by the program itself: nothing to download
    Textures,
    /// Ten classes of photographs, 32 x 32 in colour
    Cifar10,
    /// Ten classes of clothes, 28 x 28 in grey
    FashionMnist,
}

impl Name {
    /// The name as it is written in a config and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Name::Textures => textures::NAME,
            Name::Cifar10 => cifar10::NAME,
            Name::FashionMnist => fashion_mnist::NAME,
        }
    }

    /// What its images look like, known before they are read.
    pub fn shape(self) -> Shape {
        match self {
            Name::Textures => textures::SHAPE,
            Name::Cifar10 => cifar10::SHAPE,
            Name::FashionMnist => fashion_mnist::SHAPE,
        }
    }

    /// The names of its labels.
    pub fn classes(self) -> Vec<String> {
        let classes: &[&str] = match self {
            Name::Textures => &scene::CLASSES,
            Name::Cifar10 => &cifar10::CLASSES,
            Name::FashionMnist => &fashion_mnist::CLASSES,
        };
        classes.iter().map(ToString::to_string).collect()
    }

    /// Reads the data set from `folder`, or draws it. A second for CIFAR-10, less for the others.
    ///
    /// # Errors
    /// If a file is missing or is not what it should be; the message names it and says what to do.
    pub fn load(self, folder: &Path) -> anyhow::Result<Dataset> {
        match self {
            Name::Textures => Ok(textures::Textures::default().draw()),
            Name::Cifar10 => cifar10::load(folder),
            Name::FashionMnist => fashion_mnist::load(folder),
        }
    }

    /// Checks the files in `folder` against their known sums and gives their paths; the embedded
    /// data set has none, and is drawn and compared.
    ///
    /// # Errors
    /// The first thing that is missing or different.
    pub fn verify(self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        match self {
            Name::Textures => {
                let data = textures::Textures::default().draw();
                let found = [data.train.md5(), data.test.md5()];
                let expected = textures::DEFAULT_MD5;
                ensure!(found == expected, "textures has MD5 {found:?}, not {expected:?}");
                Ok(vec![])
            }
            Name::Cifar10 => cifar10::verify(folder),
            Name::FashionMnist => fashion_mnist::verify(folder),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_and_classes_of_a_name_are_those_of_its_data() {
        let data = textures::Textures { train: 1, test: 1, seed: 0 }.draw();
        let name = Name::Textures;
        assert_eq!((data.shape, data.classes), (name.shape(), name.classes()));
        assert!(Name::value_variants().iter().all(|name| name.classes().len() == 10));
    }

    #[test]
    fn a_name_is_the_same_in_the_program_and_on_the_command_line() {
        for &name in Name::value_variants() {
            assert_eq!(name.to_possible_value().unwrap().get_name(), name.as_str());
        }
    }
}
