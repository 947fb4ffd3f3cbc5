//! Whether a device chooses examples and adds noise as the host does, found out when a run is brought to it.
//!
//! The comparison of clipped sums does not reach these kernels, and noise that a driver adds wrongly is no privacy at all. So
//! made-up sums and noise, of one word and of two, go through the update and are compared with whole numbers of 64 bits; and
//! some views of the data set with the bytes that they are cut out of.

use cubecl::prelude::CubeElement;

use super::buffers::{Buffer, cubes};
use super::engine::GpuEngine;
use super::images::ViewPlace;
use super::kernels::gather::ABSENT;
use super::kernels::update::{FINER, update};
use super::ledger::Ledger;
use super::pass::{spread, units};
use super::shown::{Shown, Stored, show};
use crate::engine::error::EngineError;

/// Parameters of the made-up update, more than a cube has units, and parts of its sum.
const PARAMETERS: usize = 200;
const PARTS: usize = 5;

/// Grids of noise: on the first 32 bits are enough, on the second 64 are needed.
pub(super) const EXPONENTS: [(i32, bool); 2] = [(-26, false), (-45, true)];

/// Sums of parts and their noise, made up, and the whole numbers that they add up to.
pub(super) struct MadeUpNoise {
    exponent: i32,
    wide: bool,
    parts: Vec<f32>,
    pub(super) noise: Vec<i64>,
    expected: Vec<i64>,
}

impl MadeUpNoise {
    pub(super) fn new(exponent: i32, wide: bool) -> Self {
        // Of all sizes below 1 and both signs, down to less than a multiple.
        let part = |i: usize| {
            let size = ((i * 7919 % 1009) as f32 / 1009.0 - 0.5) * 2.0;
            size * 0.5_f32.powi((i % 31) as i32)
        };
        let parts: Vec<f32> = (0..PARTS * PARAMETERS).map(part).collect();
        let finer = f64::from(exponent - FINER as i32).exp2();
        let sum = |i: usize| {
            let of_part = |p: usize| (f64::from(parts[p * PARAMETERS + i]) / finer).round() as i64;
            let sum: i64 = (0..PARTS).map(of_part).sum();
            (sum + (1 << (FINER - 1))) >> FINER
        };
        // What is left is small enough to be exact in f32: each bit of sum and noise counts.
        let expected: Vec<i64> =
            (0..PARAMETERS as i64).map(|i| (i * 7907 % 2003 - 1001) * 4099).collect();
        let noise = expected.iter().enumerate().map(|(i, left)| left - sum(i)).collect();
        Self { exponent, wide, parts, noise, expected }
    }

    /// That one update from zero moves the momenta by these numbers, and the parameters by theirs.
    ///
    /// # Errors
    /// [`EngineError::Disagrees`], and those of the device.
    pub(super) fn check(&self, engine: &mut GpuEngine) -> Result<(), EngineError> {
        let low = self.noise.iter().map(|&noise| noise as u32);
        let high = self.noise.iter().map(|&noise| (noise >> 32) as u32);
        let mut words: Vec<u32> = low.collect();
        if self.wide {
            words.extend(high);
        }
        // An empty batch would have no stamp: the one of the ledger is 0, as before a first pass.
        words.push(0);
        let ledger = Ledger::new(&engine.client);
        let (rate, decay) = (0.25, 0.5);
        let found = engine.run(|engine| {
            let momenta = Buffer::of(&engine.client, &[1.0_f32; PARAMETERS]);
            let parameters = Buffer::of(&engine.client, &[2.0_f32; PARAMETERS]);
            let (parts, words) = (engine.upload(&self.parts), engine.upload(&words));
            ledger.start(|ledger| {
                update::launch(
                    &engine.client,
                    spread(cubes(PARAMETERS)),
                    units(),
                    ledger,
                    parts.argument(),
                    words.argument(),
                    parameters.argument(),
                    momenta.argument(),
                    PARAMETERS as u32,
                    0,
                    PARTS as u32,
                    self.exponent,
                    f64::from(self.exponent).exp2() as f32,
                    0.0,
                    decay,
                    rate,
                    self.wide,
                );
            });
            let found = engine.read(&[&momenta, &parameters, ledger.words()])?;
            ledger.check(&found[2])?;
            Ok(found)
        })?;
        let grid = f64::from(self.exponent).exp2();
        let momenta: Vec<f32> = self.expected.iter().map(|&n| (n as f64 * grid) as f32).collect();
        let wrong = first_difference(f32::from_bytes(&found[0]), &momenta, 0.0);
        let moved: Vec<f32> = momenta.iter().map(|m| decay * 2.0 - rate * m).collect();
        let wrong = wrong.or(first_difference(f32::from_bytes(&found[1]), &moved, 1e-6));
        wrong.map_or(Ok(()), |at| {
            let bits = if self.wide { 64 } else { 32 };
            let what = format!("entry {at} of a sum with its noise of {bits} bits is another");
            Err(EngineError::Disagrees { device: engine.device, what })
        })
    }
}

/// That the device adds noise as the host would.
///
/// # Errors
/// [`EngineError::Disagrees`], and those of the device.
pub(super) fn check_noise(engine: &mut GpuEngine) -> Result<(), EngineError> {
    EXPONENTS
        .into_iter()
        .try_for_each(|(exponent, wide)| MadeUpNoise::new(exponent, wide).check(engine))
}

/// That views of the data set on the device are cut out of its images, and have their labels: of the examples that the host has
/// kept, each in its corners and in the middle, mirrored and not.
///
/// # Errors
/// [`EngineError::Disagrees`], and those of the device.
pub(super) fn check_views(
    engine: &mut GpuEngine,
    stored: &Stored,
    views: usize,
) -> Result<(), EngineError> {
    let most = 2 * stored.cut.padding as u16;
    let corners =
        [(0, 0), (most, most), (most / 2, most / 2), (0, most), (most, 0), (most, most / 2)];
    // The last slot stays empty.
    let (sample, kept) = (&stored.sample, stored.sample.examples.len());
    let mut slots: Vec<Option<u32>> =
        sample.examples.repeat(CORNERS).into_iter().map(Some).collect();
    slots.push(None);
    let place = |i: usize| {
        let (down, right) = corners[(i / views / kept.max(1) + i % views) % CORNERS];
        ViewPlace { example: slots[i / views].unwrap_or(0), down, right, mirrored: i % 2 == 1 }
    };
    let places: Vec<ViewPlace> = (0..slots.len() * views).map(place).collect();
    let ledger = Ledger::new(&engine.client);
    let found = engine.run(|engine| {
        let shown = Shown::Stored(&places);
        let (images, labels) = show(Some(stored), engine, &ledger, &slots, shown, views)?;
        let found = engine.read(&[&images, &labels, ledger.words()])?;
        ledger.check(&found[2])?;
        Ok(found)
    })?;
    let mut expected = Vec::new();
    for (i, &place) in places.iter().enumerate() {
        match slots[i / views] {
            Some(_) => expected.extend(sample.view(i / views % kept, place, &stored.cut)),
            None => expected.extend(vec![0.0; stored.cut.numbers()]),
        }
    }
    let mut labels = sample.labels.repeat(CORNERS);
    labels.push(ABSENT);
    let same = u32::from_bytes(&found[1])[..labels.len()] == labels;
    let wrong = first_difference(f32::from_bytes(&found[0]), &expected, 0.0);
    if same && wrong.is_none() {
        return Ok(());
    }
    let what =
        "views of the data set are not cut out of its images, or have other labels".to_owned();
    Err(EngineError::Disagrees { device: engine.device, what })
}

/// Places that an example is cut out at.
const CORNERS: usize = 6;

/// The first of the expected numbers that is not found, to so much of 1.
fn first_difference(found: &[f32], expected: &[f32], error: f32) -> Option<usize> {
    let agrees = |(a, b): (&f32, &f32)| (a - b).abs() <= error;
    if found.len() < expected.len() {
        return Some(found.len());
    }
    found.iter().zip(expected).position(|pair| !agrees(pair))
}
