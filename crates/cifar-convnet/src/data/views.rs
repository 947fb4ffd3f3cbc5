//! Random views of images: cut out at a random place of a padded image, and mirrored.
//!
//! A view depends on the run's seed, the step, the example and the number of the copy, and on nothing
//! else: not on threads, not on what was drawn before, not on whether the run was continued.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::Rng;
use dp_train::seeds::{Purpose, RunSeed};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::split::decoded;
use super::{Numbers, Shape, Split};

/// Random views of the training images. The gradients of an example's views are averaged before they
/// are clipped: the example stays the unit of privacy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Augmentation {
    /// Pixels around an image before it is cut back to its size at a random place.
    #[serde(default)]
    pub crop_padding: usize,
    /// What these pixels show: black if left out, or the image reflected in its outermost pixels, which are not repeated,
    /// as PyTorch's reflect does.
    #[serde(default, skip_serializing_if = "Padding::is_black")]
    pub padding: Padding,
    /// Whether every second view is mirrored, left to right.
    #[serde(default)]
    pub flip: bool,
    /// Views of an example in every step.
    #[serde(default = "one_view")]
    pub views: usize,
}

/// What lies outside of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Padding {
    /// Black, the number 0.
    #[default]
    Black,
    /// The image reflected in its outermost pixels, which are not repeated.
    Reflect,
}

impl Padding {
    /// Whether it is the usual one, which no config names.
    pub fn is_black(&self) -> bool {
        *self == Padding::Black
    }

    /// The pixel of a line of `len` that is seen at `at - before`; none for black. At most `len - 1` pixels lie before
    /// the line and after it.
    fn pixel(self, at: usize, before: usize, len: usize) -> Option<usize> {
        match (at.checked_sub(before), self) {
            (Some(inside), _) if inside < len => Some(inside),
            (_, Padding::Black) => None,
            (None, Padding::Reflect) => Some(before - at),
            (Some(behind), Padding::Reflect) => Some(2 * (len - 1) - behind),
        }
    }
}

impl Augmentation {
    /// Whether every example is shown once and as it is.
    pub fn is_off(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Augmentation {
    fn default() -> Self {
        Self { crop_padding: 0, padding: Padding::Black, flip: false, views: 1 }
    }
}

fn one_view() -> usize {
    1
}

/// Draws the views of a run.
#[derive(Debug, Clone, Copy)]
pub struct Views {
    /// How views differ.
    pub augmentation: Augmentation,
    /// Of one image.
    pub shape: Shape,
    /// Of the run.
    pub seed: RunSeed,
}

impl Views {
    /// Writes all views of every image one after the other, decoded as by
    /// [`Split::decode`]; what lies outside of an image is as its padding says. About 20 ms for 4,000 views of CIFAR-10.
    /// Features of a mirrored view are those of the mirrored picture; the place of a view is for pixels alone.
    ///
    /// # Panics
    /// If an index is out of range, `out` has not exactly the length of these views, or a view is mirrored and there are
    /// no features of mirror images.
    pub fn decode(&self, split: &Split, step: usize, indices: &[u32], out: &mut [f32]) {
        let count = self.augmentation.views;
        let len = self.shape.numbers();
        assert_eq!(out.len(), indices.len() * count * len, "room for every view");
        let mut random = self.seed.stream_at(Purpose::Augmentation, step as u64, 0);
        for (&index, views) in indices.iter().zip(out.chunks_exact_mut(count * len)) {
            for (copy, view) in views.chunks_exact_mut(len).enumerate() {
                let place = self.place(&mut random, index, copy);
                self.view(split, index as usize, place, view);
            }
        }
    }

    /// Where the views of every image lie, one after the other: how far down and to the right each begins in the padded
    /// image, and whether it is mirrored then.
    #[cfg(feature = "gpu")]
    pub fn places(&self, step: usize, indices: &[u32]) -> Vec<(usize, usize, bool)> {
        let mut random = self.seed.stream_at(Purpose::Augmentation, step as u64, 0);
        let copies = indices
            .iter()
            .flat_map(|&index| (0..self.augmentation.views).map(move |copy| (index, copy)));
        copies.map(|(index, copy)| self.place(&mut random, index, copy)).collect()
    }

    /// Where one view lies.
    fn place(&self, random: &mut ChaCha20Rng, index: u32, copy: usize) -> (usize, usize, bool) {
        let places = 2 * self.augmentation.crop_padding as u64 + 1;
        random.set_block_pos((u64::from(index) << 32) | copy as u64);
        // A word scaled to the places; the bias of at most 2^-24 does not matter.
        let mut place = || ((u64::from(random.next_u32()) * places) >> 32) as usize;
        let (down, right) = (place(), place());
        (down, right, self.augmentation.flip && random.next_u32() >> 31 == 1)
    }

    /// One view of one image.
    fn view(&self, split: &Split, index: usize, place: (usize, usize, bool), out: &mut [f32]) {
        if let Some(features) = split.features() {
            let index = [index as u32];
            return match place {
                (_, _, true) => features.decode_mirrored(&index, out),
                (_, _, false) => features.decode(&index, out),
            };
        }
        let (start, plane) = (index * self.shape.numbers(), self.shape.height * self.shape.width);
        match split.numbers() {
            Numbers::Bytes(bytes) => self.cut(place, out, |channel, at| {
                decoded(at.map_or(0, |at| bytes[start + channel * plane + at]))
            }),
            Numbers::Floats(floats, scaling) => self.cut(place, out, |channel, at| {
                let x = at.map_or(0.0, |at| floats[start + channel * plane + at]);
                scaling.apply(channel, x)
            }),
        }
    }

    /// The image moved up by `down - padding` and left by `right - padding`, then mirrored. `pixel` gives
    /// what a model sees at a place of a channel, or outside.
    fn cut(
        &self,
        (down, right, mirrored): (usize, usize, bool),
        out: &mut [f32],
        pixel: impl Fn(usize, Option<usize>) -> f32,
    ) {
        let (height, width) = (self.shape.height, self.shape.width);
        let Augmentation { crop_padding, padding, .. } = self.augmentation;
        for (channel, out) in out.chunks_exact_mut(height * width).enumerate() {
            for (y, out) in out.chunks_exact_mut(width).enumerate() {
                let row = padding.pixel(y + down, crop_padding, height);
                for (x, out) in out.iter_mut().enumerate() {
                    let x = if mirrored { width - 1 - x } else { x };
                    let column = padding.pixel(x + right, crop_padding, width);
                    let at = row.zip(column).map(|(row, column)| row * width + column);
                    *out = pixel(channel, at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { channels: 2, height: 4, width: 5 };

    fn split() -> Split {
        Split::new((1..=120).collect::<Vec<u8>>(), vec![0, 1, 2], SHAPE)
    }

    fn views(crop_padding: usize, flip: bool, count: usize) -> Views {
        let padding = Padding::Black;
        let augmentation = Augmentation { crop_padding, padding, flip, views: count };
        Views { augmentation, shape: SHAPE, seed: RunSeed(9) }
    }

    #[test]
    fn without_padding_and_mirror_a_view_is_the_image() {
        let (mut seen, mut plain) = (vec![0.0; 6 * 40], vec![0.0; 6 * 40]);
        views(0, false, 2).decode(&split(), 3, &[2, 0, 1], &mut seen);
        split().decode(&[2, 2, 0, 0, 1, 1], &mut plain);
        assert_eq!(seen, plain);
    }

    #[test]
    fn a_view_is_a_moved_image_and_all_places_come_up() {
        // By hand: down 1, right 3 with padding 2 moves up by -1 and left by 1.
        let mut view = vec![9.0; 40];
        views(2, true, 1).view(&split(), 0, (1, 3, false), &mut view);
        let byte = |plane: usize, y: usize, x: usize| decoded(view_byte(plane, y, x));
        fn view_byte(plane: usize, y: usize, x: usize) -> u8 {
            if y == 0 || x == 4 { 0 } else { (1 + plane * 20 + (y - 1) * 5 + x + 1) as u8 }
        }
        for (i, value) in view.iter().enumerate() {
            assert_eq!(*value, byte(i / 20, i / 5 % 4, i % 5), "pixel {i}");
        }
        let mut mirrored = vec![9.0; 40];
        views(2, true, 1).view(&split(), 0, (1, 3, true), &mut mirrored);
        for (line, mirrored) in view.chunks(5).zip(mirrored.chunks(5)) {
            assert!(line.iter().eq(mirrored.iter().rev()));
        }
        // 18 views are possible; 600 draws miss one of them with probability below 3e-14.
        let views = views(1, true, 200);
        let mut drawn = vec![0.0; 3 * 200 * 40];
        views.decode(&split(), 0, &[1, 1, 1], &mut drawn);
        let (first, rest) = drawn.split_at(200 * 40);
        assert_eq!(first, &rest[..200 * 40], "the address says all");
        let mut seen: Vec<Vec<u32>> = Vec::new();
        for step in 0..3 {
            views.decode(&split(), step, &[1, 0, 2], &mut drawn);
            seen.extend(
                drawn[..200 * 40].chunks(40).map(|v| v.iter().map(|x| x.to_bits()).collect()),
            );
        }
        assert_ne!(seen[..200], seen[200..400], "every step draws anew");
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 18);
    }

    #[test]
    fn reflected_pixels_are_those_of_pytorch() {
        // torch.nn.functional.pad([1, 2, 3, 4], (3, 3), mode="reflect") is [4, 3, 2, 1, 2, 3, 4, 3, 2, 1].
        let line: Vec<_> =
            (0..10).map(|at| Padding::Reflect.pixel(at, 3, 4).unwrap() + 1).collect();
        assert_eq!(line, [4, 3, 2, 1, 2, 3, 4, 3, 2, 1]);
        let black: Vec<_> = (0..6).map(|at| Padding::Black.pixel(at, 1, 4)).collect();
        assert_eq!(black, [None, Some(0), Some(1), Some(2), Some(3), None]);
        assert_eq!(Padding::Reflect.pixel(0, 0, 1), Some(0));
    }

    #[test]
    fn a_reflected_view_has_no_black_and_is_the_padded_image_cut_at_its_place() {
        let mut reflected = views(3, true, 1);
        reflected.augmentation.padding = Padding::Reflect;
        let image = |plane: usize, y: usize, x: usize| (1 + plane * 20 + y * 5 + x) as u8;
        // By hand: rows and columns of the padded image, three more on every side.
        let (rows, columns) = ([3, 2, 1, 0, 1, 2, 3, 2, 1, 0], [3, 2, 1, 0, 1, 2, 3, 4, 3, 2, 1]);
        for (down, right) in [(0, 0), (3, 3), (6, 6), (1, 5), (6, 0)] {
            let mut view = vec![9.0; 40];
            reflected.view(&split(), 0, (down, right, false), &mut view);
            for (i, value) in view.iter().enumerate() {
                let (plane, y, x) = (i / 20, i / 5 % 4, i % 5);
                let expected = decoded(image(plane, rows[y + down], columns[x + right]));
                assert_eq!(*value, expected, "pixel {i} at {down}, {right}");
            }
            let mut mirrored = vec![9.0; 40];
            reflected.view(&split(), 0, (down, right, true), &mut mirrored);
            for (line, mirrored) in view.chunks(5).zip(mirrored.chunks(5)) {
                assert!(line.iter().eq(mirrored.iter().rev()));
            }
        }
    }

    #[test]
    fn views_of_floats_are_those_of_bytes_with_black_as_zero() {
        let Numbers::Bytes(bytes) = split().numbers().clone() else { panic!("they are bytes") };
        let scaling = super::super::Scaling::new(&[127.5], &[127.5], 2).unwrap();
        let floats = bytes.iter().map(|&byte| f32::from(byte)).collect();
        let floats = Split::new(Numbers::Floats(floats, scaling), vec![0, 1, 2], SHAPE);
        let (mut one, mut other) = (vec![0.0; 9 * 40], vec![9.0; 9 * 40]);
        views(2, true, 3).decode(&split(), 5, &[0, 1, 2], &mut one);
        views(2, true, 3).decode(&floats, 5, &[0, 1, 2], &mut other);
        assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-6));
        assert!(other.contains(&-1.0), "some of it is outside");
    }

    #[test]
    fn a_view_does_not_depend_on_the_batch_it_is_in() {
        let views = views(2, true, 3);
        let (mut whole, mut alone) = (vec![0.0; 9 * 40], vec![0.0; 3 * 40]);
        views.decode(&split(), 5, &[0, 1, 2], &mut whole);
        for index in 0..3 {
            views.decode(&split(), 5, &[index], &mut alone);
            assert_eq!(alone, whole[index as usize * 120..][..120]);
        }
    }
}
