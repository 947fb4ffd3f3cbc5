//! Batches of labelled images, and what is known of one beside its sum.

use std::ops::AddAssign;

use std::borrow::Cow;
use std::ops::Range;

/// Labelled images: every label has `views` images, say random crops, one after the other.
///
/// The views of an example are one privacy unit: their gradients are averaged before the mean is
/// clipped, so an example moves a clipped sum by at most the clip norm however many views it has.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// All pixels, image by image: `[channels][height][width]`.
    pub images: &'a [f32],
    /// One class per example.
    pub labels: &'a [u32],
    /// Images per label: 1 without augmentation.
    pub views: usize,
}

impl<'a> Batch<'a> {
    /// One image per label.
    pub fn new(images: &'a [f32], labels: &'a [u32]) -> Self {
        Self { images, labels, views: 1 }
    }

    /// The same with `views` images per label.
    pub fn with_views(self, views: usize) -> Self {
        Self { views, ..self }
    }

    /// Some of the examples, with images of `pixels` numbers.
    pub(crate) fn examples(self, range: Range<usize>, pixels: usize) -> Self {
        let size = self.views * pixels;
        let images = &self.images[range.start * size..range.end * size];
        Self { images, labels: &self.labels[range], ..self }
    }

    /// Parts of `examples` examples each, the last as short as what is left.
    pub(crate) fn chunks(self, examples: usize, pixels: usize) -> impl Iterator<Item = Self> {
        let images = self.images.chunks(examples * self.views * pixels);
        let parts = images.zip(self.labels.chunks(examples));
        parts.map(move |(images, labels)| Self { images, labels, ..self })
    }

    /// The label of every image.
    pub(crate) fn image_labels(self) -> Cow<'a, [u32]> {
        if self.views == 1 {
            return Cow::Borrowed(self.labels);
        }
        let repeated = |&label| std::iter::repeat_n(label, self.views);
        Cow::Owned(self.labels.iter().flat_map(repeated).collect())
    }
}

/// What a batch looked like. Depends on the data: not private.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BatchMetrics {
    /// Images in the batch: every view counts.
    pub images: usize,
    /// The sum of their losses before the step.
    pub loss_sum: f64,
    /// How many were classified correctly.
    pub correct: usize,
}

impl AddAssign for BatchMetrics {
    fn add_assign(&mut self, other: Self) {
        self.images += other.images;
        self.loss_sum += other.loss_sum;
        self.correct += other.correct;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_the_views_of_an_example_together() {
        let images: Vec<f32> = (0..30).map(|i| i as f32).collect();
        let batch = Batch::new(&images, &[7, 8, 9, 10, 11]).with_views(3);
        let parts: Vec<_> = batch.chunks(2, 2).map(|part| (part.images, part.labels)).collect();
        let expected =
            [(&images[..12], &[7, 8][..]), (&images[12..24], &[9, 10]), (&images[24..], &[11])];
        assert_eq!(parts, expected);
        let middle = batch.examples(1..3, 2);
        assert_eq!((middle.images, middle.labels), (&images[6..18], &[8, 9][..]));
        assert_eq!(*middle.image_labels(), [8, 8, 8, 9, 9, 9]);
    }
}
