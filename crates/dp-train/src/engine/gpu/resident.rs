//! A run that stays on the device: parameters, momentum and data set, and sums that only the mechanism can open.
//!
//! ```text
//! places (8 bytes an image) -> gather -> pass -> ResidentSum --Mechanism--> ResidentGradient -> update
//!                                                            noise (4 bytes a parameter)
//! ```
//!
//! Within an epoch nothing is read back: what is known of the steps is kept on the device, [`Resident::read`] brings it all.

use cubecl::client::Client;
use cubecl::prelude::CubeElement;
use mf_core::Sgd;

use super::buffers::{Buffer, cubes};
use super::engine::GpuEngine;
use super::kernels::gather::{ABSENT, Cut, gather};
use super::kernels::ledger::{FAILED, UPDATES, WORDS};
use super::kernels::tally::{TALLIED, tally};
use super::kernels::update::update;
use super::pass::{PART, spread, units};
use crate::engine::batch::{Batch, BatchMetrics};
use crate::engine::error::EngineError;
use crate::engine::sizes::Sizes;
use crate::gradient::{ClipCounts, GradientError, MOST_EXAMPLES};
use crate::mechanism::FixedNoise;

/// Steps whose numbers are kept on the device.
const STEPS: usize = 4096;

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

/// What a step is shown: one example per slot, all of its views.
#[derive(Debug, Clone, Copy)]
pub enum Shown<'a> {
    /// Views of images that are on the device; those of an empty slot mean nothing.
    Stored(&'a [ViewPlace]),
    /// Images and labels; those of an empty slot mean nothing.
    Given(Batch<'a>),
}

/// The data set on the device.
struct Stored {
    /// The images, in as many buffers as the device needs for them, and how many are in each.
    shards: Vec<Buffer>,
    shard: usize,
    labels: Buffer,
    table: Buffer,
    cut: Cut,
    examples: usize,
}

/// A run on the device of an engine.
pub(crate) struct Resident {
    client: Client,
    parameters: Buffer,
    momenta: Buffer,
    stored: Option<Stored>,
    tallies: Buffer,
    ledger: Buffer,
    /// Updates since the run was brought here.
    updates: u32,
    /// The engine's.
    number: u64,
    /// Of the last step.
    parts: Option<Buffer>,
    /// Images, examples and empty slots of every step whose numbers were not read yet.
    steps: Vec<[usize; 3]>,
}

impl std::fmt::Debug for Resident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Resident({} parameters)", self.parameters.length)
    }
}

/// A sum of clipped gradients on the device: it can be made private, and nothing else.
#[must_use]
#[derive(Debug)]
pub(crate) struct ResidentSum<'a> {
    resident: &'a mut Resident,
    parts: Buffer,
    count: usize,
    clip_norm: f64,
}

/// A sum and the noise that goes into it: it moves the parameters, and nothing else.
#[must_use]
#[derive(Debug)]
pub(crate) struct ResidentGradient<'a> {
    sum: ResidentSum<'a>,
    noise: FixedNoise,
}

/// All that was on the device only.
#[derive(Debug)]
pub(crate) struct ReadBack {
    pub(crate) parameters: Vec<f32>,
    pub(crate) momenta: Vec<f32>,
    pub(crate) steps: Vec<StepSeen>,
}

/// What one step saw of its examples; not private.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepSeen {
    /// Its images.
    pub metrics: BatchMetrics,
    /// What clipping did to its examples.
    pub counts: ClipCounts,
}

impl Resident {
    /// Brings a run to the device, with its data set if it is one of bytes.
    pub(crate) fn new(
        engine: &mut GpuEngine,
        parameters: &[f32],
        momenta: &[f32],
        images: Option<ByteImages<'_>>,
    ) -> Result<Self, EngineError> {
        let (client, number, sizes) = (engine.client().clone(), engine.number(), engine.sizes());
        if [parameters.len(), momenta.len()] != [sizes.parameters; 2] {
            return Err(EngineError::OtherEngine);
        }
        if let Some(images) = images {
            images.check(sizes)?;
        }
        engine.run(|_| {
            let stored = images.map(|images| Stored::new(&client, images));
            Ok(Self {
                parameters: Buffer::of(&client, parameters),
                momenta: Buffer::of(&client, momenta),
                stored,
                tallies: Buffer::new(&client, STEPS * TALLIED),
                ledger: Buffer::of(&client, &[0_u32; WORDS]),
                updates: 0,
                number,
                parts: None,
                steps: Vec::new(),
                client: client.clone(),
            })
        })
    }

    /// Whether the numbers of no further step can be kept.
    pub(crate) fn is_full(&self) -> bool {
        self.steps.len() == STEPS
    }

    /// Steps whose numbers were not read yet.
    pub(crate) fn unread(&self) -> usize {
        self.steps.len()
    }

    /// The sum over the examples in some slots, of so many views each. Waits for nothing.
    ///
    /// # Errors
    /// [`EngineError`] if what is shown does not fit the slots, or the device fails.
    pub(crate) fn clipped_sum<'a>(
        &'a mut self,
        engine: &mut GpuEngine,
        slots: &[Option<u32>],
        shown: Shown<'_>,
        clip_norm: f64,
    ) -> Result<ResidentSum<'a>, EngineError> {
        if self.number != engine.number() {
            return Err(EngineError::OtherEngine);
        }
        if slots.len() > MOST_EXAMPLES {
            return Err(GradientError::TooMany.into());
        }
        assert!(!self.is_full(), "the device is read before it is full");
        let views = match (&shown, &self.stored) {
            (Shown::Given(batch), _) => batch.views,
            (Shown::Stored(_), Some(stored)) => stored.cut.views_of(&shown, slots.len()),
            (Shown::Stored(_), None) => 0,
        };
        self.check(engine, slots, shown, views)?;
        engine.compare(views.max(1))?;
        let images = slots.len() * views;
        let row = self.steps.len();
        let parts = engine.run(|engine| {
            if images == 0 {
                return Ok(None);
            }
            let length = self.parameters.length * slots.len().div_ceil(PART);
            // That of the step before has been read, or will be before this one is written.
            let parts = match self.parts.take().filter(|parts| parts.length >= length) {
                Some(parts) => parts,
                None => Buffer::new(&self.client, length),
            };
            let together = engine.examples_together(slots.len(), views)?;
            for (i, some) in slots.chunks(together).enumerate() {
                let (first, examples) = (i * together, some.len());
                let images = examples * views;
                let part = shown.part(first, examples, views, engine.pixels());
                let (input, labels) = self.show(engine, some, part, views)?;
                let into = (&parts, first / PART);
                let ledger = (&self.ledger, self.updates + 1);
                let pass = engine.pass(&self.parameters, &input, into, ledger, images)?;
                pass.forward();
                pass.losses(&labels);
                pass.clipped(clip_norm);
                tally::launch(
                    &self.client,
                    spread(1),
                    units(),
                    pass.buffers.measures.argument(),
                    pass.buffers.marks.argument(),
                    self.tallies.argument(),
                    images as u32,
                    examples as u32,
                    row as u32,
                    u32::from(first > 0),
                );
            }
            self.parts = Some(parts.clone());
            Ok(Some(parts))
        })?;
        let empty = slots.iter().filter(|slot| slot.is_none()).count();
        self.steps.push([images - empty * views, slots.len() - empty, empty]);
        let count = if parts.is_some() { slots.len().div_ceil(PART) } else { 0 };
        let parts = parts.unwrap_or_else(|| Buffer::new(&self.client, 1));
        Ok(ResidentSum { resident: self, parts, count, clip_norm })
    }

    /// That what is shown is what is in the slots.
    fn check(
        &self,
        engine: &GpuEngine,
        slots: &[Option<u32>],
        shown: Shown<'_>,
        views: usize,
    ) -> Result<(), EngineError> {
        match shown {
            Shown::Given(batch) => {
                engine.check_batch(self.parameters.length, batch)?;
                if slots.len() != batch.labels.len() {
                    return Err(EngineError::Shown { slots: slots.len() });
                }
            }
            Shown::Stored(places) => {
                let examples = self.stored.as_ref().map_or(0, |stored| stored.examples);
                let most = self.stored.as_ref().map_or(0, |stored| 2 * stored.cut.padding);
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
    fn show(
        &self,
        engine: &mut GpuEngine,
        slots: &[Option<u32>],
        shown: Shown<'_>,
        views: usize,
    ) -> Result<(Buffer, Buffer), String> {
        let images = slots.len() * views;
        engine.place(images, views)?;
        match (shown, &self.stored) {
            (Shown::Stored(places), Some(stored)) => {
                let words = |(i, place): (usize, &ViewPlace)| {
                    let example = slots[i / views].map_or(ABSENT, |_| place.example);
                    let moved = u32::from(place.down) | u32::from(place.right) << 12;
                    [example, moved | u32::from(place.mirrored) << 31]
                };
                let words: Vec<u32> = places.iter().enumerate().flat_map(words).collect();
                let length = images * stored.cut.numbers();
                let (input, labels) = (engine.input()?, Buffer::new(&self.client, slots.len()));
                let places = engine.upload(&words);
                for (i, shard) in stored.shards.iter().enumerate() {
                    gather::launch(
                        &self.client,
                        spread(cubes(length)),
                        units(),
                        shard.argument(),
                        stored.labels.argument(),
                        stored.table.argument(),
                        places.argument(),
                        input.argument(),
                        labels.argument(),
                        length as u32,
                        (i * stored.shard) as u32,
                        stored.shard as u32,
                        Cut { views, ..stored.cut },
                    );
                }
                Ok((input, labels))
            }
            (Shown::Given(batch), _) => {
                let label = |(slot, &label): (&Option<u32>, &u32)| slot.map_or(ABSENT, |_| label);
                let labels: Vec<u32> = slots.iter().zip(batch.labels).map(label).collect();
                Ok((engine.upload(batch.images), engine.upload(&labels)))
            }
            (Shown::Stored(_), None) => Err("there are no images on the device".into()),
        }
    }

    /// Waits for the device, and brings back what only it knew.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if a sum was not finite, which only a broken device can bring about, or if it fails now.
    pub(crate) fn read(&mut self, engine: &mut GpuEngine) -> Result<ReadBack, EngineError> {
        if self.number != engine.number() {
            return Err(EngineError::OtherEngine);
        }
        let found = engine.run(|engine| {
            let buffers = [&self.parameters, &self.momenta, &self.tallies, &self.ledger];
            engine.read(&buffers)
        })?;
        let [parameters, momenta, tallies, ledger] = found.as_slice() else {
            return Err(engine.failed("it read back something else"));
        };
        let ledger = u32::from_bytes(ledger);
        if ledger[FAILED] != 0 || ledger[UPDATES] != self.updates {
            return Err(
                engine.failed("it lost a kernel, or a sum of clipped gradients was not finite")
            );
        }
        let rows = f32::from_bytes(tallies).chunks_exact(TALLIED).zip(self.steps.drain(..));
        let steps = rows.map(|(row, [images, examples, empty])| {
            let none = examples == 0 && empty == 0;
            let row = if none { &[0.0; TALLIED][..] } else { row };
            let correct = row[1] as usize;
            let metrics = BatchMetrics { images, loss_sum: f64::from(row[0]), correct };
            // An empty slot has no gradient, which is not finite either.
            let (clipped, non_finite) = (row[2] as usize, (row[3] as usize).saturating_sub(empty));
            StepSeen { metrics, counts: ClipCounts { examples, clipped, non_finite } }
        });
        let steps = steps.collect();
        let floats = |bytes: &[u8]| f32::from_bytes(bytes)[..self.parameters.length].to_vec();
        Ok(ReadBack { parameters: floats(parameters), momenta: floats(momenta), steps })
    }

    /// The parameters alone.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if the device fails.
    pub(crate) fn parameters(&self, engine: &mut GpuEngine) -> Result<Vec<f32>, EngineError> {
        let found = engine.run(|engine| engine.read(&[&self.parameters]))?;
        Ok(f32::from_bytes(&found[0])[..self.parameters.length].to_vec())
    }
}

impl Stored {
    fn new(client: &Client, images: ByteImages<'_>) -> Self {
        let ByteImages { bytes, labels, table, channels, height, width, padding, reflect } = images;
        let word = |four: &[u8]| {
            let mut word = [0; 4];
            word[..four.len()].copy_from_slice(four);
            u32::from_le_bytes(word)
        };
        let cut = Cut { channels, height, width, padding, reflect, views: 1 };
        let most = client.properties().memory.max_page_size as usize;
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
        }
    }
}

impl ByteImages<'_> {
    /// That they fit a model, and that no view reaches from one image into another.
    fn check(&self, sizes: Sizes) -> Result<(), EngineError> {
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
    /// What some slots show.
    fn part(self, first: usize, count: usize, views: usize, pixels: usize) -> Self {
        match self {
            Self::Stored(places) => Self::Stored(&places[first * views..][..count * views]),
            Self::Given(batch) => Self::Given(batch.examples(first..first + count, pixels)),
        }
    }
}

impl Cut {
    /// Of one image.
    fn numbers(&self) -> usize {
        self.channels * self.height * self.width
    }

    fn views_of(&self, shown: &Shown<'_>, slots: usize) -> usize {
        match shown {
            Shown::Stored(places) => places.len() / slots.max(1),
            Shown::Given(batch) => batch.views,
        }
    }
}

impl<'a> ResidentSum<'a> {
    /// The bound on one example's contribution.
    pub(crate) fn clip_norm(&self) -> f64 {
        self.clip_norm
    }

    /// Entries of the sum.
    pub(crate) fn dim(&self) -> usize {
        self.resident.parameters.length
    }

    /// The sum with the noise of a step. Whoever calls this vouches for the noise.
    pub(crate) fn with_noise(self, noise: FixedNoise) -> ResidentGradient<'a> {
        ResidentGradient { sum: self, noise }
    }
}

impl ResidentGradient<'_> {
    /// Moves the parameters. Waits for nothing.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if the device fails.
    pub(crate) fn step(
        self,
        engine: &mut GpuEngine,
        sgd: Sgd,
        learning_rate: f32,
    ) -> Result<(), EngineError> {
        let Self { sum: ResidentSum { resident, parts, count, .. }, noise } = self;
        let FixedNoise { exponent, mut low, high, scale } = noise;
        if resident.number != engine.number() {
            return Err(EngineError::OtherEngine);
        }
        let stamp = resident.updates + 1;
        low.push(stamp);
        engine.run(|engine| {
            let wide = high.is_some();
            let low = engine.upload(&low);
            let high = high.map_or_else(|| low.clone(), |high| engine.upload(&high));
            let length = resident.parameters.length;
            update::launch(
                &resident.client,
                spread(cubes(length)),
                units(),
                parts.argument(),
                low.argument(),
                high.argument(),
                resident.parameters.argument(),
                resident.momenta.argument(),
                resident.ledger.argument(),
                length as u32,
                stamp,
                count as u32,
                exponent,
                scale,
                sgd.momentum() as f32,
                sgd.decay_factor() as f32,
                learning_rate,
                wide,
            );
            Ok(())
        })?;
        resident.updates = stamp;
        Ok(())
    }
}
