//! From pictures to features.

use half::f16;
use rayon::prelude::*;

use super::super::scattering::Scattering;
use super::super::{FeatureRows, Shape, Split};
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
        assert!(split.features().is_none(), "features are made of pictures");
        let Shape { height, width, .. } = self.pictures;
        let (len, plane_len) = (self.shape().numbers(), self.scattering.output_len());
        let mut rows = vec![f16::ZERO; split.len() * len];
        let memory = || {
            let numbers = vec![0.0; self.pictures.numbers()];
            (self.scattering.workspace(), numbers, vec![0.0; plane_len])
        };
        rows.par_chunks_exact_mut(len).enumerate().for_each_init(memory, |memory, (index, row)| {
            let (workspace, picture, coefficients) = memory;
            split.decode(&[index as u32], picture);
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
    /// # Panics
    /// As [`features`](Self::features).
    pub fn of(&self, split: Split, mirrored: bool) -> Split {
        let mirror = mirrored.then(|| self.features(&split, true));
        let rows = FeatureRows::new(self.features(&split, false), mirror, self.shape().numbers());
        split.with_features(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;
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
}
