//! Images of a data set as bytes, and views of them.

use super::kernels::gather::Cut;

/// Images of a data set as bytes.
#[derive(Debug, Clone, Copy)]
pub struct ByteImages<'a> {
    /// `[image][channel][row][column]`.
    pub bytes: &'a [u8],
    /// The class of every image.
    pub labels: &'a [u16],
    /// What a model sees of a byte.
    pub table: &'a [f32; 256],
    /// Of one image.
    pub channels: usize,
    /// Of one image.
    pub height: usize,
    /// Of one image.
    pub width: usize,
    /// Pixels around an image before a view is cut out of it.
    pub padding: usize,
    /// Whether they show the image reflected in its outermost pixels; byte 0 otherwise.
    pub reflect: bool,
}

/// Where a view lies: the example, how far down and to the right it begins in the padded image, and whether it is
/// mirrored then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewPlace {
    /// The example.
    pub example: u32,
    /// At most twice the padding.
    pub down: u16,
    /// At most twice the padding.
    pub right: u16,
    /// Whether it is mirrored, left to right.
    pub mirrored: bool,
}

/// A few images of a data set as the host has them.
pub(super) struct Sample {
    pub(super) examples: Vec<u32>,
    /// Of these examples, one after the other.
    pub(super) bytes: Vec<u8>,
    pub(super) labels: Vec<u32>,
    table: [f32; 256],
}

impl Sample {
    /// The first, the last, and one between them.
    pub(super) fn of(images: ByteImages<'_>, numbers: usize) -> Self {
        let count = images.labels.len();
        let mut examples = vec![0, count / 2, count.saturating_sub(1)];
        examples.dedup();
        examples.retain(|&example| example < count);
        let of = |&example: &usize| images.bytes[example * numbers..][..numbers].to_vec();
        Self {
            bytes: examples.iter().flat_map(of).collect(),
            labels: examples.iter().map(|&example| u32::from(images.labels[example])).collect(),
            examples: examples.into_iter().map(|example| example as u32).collect(),
            table: *images.table,
        }
    }

    /// A view of the `at`th of them, by its definition.
    pub(super) fn view(&self, at: usize, place: ViewPlace, cut: &Cut) -> Vec<f32> {
        let pixel = |at: usize, moved: u16, length: usize| {
            let at = (at + usize::from(moved)) as isize - cut.padding as isize;
            let last = length as isize - 1;
            match at {
                _ if (0..=last).contains(&at) => Some(at as usize),
                _ if !cut.reflect => None,
                _ if at < 0 => Some(-at as usize),
                _ => Some((2 * last - at) as usize),
            }
        };
        let (height, width) = (cut.height, cut.width);
        let number = |i: usize| {
            let (channel, y, x) = (i / (height * width), i / width % height, i % width);
            let x = if place.mirrored { width - 1 - x } else { x };
            let seen = pixel(y, place.down, height).zip(pixel(x, place.right, width));
            let byte = seen.map_or(0, |(row, column)| {
                self.bytes[at * cut.numbers() + (channel * height + row) * width + column]
            });
            self.table[usize::from(byte)]
        };
        (0..cut.numbers()).map(number).collect()
    }
}
