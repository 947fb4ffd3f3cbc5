//! Mean and deviation of every channel of features. They come from the built-in textures, not from the data that is
//! trained on: statistics of private examples would be a release that no guarantee covers.

use rayon::prelude::*;

use super::super::scattering::Scattering;
use super::super::textures::{SHAPE, Textures};
use super::super::{Shape, Split};

/// Textures that they are taken over.
const PICTURES: usize = 500;

/// Not the one of the data set `textures`, whose examples may be those that are trained on.
const SEED: u64 = 0x5ca7;

/// Mean and deviation of every channel of the features of images with this many planes.
///
/// Over 500 textures of 32 x 32 and all places in them; the size of an image hardly matters, as every coefficient
/// sees a few pixels. Three planes are those of colours; every plane of other images has the constants of grey
/// textures. Rounded to three digits of the deviation, so that machines whose last bits differ agree. 0.6 s
/// of one core for 2 scales and 8 angles.
pub(super) fn of_textures(scales: usize, angles: usize, channels: usize) -> Vec<[f32; 2]> {
    let textures = Textures { train: PICTURES, test: 0, seed: SEED }.draw().train;
    let scattering = Scattering::new([SHAPE.height, SHAPE.width], scales, angles);
    let colour = channels == SHAPE.channels;
    let planes = if colour { channels } else { 1 };
    let sums: Vec<Vec<[f64; 2]>> = (0..PICTURES as u32)
        .into_par_iter()
        .map_init(
            || (scattering.workspace(), vec![0.0; scattering.output_len()]),
            |(workspace, features), index| {
                let picture = picture(&textures, index, colour);
                let mut sums = Vec::new();
                for plane in picture.chunks_exact(SHAPE.height * SHAPE.width) {
                    scattering.transform(plane, workspace, features);
                    let [height, width] = scattering.output_size();
                    sums.extend(features.chunks_exact(height * width).map(moments));
                }
                sums
            },
        )
        .collect();
    let [height, width] = scattering.output_size();
    let count = (PICTURES * height * width) as f64;
    let coefficients = Scattering::coefficients(scales, angles);
    let constants = (0..planes * coefficients).map(|channel| {
        // One after the other: the order of a sum is part of its bits.
        let sum = sums.iter().fold([0.0; 2], |[a, b], s| [a + s[channel][0], b + s[channel][1]]);
        let mean = sum[0] / count;
        rounded(mean, (sum[1] / count - mean * mean).max(0.0).sqrt())
    });
    let constants: Vec<[f32; 2]> = constants.collect();
    if colour { constants } else { constants.repeat(channels) }
}

/// What a model sees of a texture, or of its grey.
fn picture(textures: &Split, index: u32, colour: bool) -> Vec<f32> {
    let Shape { height, width, .. } = SHAPE;
    let mut picture = vec![0.0; SHAPE.numbers()];
    textures.decode(&[index], &mut picture);
    if colour {
        return picture;
    }
    let plane = height * width;
    (0..plane)
        .map(|at| (picture[at] + picture[plane + at] + picture[2 * plane + at]) / 3.0)
        .collect()
}

/// The sum and the sum of squares.
fn moments(places: &[f32]) -> [f64; 2] {
    let numbers = || places.iter().map(|&x| f64::from(x));
    [numbers().sum(), numbers().map(|x| x * x).sum()]
}

/// Both to three digits of the deviation. A channel that never varies is left as it is.
fn rounded(mean: f64, deviation: f64) -> [f32; 2] {
    if deviation < 1e-6 {
        return [0.0, 1.0];
    }
    let step = 10_f64.powi(deviation.log10().floor() as i32 - 2);
    [mean, deviation].map(|x| ((x / step).round() * step) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_the_same_in_every_run_and_have_the_scales_of_the_orders() {
        let colour = of_textures(2, 8, 3);
        assert_eq!(colour, of_textures(2, 8, 3));
        assert_eq!(colour.len(), 243);
        let grey = of_textures(2, 8, 2);
        assert_eq!((grey.len(), &grey[..81]), (162, &grey[81..]));
        for constants in [&colour, &grey] {
            let deviation = |from: usize, to: usize| {
                constants[from..to].iter().map(|c| c[1]).sum::<f32>() / (to - from) as f32
            };
            let orders = [deviation(0, 1), deviation(1, 17), deviation(17, 81)];
            assert!(orders[0] > 3.0 * orders[1] && orders[1] > 2.0 * orders[2], "{orders:?}");
        }
        assert_eq!(rounded(0.123_456, 0.012_344), [0.1235, 0.0123]);
        assert_eq!(rounded(3.0, 0.0), [0.0, 1.0]);
    }
}
