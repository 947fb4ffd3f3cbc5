//! Labelled pictures: held as bytes, decoded to `f32` one batch at a time.

pub mod textures;
mod scene;
pub mod cifar10;
pub mod fashion_mnist;
mod idx;
pub mod checksum;
pub mod views;

#[cfg(test)]
mod fuzz;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::ValueEnum;
use dp_train::batches::Batches;
use dp_train::fingerprint::Fingerprint;
use dp_train::seeds::RunSeed;
use md5::{Digest, Md5};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::bad_argument::BadArgument;

/// The data sets that are known by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// Ten classes of drawings, made by the program itself: nothing to download
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
            Name::Textures => "textures",
            Name::Cifar10 => "cifar10",
            Name::FashionMnist => "fashion-mnist",
        }
    }

    /// What its pictures look like, known before they are read.
    pub fn shape(self) -> Shape {
        match self {
            Name::Textures => textures::SHAPE,
            Name::Cifar10 => cifar10::SHAPE,
            Name::FashionMnist => fashion_mnist::SHAPE,
        }
    }

    /// The names of its labels.
    pub fn classes(self) -> &'static [&'static str] {
        match self {
            Name::Textures => &scene::CLASSES,
            Name::Cifar10 => &cifar10::CLASSES,
            Name::FashionMnist => &fashion_mnist::CLASSES,
        }
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

/// What a picture looks like in memory: `channels` planes of `height` rows of `width` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Planes: 3 for colour, 1 for grey.
    pub channels: usize,
    /// Rows of a plane.
    pub height: usize,
    /// Bytes of a row.
    pub width: usize,
}

impl Shape {
    /// Numbers in one image.
    pub fn numbers(self) -> usize {
        self.channels * self.height * self.width
    }
}

/// Pictures to learn from and pictures to be judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// Which one.
    pub name: Name,
    /// Of every image.
    pub shape: Shape,
    /// The names of the labels 0, 1, ...
    pub classes: &'static [&'static str],
    /// To learn from.
    pub train: Split,
    /// To be judged by.
    pub test: Split,
}

impl Dataset {
    /// The data set to tune on: `share` of the training examples are held out and take the place of
    /// the test examples, which are dropped, so that no choice can depend on them.
    ///
    /// Which examples are held out follows from their number and the share only: the same in every
    /// run. Copies the training examples once.
    ///
    /// # Errors
    /// A [`BadArgument`] unless both parts get at least one example.
    pub fn for_tuning(self, share: f64) -> anyhow::Result<Self> {
        let (train, validation) = self.train.hold_out(share)?;
        Ok(Self { train, test: validation, ..self })
    }
}

/// `N` pictures (NCHW, contiguous) and their labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    images: Vec<u8>,
    labels: Vec<u8>,
    image_len: usize,
}

/// The seed from which validation examples are drawn; changing it changes every tuning result.
const VALIDATION_SEED: RunSeed = RunSeed(20);

impl Split {
    /// # Panics
    /// If the lengths do not agree.
    pub fn new(images: Vec<u8>, labels: Vec<u8>, shape: Shape) -> Self {
        assert_eq!(images.len(), labels.len() * shape.numbers(), "one label per picture");
        Self { images, labels, image_len: shape.numbers() }
    }

    /// The number of examples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// All labels.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// The bytes of one picture.
    ///
    /// # Panics
    /// If there is no such example.
    pub fn image(&self, index: usize) -> &[u8] {
        &self.images[index * self.image_len..][..self.image_len]
    }

    /// Writes the pictures of `indices` one after the other to `out`, each byte `p` as `p / 127.5 - 1`,
    /// rounded once: 0 is exactly -1, and 255 exactly 1. About 0.5 ms for 500 pictures of CIFAR-10.
    ///
    /// # Panics
    /// If an index is out of range or `out` has not exactly the length of these pictures.
    pub fn decode(&self, indices: &[u32], out: &mut [f32]) {
        assert_eq!(out.len(), indices.len() * self.image_len, "room for every picture");
        for (&index, out) in indices.iter().zip(out.chunks_exact_mut(self.image_len)) {
            for (number, &byte) in out.iter_mut().zip(self.image(index as usize)) {
                *number = decoded(byte);
            }
        }
    }

    /// The MD5 of all pictures followed by all labels: says whether two machines hold the same data.
    pub fn md5(&self) -> String {
        checksum::hex(Md5::new().chain_update(&self.images).chain_update(&self.labels))
    }

    /// SHA-256 of the number of examples and of numbers in each, all labels and all pixels: says which
    /// examples a run was trained on.
    pub fn sha256(&self) -> Fingerprint {
        let mut hash = Sha256::new();
        for number in [self.len(), self.image_len] {
            hash.update((number as u64).to_le_bytes());
        }
        hash.update(&self.labels);
        hash.update(&self.images);
        Fingerprint::from_bytes(hash.finalize().into())
    }

    fn hold_out(&self, share: f64) -> anyhow::Result<(Split, Split)> {
        let count = (share * self.len() as f64).round();
        if !(count >= 1.0 && count < self.len() as f64) {
            let all = self.len();
            return Err(BadArgument(format!(
                "the validation share must leave both parts of {all} examples some, but it is {share}"
            ))
            .into());
        }
        let all = u32::try_from(self.len()).context("too many examples")?;
        // The first batch of a random order is a random subset.
        let order = Batches::new(all, count as usize, VALIDATION_SEED)?;
        let mut held = vec![false; self.len()];
        order.batch(0).iter().for_each(|&index| held[index as usize] = true);
        Ok((self.subset(|index| !held[index]), self.subset(|index| held[index])))
    }

    /// The examples that are wanted, in their order.
    fn subset(&self, wanted: impl Fn(usize) -> bool) -> Split {
        let mut subset = Split { images: vec![], labels: vec![], image_len: self.image_len };
        for index in (0..self.len()).filter(|&index| wanted(index)) {
            subset.images.extend_from_slice(self.image(index));
            subset.labels.push(self.labels[index]);
        }
        subset
    }
}

/// `byte / 127.5 - 1`, rounded once.
fn decoded(byte: u8) -> f32 {
    f32::from(2 * i16::from(byte) - 255) / 255.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example `i` is one picture of two bytes, `i` and `255 - i`, with label `i % 10`.
    fn numbered(len: u8) -> Split {
        let images = (0..len).flat_map(|i| [i, 255 - i]).collect();
        let labels = (0..len).map(|i| i % 10).collect();
        Split::new(images, labels, Shape { channels: 1, height: 1, width: 2 })
    }

    #[test]
    fn decoding_rounds_once_and_follows_the_indices() {
        let split = numbered(255);
        let indices: Vec<u32> = (0..255).rev().collect();
        let mut out = vec![f32::NAN; 510];
        split.decode(&indices, &mut out);
        for (&index, pair) in indices.iter().zip(out.chunks_exact(2)) {
            // In f64 the error is far below half a unit of f32, and no value is near a tie.
            let exact = |byte: u32| (f64::from(byte) / 127.5 - 1.0) as f32;
            assert_eq!(pair, [exact(index), exact(255 - index)]);
        }
        assert_eq!((out[508], out[509]), (-1.0, 1.0));
    }

    #[test]
    fn one_label_or_one_pixel_makes_another_hash() {
        let split = numbered(9);
        let (mut label, mut pixel) = (split.clone(), split.clone());
        label.labels[3] ^= 1;
        pixel.images[3] ^= 1;
        let hashes = [split.sha256(), label.sha256(), pixel.sha256(), numbered(8).sha256()];
        assert!((0..4).all(|i| (0..i).all(|j| hashes[i] != hashes[j])));
        assert_eq!(split.clone().sha256(), split.sha256());
    }

    #[test]
    fn held_out_examples_are_a_fixed_random_fifth_and_nothing_is_lost() {
        let split = numbered(200);
        let (train, held) = split.hold_out(0.2).unwrap();
        assert_eq!((train.len(), held.len()), (160, 40));
        let first = |split: &Split| (0..split.len()).map(|i| split.image(i)[0]).collect::<Vec<_>>();
        let mut all = [first(&train), first(&held)].concat();
        assert_ne!(first(&held), (0..40).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..200).collect::<Vec<_>>());
        for part in [&train, &held] {
            assert!((0..part.len()).all(|i| part.labels()[i] == part.image(i)[0] % 10));
        }
        assert_eq!(split.hold_out(0.2).unwrap(), (train, held));
        for share in [0.0, 1.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(split.hold_out(share).is_err(), "{share}");
        }
    }

    #[test]
    fn the_shape_and_classes_of_a_name_are_those_of_its_data() {
        let data = textures::Textures { train: 1, test: 1, seed: 0 }.draw();
        assert_eq!((data.shape, data.classes), (data.name.shape(), data.name.classes()));
        assert!(Name::value_variants().iter().all(|name| name.classes().len() == 10));
    }

    #[test]
    fn a_name_is_the_same_in_configs_and_on_the_command_line() {
        for &name in Name::value_variants() {
            assert_eq!(name.to_possible_value().unwrap().get_name(), name.as_str());
            assert_eq!(serde_json::to_value(name).unwrap(), name.as_str());
        }
    }
}
