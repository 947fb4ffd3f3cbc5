//! Examples and their labels: held as bytes or as `f32`, decoded one batch at a time.

use std::borrow::Cow;

use anyhow::Context;
use dp_train::batches::Batches;
use dp_train::fingerprint::Fingerprint;
use dp_train::seeds::RunSeed;
use md5::{Digest, Md5};
use sha2::Sha256;

use super::{FeatureRows, Scaling, Shape, checksum};
use crate::bad_argument::BadArgument;

/// The numbers of all examples, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub enum Numbers {
    /// Pixels; a model sees `p / 127.5 - 1` of each.
    Bytes(Vec<u8>),
    /// As they stand in the files; a model sees them scaled.
    Floats(Vec<f32>, Scaling),
}

impl From<Vec<u8>> for Numbers {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl Numbers {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Floats(floats, _) => floats.len(),
        }
    }
}

/// `N` examples (images as NCHW, contiguous) and their labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    numbers: Numbers,
    labels: Vec<u16>,
    example_len: usize,
    /// What a model sees in place of the numbers.
    features: Option<FeatureRows>,
}

/// The seed from which validation examples are drawn; changing it changes every tuning result.
const VALIDATION_SEED: RunSeed = RunSeed(20);

/// The seed from which test examples are drawn where a data set has none of its own; changing it changes
/// every result with `data.test_share`.
const TEST_SEED: RunSeed = RunSeed(21);

impl Split {
    /// # Panics
    /// If the lengths do not agree.
    pub fn new(numbers: impl Into<Numbers>, labels: Vec<u16>, shape: Shape) -> Self {
        let numbers = numbers.into();
        assert_eq!(numbers.len(), labels.len() * shape.numbers(), "one label per example");
        if let Numbers::Floats(_, scaling) = &numbers {
            assert_eq!(scaling.channels(), shape.channels, "a scaling for every channel");
        }
        Self { numbers, labels, example_len: shape.numbers(), features: None }
    }

    /// The same examples, of which a model sees features in place of their numbers.
    ///
    /// # Panics
    /// If there are not as many features as examples.
    pub fn with_features(self, features: FeatureRows) -> Self {
        assert_eq!(features.len(), self.len(), "features of every example");
        Self { features: Some(features), ..self }
    }

    /// What a model sees in place of the numbers, if there is such a thing. Features of mirror images are here.
    pub fn features(&self) -> Option<&FeatureRows> {
        self.features.as_ref()
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
    pub fn labels(&self) -> &[u16] {
        &self.labels
    }

    /// The numbers of all examples.
    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// The bytes of one image; none if the examples are held as `f32`.
    ///
    /// # Panics
    /// If there is no such example.
    pub fn image(&self, index: usize) -> Option<&[u8]> {
        match &self.numbers {
            Numbers::Bytes(bytes) => Some(&bytes[index * self.example_len..][..self.example_len]),
            Numbers::Floats(..) => None,
        }
    }

    /// Writes the examples of `indices` one after the other to `out`: each byte `p` as `p / 127.5 - 1`,
    /// rounded once, so that 0 is exactly -1 and 255 exactly 1; each `f32` scaled. About 0.5 ms for 500
    /// images of CIFAR-10. Where there are features, they are written in place of all this.
    ///
    /// # Panics
    /// If an index is out of range or `out` has not exactly the length of these examples.
    pub fn decode(&self, indices: &[u32], out: &mut [f32]) {
        if let Some(features) = &self.features {
            return features.decode(indices, out);
        }
        let len = self.example_len;
        assert_eq!(out.len(), indices.len() * len, "room for every example");
        for (&index, out) in indices.iter().zip(out.chunks_exact_mut(len)) {
            let start = index as usize * len;
            match &self.numbers {
                Numbers::Bytes(bytes) => {
                    for (number, &byte) in out.iter_mut().zip(&bytes[start..start + len]) {
                        *number = decoded(byte);
                    }
                }
                Numbers::Floats(floats, scaling) => {
                    let plane = len / scaling.channels();
                    for (at, (number, &x)) in
                        out.iter_mut().zip(&floats[start..start + len]).enumerate()
                    {
                        *number = scaling.apply(at / plane, x);
                    }
                }
            }
        }
    }

    /// The MD5 of all numbers followed by all labels: says whether two machines hold the same data.
    pub fn md5(&self) -> String {
        let (numbers, labels) = (self.number_bytes(), self.label_bytes());
        checksum::hex(Md5::new().chain_update(numbers).chain_update(labels))
    }

    /// SHA-256 of the number of examples and of numbers in each, all labels and all numbers: says which
    /// examples a run was trained on.
    ///
    /// `f32` are hashed bit by bit as the files hold them; their scaling is in the config, which has a hash
    /// of its own.
    pub fn sha256(&self) -> Fingerprint {
        let mut hash = Sha256::new();
        let labels = self.label_bytes();
        let floats = matches!(self.numbers, Numbers::Floats(..));
        if floats || labels.len() > self.len() {
            // Certificates name the hash of bytes with one-byte labels, which has no mark. No number of
            // examples reads like this one.
            hash.update(b"bandroot split 2");
            hash.update([u8::from(floats), u8::from(labels.len() > self.len())]);
        }
        for number in [self.len(), self.example_len] {
            hash.update((number as u64).to_le_bytes());
        }
        hash.update(labels);
        hash.update(self.number_bytes());
        Fingerprint::from_bytes(hash.finalize().into())
    }

    /// One byte per label if all fit, else two.
    fn label_bytes(&self) -> Vec<u8> {
        let narrow: Option<Vec<u8>> =
            self.labels.iter().map(|&label| u8::try_from(label).ok()).collect();
        narrow.unwrap_or_else(|| self.labels.iter().flat_map(|l| l.to_le_bytes()).collect())
    }

    fn number_bytes(&self) -> Cow<'_, [u8]> {
        match &self.numbers {
            Numbers::Bytes(bytes) => Cow::Borrowed(bytes),
            Numbers::Floats(floats, _) => {
                Cow::Owned(floats.iter().flat_map(|number| number.to_le_bytes()).collect())
            }
        }
    }

    /// The examples without a share of them, and that share: for validation.
    pub(super) fn hold_out(&self, share: f64) -> anyhow::Result<(Split, Split)> {
        self.divide(share, "validation", VALIDATION_SEED)
    }

    /// The examples without a share of them, and that share: to test on.
    pub(super) fn without_test(&self, share: f64) -> anyhow::Result<(Split, Split)> {
        self.divide(share, "test_share", TEST_SEED)
    }

    fn divide(&self, share: f64, key: &str, seed: RunSeed) -> anyhow::Result<(Split, Split)> {
        let Some(count) = share_of(share, self.len()) else {
            let all = self.len();
            return Err(BadArgument(format!(
                "data.{key} must leave at least one of {all} examples in each part, but it is {share}"
            ))
            .into());
        };
        let all = u32::try_from(self.len()).context("too many examples")?;
        // The first batch of a random order is a random subset.
        let order = Batches::new(all, count, seed)?;
        let mut held = vec![false; self.len()];
        order.batch(0).iter().for_each(|&index| held[index as usize] = true);
        Ok((self.subset(|index| !held[index]), self.subset(|index| held[index])))
    }

    /// The same without any example.
    pub(crate) fn emptied(&self) -> Split {
        self.subset(|_| false)
    }

    /// The examples that are wanted, in their order.
    fn subset(&self, wanted: impl Fn(usize) -> bool) -> Split {
        let len = self.example_len;
        let indices = || (0..self.len()).filter(|&index| wanted(index));
        let numbers = match &self.numbers {
            Numbers::Bytes(bytes) => {
                Numbers::Bytes(indices().flat_map(|i| &bytes[i * len..][..len]).copied().collect())
            }
            Numbers::Floats(floats, scaling) => {
                let floats = indices().flat_map(|i| &floats[i * len..][..len]).copied().collect();
                Numbers::Floats(floats, scaling.clone())
            }
        };
        let labels = indices().map(|index| self.labels[index]).collect();
        let features = self.features.as_ref().map(|features| features.subset(indices()));
        Split { numbers, labels, example_len: len, features }
    }
}

/// How many examples a share of them is; none unless it leaves both parts some.
pub fn share_of(share: f64, examples: usize) -> Option<usize> {
    let count = (share * examples as f64).round();
    (count >= 1.0 && count < examples as f64).then_some(count as usize)
}

/// `byte / 127.5 - 1`, rounded once.
pub(super) const fn decoded(byte: u8) -> f32 {
    (2 * byte as i16 - 255) as f32 / 255.0
}

/// What a model sees of every byte.
#[cfg(feature = "gpu")]
pub const BYTE_NUMBERS: [f32; 256] = {
    let mut numbers = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        numbers[byte] = decoded(byte as u8);
        byte += 1;
    }
    numbers
};

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: Shape = Shape { channels: 1, height: 1, width: 2 };

    /// Example `i` is one image of two bytes, `i` and `255 - i`, with label `i % 10`.
    fn numbered(len: u8) -> Split {
        let images: Vec<u8> = (0..len).flat_map(|i| [i, 255 - i]).collect();
        let labels = (0..len).map(|i| u16::from(i % 10)).collect();
        Split::new(images, labels, PAIR)
    }

    /// The same numbers as `f32`.
    fn as_floats(split: &Split) -> Split {
        let Numbers::Bytes(bytes) = &split.numbers else { panic!("they are bytes") };
        let scaling = Scaling::new(&[127.5], &[127.5], 1).unwrap();
        let floats = bytes.iter().map(|&byte| f32::from(byte)).collect();
        Split::new(Numbers::Floats(floats, scaling), split.labels.clone(), PAIR)
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
        let mut scaled = vec![f32::NAN; 510];
        as_floats(&split).decode(&indices, &mut scaled);
        assert!(out.iter().zip(&scaled).all(|(a, b)| (a - b).abs() < 1e-6));
        assert_eq!((scaled[508], scaled[509]), (-1.0, 1.0));
    }

    #[test]
    fn every_channel_has_its_own_scaling() {
        let shape = Shape { channels: 2, height: 1, width: 2 };
        let scaling = Scaling::new(&[1.0, 10.0], &[2.0, 5.0], 2).unwrap();
        let split =
            Split::new(Numbers::Floats(vec![1.0, 3.0, 10.0, 20.0], scaling), vec![0], shape);
        let mut out = vec![0.0; 4];
        split.decode(&[0], &mut out);
        assert_eq!(out, [0.0, 1.0, 0.0, 2.0]);
    }

    #[test]
    fn one_label_or_one_number_makes_another_hash() {
        let split = numbered(9);
        let (mut label, mut pixel, mut wide) = (split.clone(), split.clone(), split.clone());
        label.labels[3] ^= 1;
        wide.labels[3] += 256;
        if let Numbers::Bytes(bytes) = &mut pixel.numbers {
            bytes[3] ^= 1;
        }
        let floats = as_floats(&split);
        let mut zero = floats.clone();
        if let Numbers::Floats(floats, _) = &mut zero.numbers {
            // Equal numbers, other bits.
            assert_eq!(floats[0], -0.0);
            floats[0] = -0.0;
        }
        let all = [&split, &label, &pixel, &wide, &floats, &zero, &numbered(8)];
        let hashes = all.map(Split::sha256);
        assert!((0..all.len()).all(|i| (0..i).all(|j| hashes[i] != hashes[j])));
        assert_eq!(split.clone().sha256(), split.sha256());
    }

    #[test]
    fn the_hash_of_bytes_is_the_one_that_certificates_name() {
        let mut preimage = vec![];
        preimage.extend(3_u64.to_le_bytes());
        preimage.extend(2_u64.to_le_bytes());
        preimage.extend([0, 1, 2, 0, 255, 1, 254, 2, 253]);
        assert_eq!(numbered(3).sha256(), Fingerprint::of_bytes(&preimage));
    }

    #[test]
    fn held_out_examples_are_a_fixed_random_fifth_and_nothing_is_lost() {
        let split = numbered(200);
        let (train, held) = split.hold_out(0.2).unwrap();
        assert_eq!((train.len(), held.len()), (160, 40));
        let number = |split: &Split, i: usize| split.image(i).unwrap()[0];
        let first = |split: &Split| (0..split.len()).map(|i| number(split, i)).collect::<Vec<_>>();
        let mut all = [first(&train), first(&held)].concat();
        assert_ne!(first(&held), (0..40).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..200).collect::<Vec<_>>());
        for part in [&train, &held] {
            let label = |i: usize| u16::from(number(part, i) % 10);
            assert!((0..part.len()).all(|i| part.labels()[i] == label(i)));
        }
        let (_, test) = split.without_test(0.2).unwrap();
        assert_ne!(first(&test), first(&held), "another seed");
        assert_eq!(split.hold_out(0.2).unwrap(), (train, held));
        let (floats, _) = as_floats(&split).hold_out(0.2).unwrap();
        assert_eq!(floats, as_floats(&split.hold_out(0.2).unwrap().0));
        for share in [0.0, 1.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(split.hold_out(share).is_err(), "{share}");
        }
    }
}
