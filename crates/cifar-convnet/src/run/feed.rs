//! The examples of a step as an engine sees them.

use dp_train::engine::Batch;
#[cfg(feature = "gpu")]
use dp_train::engine::{ByteImages, Shown, ViewPlace};

use crate::data::Split;
#[cfg(feature = "gpu")]
use crate::data::views::Padding;
use crate::data::views::Views;
#[cfg(feature = "gpu")]
use crate::data::{BYTE_NUMBERS, Numbers};

/// Decodes the images of a batch, or draws their views.
pub(super) struct Feed<'a> {
    split: &'a Split,
    views: Views,
    images: Vec<f32>,
    labels: Vec<u32>,
    #[cfg(feature = "gpu")]
    places: Vec<ViewPlace>,
}

impl<'a> Feed<'a> {
    pub(super) fn new(split: &'a Split, views: Views) -> Self {
        Self {
            split,
            views,
            images: Vec::new(),
            labels: Vec::new(),
            #[cfg(feature = "gpu")]
            places: Vec::new(),
        }
    }

    /// The images of the examples, all views of each, and their labels.
    pub(super) fn load(&mut self, step: usize, batch: &[u32]) -> Batch<'_> {
        let (views, count) = (&self.views, self.views.augmentation.views);
        let len = batch.len() * count * views.shape.numbers();
        self.images.resize(len, 0.0);
        if views.augmentation.is_off() {
            self.split.decode(batch, &mut self.images);
        } else {
            views.decode(self.split, step, batch, &mut self.images);
        }
        self.labels.clear();
        let labels = batch.iter().map(|&i| u32::from(self.split.labels()[i as usize]));
        self.labels.extend(labels);
        Batch::new(&self.images, &self.labels).with_views(count)
    }

    /// The whole data set, if it is one of bytes that a device can keep and cut views out of: features are not.
    #[cfg(feature = "gpu")]
    pub(super) fn stored(&self) -> Option<ByteImages<'a>> {
        let (views, split) = (&self.views, self.split);
        let Numbers::Bytes(bytes) = split.numbers() else { return None };
        // Places are kept in 12 bits.
        if split.features().is_some() || 2 * views.augmentation.crop_padding >= 1 << 12 {
            return None;
        }
        Some(ByteImages {
            bytes,
            labels: split.labels(),
            table: &BYTE_NUMBERS,
            channels: views.shape.channels,
            height: views.shape.height,
            width: views.shape.width,
            padding: views.augmentation.crop_padding,
            reflect: views.augmentation.padding == Padding::Reflect,
        })
    }

    /// The examples of some slots, all views of each, for a device that has the data set or not. What an empty slot shows
    /// means nothing.
    #[cfg(feature = "gpu")]
    pub(super) fn show(&mut self, step: usize, slots: &[Option<u32>]) -> Shown<'_> {
        let examples: Vec<u32> = slots.iter().map(|slot| slot.unwrap_or(0)).collect();
        if self.stored().is_none() {
            return Shown::Given(self.load(step, &examples));
        }
        let count = self.views.augmentation.views;
        let places = self.views.places(step, &examples).into_iter().enumerate();
        self.places.clear();
        self.places.extend(places.map(|(i, (down, right, mirrored))| ViewPlace {
            example: examples[i / count],
            down: down as u16,
            right: right as u16,
            mirrored,
        }));
        Shown::Stored(&self.places)
    }
}
