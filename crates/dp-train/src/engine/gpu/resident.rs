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
use super::images::ByteImages;
use super::kernels::tally::{TALLIED, tally};
use super::kernels::update::update;
use super::ledger::Ledger;
use super::pass::{PART, spread, units};
use super::rehearsal;
use super::shown::{Shown, Stored, check, show};
use crate::engine::batch::BatchMetrics;
use crate::engine::error::EngineError;
use crate::gradient::{ClipCounts, GradientError, MOST_EXAMPLES};

/// Steps whose numbers are kept on the device.
const STEPS: usize = 4096;

/// A run on the device of an engine.
pub(crate) struct Resident {
    client: Client,
    parameters: Buffer,
    momenta: Buffer,
    stored: Option<Stored>,
    /// Views of an example that were compared with the host's, if that is done.
    rehearsed: Vec<usize>,
    tallies: Buffer,
    pub(super) ledger: Ledger,
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

/// The noise of a step for a device, as multiples of a power of two.
#[derive(PartialEq)]
pub(crate) struct FixedNoise {
    /// Of the power of two.
    pub(crate) exponent: i32,
    /// Low words in two's complement, and behind them the high words if it is `wide`.
    pub(crate) words: Vec<u32>,
    /// Whether high words do not only go on with the sign.
    pub(crate) wide: bool,
    /// What a multiple is worth in a gradient: the power of two over the batch size.
    pub(crate) scale: f32,
}

/// Without the noise: who sees it can subtract it.
impl std::fmt::Debug for FixedNoise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FixedNoise({} words, not shown)", self.words.len())
    }
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
    ///
    /// # Errors
    /// [`EngineError`] if it does not fit there, or the device adds noise otherwise than the host.
    pub(crate) fn new(
        engine: &mut GpuEngine,
        parameters: &[f32],
        momenta: &[f32],
        images: Option<ByteImages<'_>>,
    ) -> Result<Self, EngineError> {
        let (client, number, sizes) = (engine.client.clone(), engine.number, engine.sizes);
        if [parameters.len(), momenta.len()] != [sizes.parameters; 2] {
            return Err(EngineError::OtherEngine);
        }
        if let Some(images) = images {
            images.check(sizes)?;
        }
        if engine.is_compared() {
            rehearsal::check_noise(engine)?;
        }
        engine.run(|_| {
            let stored = images.map(|images| Stored::new(&client, images));
            Ok(Self {
                parameters: Buffer::of(&client, parameters),
                momenta: Buffer::of(&client, momenta),
                stored,
                rehearsed: Vec::new(),
                tallies: Buffer::new(&client, STEPS * TALLIED),
                ledger: Ledger::new(&client),
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
    /// [`EngineError`] if what is shown does not fit the slots, the sums do not fit the device, or it fails or does something else
    /// than the host.
    pub(crate) fn clipped_sum<'a>(
        &'a mut self,
        engine: &mut GpuEngine,
        slots: &[Option<u32>],
        shown: Shown<'_>,
        clip_norm: f64,
    ) -> Result<ResidentSum<'a>, EngineError> {
        if self.number != engine.number {
            return Err(EngineError::OtherEngine);
        }
        if slots.len() > MOST_EXAMPLES {
            return Err(GradientError::TooMany.into());
        }
        assert!(!self.is_full(), "the device is read before it is full");
        let views = shown.views(slots.len());
        check(self.stored.as_ref(), engine, slots, shown, views)?;
        engine.check_parts(slots.len())?;
        self.rehearse(engine, views.max(1))?;
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
                let part = shown.part(first, examples, views, engine.sizes.pixels);
                let (input, labels) =
                    show(self.stored.as_ref(), engine, &self.ledger, some, part, views)?;
                let into = (&parts, first / PART);
                let ledger = (&self.ledger, self.updates + 1);
                let pass = engine.pass(&self.parameters, &input, into, ledger, images)?;
                pass.forward();
                pass.losses(&labels);
                pass.clipped(clip_norm);
                self.ledger.start(|ledger| {
                    tally::launch(
                        &self.client,
                        spread(1),
                        units(),
                        ledger,
                        pass.buffers.measures.argument(),
                        pass.buffers.marks.argument(),
                        self.tallies.argument(),
                        images as u32,
                        examples as u32,
                        row as u32,
                        u32::from(first > 0),
                    );
                });
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

    /// Compares what the device makes of examples with so many views with what the host does, before the first of them.
    fn rehearse(&mut self, engine: &mut GpuEngine, views: usize) -> Result<(), EngineError> {
        engine.compare(views)?;
        if let Some(stored) = &self.stored
            && engine.is_compared()
            && !self.rehearsed.contains(&views)
        {
            rehearsal::check_views(engine, stored, views)?;
            self.rehearsed.push(views);
        }
        Ok(())
    }

    /// Waits for the device, and brings back what only it knew.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if a kernel was lost or a sum was not finite, which only a broken device can bring about, or if it
    /// fails now.
    pub(crate) fn read(&mut self, engine: &mut GpuEngine) -> Result<ReadBack, EngineError> {
        if self.number != engine.number {
            return Err(EngineError::OtherEngine);
        }
        let found = engine.run(|engine| {
            let ledger = self.ledger.words();
            let buffers = [&self.parameters, &self.momenta, &self.tallies, ledger];
            engine.read(&buffers)
        })?;
        let [parameters, momenta, tallies, ledger] = found.as_slice() else {
            return Err(engine.failed("it read back something else"));
        };
        self.ledger.check(ledger).map_err(|reason| engine.failed(&reason))?;
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
        let FixedNoise { exponent, mut words, wide, scale } = noise;
        if resident.number != engine.number {
            return Err(EngineError::OtherEngine);
        }
        let stamp = resident.updates + 1;
        words.push(stamp);
        engine.run(|engine| {
            let words = engine.upload(&words);
            let length = resident.parameters.length;
            resident.ledger.start(|ledger| {
                update::launch(
                    &resident.client,
                    spread(cubes(length)),
                    units(),
                    ledger,
                    parts.argument(),
                    words.argument(),
                    resident.parameters.argument(),
                    resident.momenta.argument(),
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
            });
            Ok(())
        })?;
        resident.updates = stamp;
        Ok(())
    }
}
