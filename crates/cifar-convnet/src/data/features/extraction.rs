//! From pictures to features.

use anyhow::bail;
use half::f16;
use rayon::prelude::*;

use super::super::scattering::Scattering;
use super::super::{FeatureRows, Numbers, Shape, Split};
use super::{Features, constants};

/// Makes features of pictures of one shape.
pub struct Extraction {
    features: Features,
    pictures: Shape,
    scattering: Scattering,
    /// Mean and deviation of every channel.
    constants: Vec<[f32; 2]>,
}

impl Extraction {
    /// Makes the filters and the constants. 0.6 s of one core for 2 scales and 8 angles.
    ///
    /// # Panics
    /// If the [check](Features::check) of the shape fails.
    pub fn new(features: Features, pictures: Shape) -> Self {
        let Features { scales, angles, .. } = features;
        Self {
            features,
            pictures,
            scattering: Scattering::new([pictures.height, pictures.width], scales, angles),
            constants: constants::of_textures(scales, angles, pictures.channels),
        }
    }

    /// The shape of the features.
    pub fn shape(&self) -> Shape {
        self.features.shape(self.pictures)
    }

    /// Of what they are made.
    pub(super) fn pictures(&self) -> Shape {
        self.pictures
    }

    pub(super) fn kind(&self) -> Features {
        self.features
    }

    pub(super) fn constants(&self) -> &[[f32; 2]] {
        &self.constants
    }

    /// The features of all examples, or of their mirror images, left to right: of what a model would see of a
    /// picture, less the mean and over the deviation of the channel, rounded once to half precision. On all cores.
    ///
    /// # Panics
    /// If the examples are of another shape or have features already.
    pub fn features(&self, split: &Split, mirrored: bool) -> Vec<f16> {
        let all: Vec<u32> = (0..split.len() as u32).collect();
        self.features_of(split, &all, mirrored)
    }

    /// The same of some examples.
    pub(super) fn features_of(&self, split: &Split, indices: &[u32], mirrored: bool) -> Vec<f16> {
        assert!(split.features().is_none(), "features are made of pictures");
        let Shape { height, width, .. } = self.pictures;
        let (len, plane_len) = (self.shape().numbers(), self.scattering.output_len());
        let mut rows = vec![f16::ZERO; indices.len() * len];
        let memory = || {
            let numbers = vec![0.0; self.pictures.numbers()];
            (self.scattering.workspace(), numbers, vec![0.0; plane_len])
        };
        let pairs = rows.par_chunks_exact_mut(len).zip(indices);
        pairs.for_each_init(memory, |memory, (row, &index)| {
            let (workspace, picture, coefficients) = memory;
            split.decode(&[index], picture);
            if mirrored {
                picture.chunks_exact_mut(width).for_each(<[f32]>::reverse);
            }
            let planes = picture.chunks_exact(height * width);
            let per_plane = self.constants.chunks(self.constants.len() / self.pictures.channels);
            for ((plane, constants), row) in
                planes.zip(per_plane).zip(row.chunks_exact_mut(plane_len))
            {
                self.scattering.transform(plane, workspace, coefficients);
                let places = plane_len / constants.len();
                let channels = coefficients.chunks_exact(places).zip(row.chunks_exact_mut(places));
                for ((coefficients, row), [mean, deviation]) in channels.zip(constants) {
                    for (row, x) in row.iter_mut().zip(coefficients) {
                        *row = f16::from_f32((x - mean) / deviation);
                    }
                }
            }
        });
        rows
    }

    /// The examples with their features, and with those of their mirror images if asked for; nothing is kept in a
    /// file.
    ///
    /// # Errors
    /// The first example whose features are too large for half precision.
    ///
    /// # Panics
    /// As [`features`](Self::features).
    pub fn of(&self, split: Split, mirrored: bool) -> anyhow::Result<Split> {
        self.put(split, mirrored, |split, mirrored| self.features(split, mirrored))
    }

    /// As [`of`](Self::of), with what makes the features of a split or has them.
    pub(super) fn put(
        &self,
        split: Split,
        mirrored: bool,
        made: impl Fn(&Split, bool) -> Vec<f16>,
    ) -> anyhow::Result<Split> {
        let len = self.shape().numbers();
        let plain = made(&split, false);
        let mirrored = mirrored.then(|| made(&split, true));
        // Bytes are far from the limit; numbers of one's own may be as large as they like.
        let large = |rows: &Vec<f16>| rows.par_iter().position_any(|x| !x.is_finite());
        if let Numbers::Floats(..) = split.numbers()
            && let Some(at) = large(&plain).or_else(|| mirrored.as_ref().and_then(large))
        {
            bail!(
                "example {} (counted from 0) has features above {}, which half precision cannot hold: bring the \
                 numbers down by data.scale",
                at / len,
                f16::MAX
            );
        }
        Ok(split.with_features(FeatureRows::new(plain, mirrored, len)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;
    use crate::data::Scaling;
    use crate::data::textures::Textures;

    #[test]
    fn features_of_textures_are_normal_and_those_of_a_mirrored_picture_are_its_own() {
        let data = Textures { train: 400, test: 0, seed: 3 }.draw();
        let features = Features { kind: Kind::Scattering, scales: 2, angles: 8 };
        let extraction = Extraction::new(features, data.shape);
        let plain: Vec<f32> =
            extraction.features(&data.train, false).iter().map(|x| x.to_f32()).collect();
        let count = plain.len() as f32;
        let mean = plain.iter().sum::<f32>() / count;
        let deviation = (plain.iter().map(|x| x * x).sum::<f32>() / count).sqrt();
        // Both are 0 and 1 over the 500 that gave the constants; pictures vary much.
        assert!(mean.abs() < 0.15 && (deviation - 1.0).abs() < 0.2, "{mean} {deviation}");
        let mut bytes = data.train.image(7).unwrap().to_vec();
        bytes.chunks_exact_mut(32).for_each(<[u8]>::reverse);
        let mirror = Split::new(bytes, vec![0], data.shape);
        let len = extraction.shape().numbers();
        let all = extraction.features(&data.train, true);
        assert_eq!(all[7 * len..8 * len], extraction.features(&mirror, false));
    }

    #[test]
    fn an_example_with_features_beyond_half_precision_is_named() {
        let features = Features { kind: Kind::Scattering, scales: 1, angles: 2 };
        let shape = Shape { channels: 1, height: 4, width: 4 };
        let extraction = Extraction::new(features, shape);
        let split = |largest: f32| {
            let mut numbers = vec![0.5; 3 * 16];
            numbers[20] = largest;
            let scaling = Scaling::new(&[0.0], &[1.0], 1).unwrap();
            Split::new(Numbers::Floats(numbers, scaling), vec![0; 3], shape)
        };
        assert!(extraction.of(split(1e3), true).is_ok());
        for mirrored in [false, true] {
            let refused = extraction.of(split(1e8), mirrored).unwrap_err().to_string();
            assert!(refused.contains("example 1 ") && refused.contains("data.scale"), "{refused}");
        }
    }
}
