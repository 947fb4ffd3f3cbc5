//! What a step is shown: views of images that are on the device, or images from the host.

use cubecl::client::Client;

use super::buffers::{Buffer, cubes};
use super::engine::GpuEngine;
use super::images::{ByteImages, Sample, ViewPlace};
use super::kernels::arrival::{STAMP_BITS, arrive};
use super::kernels::gather::{ABSENT, Cut, gather};
use super::ledger::Ledger;
use super::pass::{spread, units};
use crate::engine::batch::Batch;
use crate::engine::error::EngineError;
use crate::engine::sizes::Sizes;

/// What a step is shown: one example per slot, all of its views.
#[derive(Debug, Clone, Copy)]
pub enum Shown<'a> {
    /// Views of images that are on the device; those of an empty slot mean nothing.
    Stored(&'a [ViewPlace]),
    /// Images and labels; those of an empty slot mean nothing.
    Given(Batch<'a>),
}

/// The data set on the device.
pub(super) struct Stored {
    /// The images, in as many buffers as the device needs for them, and how many are in each.
    shards: Vec<Buffer>,
    shard: usize,
    labels: Buffer,
    table: Buffer,
    pub(super) cut: Cut,
    examples: usize,
    /// What the host has kept of it, to compare views with.
    pub(super) sample: Sample,
}

/// That what is shown is what is in the slots.
pub(super) fn check(
    stored: Option<&Stored>,
    engine: &GpuEngine,
    slots: &[Option<u32>],
    shown: Shown<'_>,
    views: usize,
) -> Result<(), EngineError> {
    match shown {
        Shown::Given(batch) => {
            engine.check_batch(batch)?;
            if slots.len() != batch.labels.len() {
                return Err(EngineError::Shown { slots: slots.len() });
            }
        }
        Shown::Stored(places) => {
            let examples = stored.map_or(0, |stored| stored.examples);
            let most = stored.map_or(0, |stored| 2 * stored.cut.padding);
            let wrong = |(slot, places): (&Option<u32>, &[ViewPlace])| {
                slot.is_some_and(|example| {
                    example as usize >= examples
                        || places.iter().any(|place| {
                            let [down, right] = [place.down, place.right].map(usize::from);
                            place.example != example || down.max(right) > most
                        })
                })
            };
            if slots.is_empty() {
                return Ok(());
            }
            let whole = views > 0 && places.len() == slots.len() * views;
            if !whole || slots.iter().zip(places.chunks(views)).any(wrong) {
                return Err(EngineError::Shown { slots: slots.len() });
            }
        }
    }
    Ok(())
}

/// The images and the labels of all slots.
pub(super) fn show(
    stored: Option<&Stored>,
    engine: &mut GpuEngine,
    ledger: &Ledger,
    slots: &[Option<u32>],
    shown: Shown<'_>,
    views: usize,
) -> Result<(Buffer, Buffer), String> {
    let images = slots.len() * views;
    engine.place(images, views)?;
    let client = engine.client.clone();
    match (shown, stored) {
        (Shown::Stored(places), Some(stored)) => {
            let words = |(i, place): (usize, &ViewPlace)| {
                let example = slots[i / views].map_or(ABSENT, |_| place.example);
                let moved = u32::from(place.down) | u32::from(place.right) << 12;
                [example, moved | u32::from(place.mirrored) << 31]
            };
            let stamp = next_stamp(engine);
            let words: Vec<u32> =
                places.iter().enumerate().flat_map(words).chain([stamp]).collect();
            let length = images * stored.cut.numbers();
            let (input, labels) = (engine.input()?, Buffer::new(&client, slots.len()));
            let places = engine.upload(&words);
            for (i, shard) in stored.shards.iter().enumerate() {
                ledger.start(|ledger| {
                    gather::launch(
                        &client,
                        spread(cubes(length)),
                        units(),
                        ledger,
                        shard.argument(),
                        stored.labels.argument(),
                        stored.table.argument(),
                        places.argument(),
                        input.argument(),
                        labels.argument(),
                        length as u32,
                        (i * stored.shard) as u32,
                        stored.shard as u32,
                        stamp,
                        Cut { views, ..stored.cut },
                    );
                });
            }
            Ok((input, labels))
        }
        (Shown::Given(batch), _) => {
            let label = |(slot, &label): (&Option<u32>, &u32)| slot.map_or(ABSENT, |_| label);
            let labels: Vec<u32> = slots.iter().zip(batch.labels).map(label).collect();
            Ok(send(engine, ledger, batch.images, labels))
        }
        (Shown::Stored(_), None) => Err("there are no images on the device".into()),
    }
}

/// A stamp that no other upload to the engine has, and that no memory has which was never written.
fn next_stamp(engine: &GpuEngine) -> u32 {
    engine.traffic().uploads as u32 + 1
}

/// Images and labels from the host, on the device, where it is noticed if they do not arrive.
pub(super) fn send(
    engine: &mut GpuEngine,
    ledger: &Ledger,
    images: &[f32],
    mut labels: Vec<u32>,
) -> (Buffer, Buffer) {
    let [numbers, examples] = [images.len(), labels.len()];
    let stamp = next_stamp(engine);
    labels.push(stamp);
    let images = [images, &[(stamp & STAMP_BITS) as f32]].concat();
    let (images, labels) = (engine.upload(&images), engine.upload(&labels));
    ledger.start(|ledger| {
        arrive::launch(
            &engine.client,
            spread(1),
            units(),
            ledger,
            images.argument(),
            labels.argument(),
            numbers as u32,
            examples as u32,
            stamp,
        );
    });
    (images, labels)
}

impl Stored {
    pub(super) fn new(client: &Client, images: ByteImages<'_>) -> Self {
        let ByteImages { bytes, labels, table, channels, height, width, padding, reflect } = images;
        let word = |four: &[u8]| {
            let mut word = [0; 4];
            word[..four.len()].copy_from_slice(four);
            u32::from_le_bytes(word)
        };
        let cut = Cut { channels, height, width, padding, reflect, views: 1 };
        // Kernels count bytes in 32 bits, however large a buffer may be.
        let most = (client.properties().memory.max_page_size as usize).min(u32::MAX as usize);
        let shard = (most / cut.numbers()).clamp(1, labels.len().max(1));
        let shards = bytes.chunks(shard * cut.numbers()).map(|bytes| {
            let words: Vec<u32> = bytes.chunks(4).map(word).collect();
            Buffer::kept(client, &words)
        });
        let shards = shards.collect();
        let classes: Vec<u32> = labels.iter().map(|&label| u32::from(label)).collect();
        Self {
            shards,
            shard,
            labels: Buffer::of(client, &classes),
            table: Buffer::of(client, table),
            cut,
            examples: labels.len(),
            sample: Sample::of(images, cut.numbers()),
        }
    }
}

impl ByteImages<'_> {
    /// That they fit a model, and that no view reaches from one image into another.
    pub(super) fn check(&self, sizes: Sizes) -> Result<(), EngineError> {
        let &Self { bytes, labels, channels, height, width, padding, .. } = self;
        let numbers = channels * height * width;
        // Places are kept in 12 bits; reflected pixels are those of the image.
        let placed = 2 * padding < 1 << 12 && (padding == 0 || padding < height.min(width));
        let classes = labels.iter().all(|&label| usize::from(label) < sizes.classes);
        if numbers == sizes.pixels && bytes.len() == labels.len() * numbers && placed && classes {
            return Ok(());
        }
        Err(EngineError::Stored { channels, height, width, padding })
    }
}

impl<'a> Shown<'a> {
    /// Images of an example, in so many slots.
    pub(super) fn views(self, slots: usize) -> usize {
        match self {
            Self::Stored(places) => places.len() / slots.max(1),
            Self::Given(batch) => batch.views,
        }
    }

    /// What some slots show.
    pub(super) fn part(self, first: usize, count: usize, views: usize, pixels: usize) -> Self {
        match self {
            Self::Stored(places) => Self::Stored(&places[first * views..][..count * views]),
            Self::Given(batch) => Self::Given(batch.examples(first..first + count, pixels)),
        }
    }
}

impl Cut {
    /// Of one image.
    pub(super) fn numbers(&self) -> usize {
        self.channels * self.height * self.width
    }
}
