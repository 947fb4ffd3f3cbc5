//! Features that a model sees in place of pixels. They are fixed before any example is read.
//!
//! ```text
//! constants     mean and deviation of every channel over the built-in textures
//! extraction    pictures -> features
//! cache         features in a file beside the data
//! -> Split with FeatureRows
//! ```
//!
//! The features of an example depend on that example alone, so what is guaranteed for a run on pixels is
//! guaranteed for one on features.

mod cache;
mod constants;
mod extraction;

use std::fmt;
use std::path::Path;

use anyhow::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use extraction::Extraction;

use super::scattering::Scattering;
use super::{Dataset, Shape, Split};

/// Most scales: the textures that give the constants have 32 pixels a side, two times 2 to the 4th.
const MOST_SCALES: usize = 4;

/// Most angles; more cost memory and tell nothing more of pictures of this size.
const MOST_ANGLES: usize = 16;

/// Features in place of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// Which features.
    pub kind: Kind,
    /// Sizes of wavelets, from 1 to 4: the sides of an image are divided by 2 to this power, and must be multiples of
    /// it and at least twice as long.
    #[serde(default = "two_scales")]
    pub scales: usize,
    /// Directions of wavelets, from 1 to 16.
    #[serde(default = "eight_angles")]
    pub angles: usize,
}

fn two_scales() -> usize {
    2
}

fn eight_angles() -> usize {
    8
}

/// The kinds of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Moduli of wavelet coefficients and of those of the moduli, averaged over 2 to the power of `scales` pixels.
    Scattering,
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind: Kind::Scattering, scales, angles } = self;
        write!(
            f,
            "scattering, {scales} scales, {angles} angles, normalized over the built-in textures"
        )
    }
}

/// Of which pictures features are made of the mirror image, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mirrored {
    /// Of those to train on.
    pub train: bool,
    /// Of those to be judged by.
    pub test: bool,
}

impl Features {
    /// What the features of a picture look like: the coefficients of the first plane, then of the next. 243 x 8 x 8
    /// for 3 x 32 x 32, 2 scales and 8 angles.
    pub fn shape(&self, pictures: Shape) -> Shape {
        let Shape { channels, height, width } = pictures;
        Shape {
            channels: channels * Scattering::coefficients(self.scales, self.angles),
            height: height >> self.scales,
            width: width >> self.scales,
        }
    }

    /// That examples of this shape have such features.
    ///
    /// # Errors
    /// What is wrong, and what to do, as it follows the name of the key.
    pub fn check(&self, pictures: Shape) -> Result<(), String> {
        let Self { scales, angles, .. } = *self;
        if pictures.is_vector() {
            return Err("are made of images, but the examples are vectors: leave it out".to_owned());
        }
        for (key, number, most) in
            [("scales", scales, MOST_SCALES), ("angles", angles, MOST_ANGLES)]
        {
            if !(1..=most).contains(&number) {
                return Err(format!("has {key} = {number}, which must be between 1 and {most}"));
            }
        }
        let Shape { height, width, .. } = pictures;
        if !Scattering::fits([height, width], scales) {
            let (step, least) = (1 << scales, 2 << scales);
            return Err(format!(
                "has scales = {scales}, for images whose sides are multiples of {step} and at least {least}, but they \
                 are {height} x {width}: take fewer scales, or another data.size where images are resized"
            ));
        }
        Ok(())
    }

    /// The data set with features: of all pictures, and of mirror images as asked for. They are read from the cache
    /// in `folder`, or made and kept there; without a folder they are only made, as fast as
    /// `bandroot bench features` says.
    ///
    /// Hashes of the splits stay those of the pictures.
    ///
    /// # Errors
    /// The first example whose features are too large for half precision.
    ///
    /// # Panics
    /// If the data set has features already, or the [check](Self::check) of its shape fails.
    pub fn of(
        &self,
        data: Dataset,
        folder: Option<&Path>,
        mirrored: Mirrored,
    ) -> anyhow::Result<Dataset> {
        let extraction = Extraction::new(*self, data.shape);
        let featured = |split: Split, mirrored: bool| match folder {
            Some(folder) => extraction.put(split, mirrored, |split, mirrored| {
                cache::read_or_make(folder, &extraction, split, mirrored)
            }),
            None => extraction.of(split, mirrored),
        };
        let Dataset { train, test, .. } = data;
        let train = featured(train, mirrored.train).context("the training examples")?;
        let test = featured(test, mirrored.test).context("the test examples")?;
        Ok(Dataset { shape: extraction.shape(), train, test, ..data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::textures::Textures;

    const FEATURES: Features = Features { kind: Kind::Scattering, scales: 2, angles: 8 };

    #[test]
    fn colour_and_grey_images_have_their_shapes_and_others_are_refused() {
        let shape = |channels, side| Shape { channels, height: side, width: side };
        assert_eq!(FEATURES.shape(shape(3, 32)), shape(243, 8));
        assert_eq!(FEATURES.shape(shape(1, 28)), shape(81, 7));
        assert_eq!((FEATURES.check(shape(3, 32)), FEATURES.check(shape(1, 28))), (Ok(()), Ok(())));
        for (features, shape, word) in [
            (FEATURES, Shape::vector(64), "vectors"),
            (FEATURES, shape(3, 30), "multiples of 4"),
            (FEATURES, shape(3, 4), "at least 8"),
            (Features { scales: 5, ..FEATURES }, shape(3, 64), "between 1 and 4"),
            (Features { angles: 0, ..FEATURES }, shape(3, 32), "angles = 0"),
        ] {
            let reason = features.check(shape).unwrap_err();
            assert!(reason.contains(word), "{reason}");
        }
    }

    #[test]
    fn a_data_set_with_features_keeps_its_hash_and_shows_features_of_either_side() {
        let data = Textures { train: 12, test: 3, seed: 5 }.draw();
        let mirrored = Mirrored { train: true, test: false };
        let featured = FEATURES.of(data.clone(), None, mirrored).unwrap();
        assert_eq!(featured.shape, Shape { channels: 243, height: 8, width: 8 });
        assert_eq!(featured.train.sha256(), data.train.sha256());
        let (train, test) = (featured.train.features().unwrap(), featured.test.features().unwrap());
        assert_eq!((train.has_mirrored(), test.has_mirrored()), (true, false));
        let mut seen = vec![f32::NAN; 2 * 15552];
        let mut mirror = seen.clone();
        featured.train.decode(&[7, 2], &mut seen);
        train.decode_mirrored(&[7, 2], &mut mirror);
        assert!(seen.iter().all(|x| x.is_finite()) && seen != mirror);
        let (fewer, held) = featured.train.hold_out(0.25).unwrap();
        assert_eq!((fewer.features().unwrap().len(), held.features().unwrap().len()), (9, 3));
    }
}
