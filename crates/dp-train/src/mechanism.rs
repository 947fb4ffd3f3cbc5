//! The mechanism: noise of the plan's size on the sums of the plan's steps.

use std::io::{self, Read, Write};

use rayon::prelude::*;
use thiserror::Error;

#[cfg(feature = "gpu")]
use crate::engine::{FINER, FixedNoise, ResidentGradient, ResidentSum};
use crate::gradient::{ClipCounts, ClippedSum, PrivateGradient};
#[cfg(feature = "gpu")]
use crate::noise::ahead::Overwritten;
use crate::noise::checkpoint::CheckpointError;
use crate::noise::{NoiseError, NoiseStream};
#[cfg(feature = "gpu")]
use crate::parting::{BLOCK, MOST_IN_PART};
use crate::plan::DpPlan;
use crate::seeds::{KeyOrigin, NoiseKey};
use crate::update::PIECE;

/// Makes private gradients out of clipped sums, one per step of a plan.
///
/// ```text
/// gradient_i = (sum_i + noise_std [C^-1 Z]_i) / batch_size
/// ```
///
/// with the standard normal `Z` of [`noise`](crate::noise), sum and noise rounded to a multiple of about `2^-30
/// noise_std`. The divisor is the public batch size of
/// the plan, however many examples were in the batch.
#[derive(Debug, PartialEq)]
pub struct Mechanism {
    stream: NoiseStream,
    noise_std: f64,
    /// Sums with their noise are rounded to multiples of this power of two, about 2^-30 of the noise.
    grid: f64,
    clip_norm: f64,
    batch_size: usize,
    /// Whether batches are secret.
    #[cfg(feature = "gpu")]
    secret: bool,
    plan: PlanMark,
}

/// The numbers of a plan that a continuation must not change, as bytes.
type PlanMark = [u8; 72];

fn mark(plan: &DpPlan) -> PlanMark {
    let (request, pattern) = (plan.request(), plan.participation());
    let sizes = [
        pattern.steps(),
        pattern.min_separation(),
        pattern.max_participations(),
        request.batch_size,
    ];
    let numbers = [
        plan.noise_std(),
        request.clip_norm,
        request.epsilon,
        request.delta,
        request.neighbouring.factor(),
    ];
    let words = sizes.map(|size| size as u64).into_iter().chain(numbers.map(f64::to_bits));
    let mut mark = [0; 72];
    for (bytes, word) in mark.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    mark
}

/// The stream with as many rows kept as the plan says. It has no influence on the noise, so a continuation
/// may keep another number of rows.
fn keeping(stream: NoiseStream, plan: &DpPlan) -> Result<NoiseStream, NoiseError> {
    match plan.request().keep_rows {
        Some(rows) => stream.keeping(rows),
        None => Ok(stream),
    }
}

impl Mechanism {
    /// The mechanism before the first step.
    ///
    /// # Errors
    /// [`MechanismError::Noise`] if the history cannot be addressed.
    pub fn new(plan: &DpPlan, key: NoiseKey) -> Result<Self, MechanismError> {
        let stream = NoiseStream::new(plan.strategy().clone(), plan.request().dim, key)?;
        Ok(Self::over(keeping(stream, plan)?, plan))
    }

    /// The mechanism that [`save`](Self::save) wrote, which continues bit by bit.
    ///
    /// # Errors
    /// [`CheckpointError::OtherPlan`] if privacy, participation, clip norm, batch size or noise are
    /// not those of the plan, or what [`NoiseStream::load`] says.
    pub fn load(plan: &DpPlan, mut reader: impl Read) -> Result<Self, CheckpointError> {
        let mut found = [0; 72];
        reader.read_exact(&mut found)?;
        if found != mark(plan) {
            return Err(CheckpointError::OtherPlan);
        }
        let stream = NoiseStream::load(plan.strategy().clone(), plan.request().dim, reader)?;
        let stream = keeping(stream, plan).map_err(|_| CheckpointError::OtherPlan)?;
        Ok(Self::over(stream, plan))
    }

    /// Writes the key, the step and the history: all that a continuation needs besides the plan.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn save(&self, mut writer: impl Write) -> io::Result<()> {
        writer.write_all(&self.plan)?;
        self.stream.save(writer)
    }

    fn over(stream: NoiseStream, plan: &DpPlan) -> Self {
        Self {
            stream,
            noise_std: plan.noise_std(),
            grid: plan.noise_std().log2().floor().exp2() / f64::from(1 << 30),
            clip_norm: plan.request().clip_norm,
            batch_size: plan.request().batch_size,
            #[cfg(feature = "gpu")]
            secret: plan.request().sampling != crate::plan::Sampling::FixedOrder,
            plan: mark(plan),
        }
    }

    /// The step that comes next, counted from 0.
    pub fn next_step(&self) -> usize {
        self.stream.next_step()
    }

    /// Where the noise key came from.
    pub fn key_origin(&self) -> KeyOrigin {
        self.stream.key_origin()
    }

    pub(crate) fn key(&self) -> &NoiseKey {
        self.stream.key()
    }

    /// The empty sum of a step: dimension and clip norm are those of the plan.
    pub fn empty_sum(&self) -> ClippedSum {
        ClippedSum::from_clipping(
            vec![0.0; self.stream.dim()],
            self.clip_norm,
            ClipCounts::default(),
        )
    }

    /// Adds the noise of the next step to a sum and divides by the batch size. The sum of an empty
    /// batch is zero and gets its noise like any other.
    ///
    /// # Errors
    /// [`MechanismError::ClipNorm`] if the sum was clipped to another norm than the plan's,
    /// [`MechanismError::Noise`] after the last step or for another dimension. The sum is gone
    /// then.
    pub fn privatize(&mut self, sum: ClippedSum) -> Result<PrivateGradient, MechanismError> {
        if sum.clip_norm() != self.clip_norm {
            let (expected, found) = (self.clip_norm, sum.clip_norm());
            return Err(MechanismError::ClipNorm { expected, found });
        }
        let step = self.stream.next_step();
        let mut values = sum.into_values();
        self.stream.add_next(self.noise_std, &mut values)?;
        let (batch_size, grid) = (self.batch_size as f64, self.grid);
        // Sums in f64 lie on grids of 2^-53 of their terms, which shift with the sum and would show in numbers near
        // zero, where f32 is finer. A grid of the plan's own is coarser than those and the same for every sum; what
        // is done to its multiples, the rounding to f32 included, shows nothing more.
        let released = |value: f64| (nearest(value / grid) * grid / batch_size) as f32;
        let values = values.into_par_iter().with_min_len(PIECE).map(released).collect();
        Ok(PrivateGradient::released(values, step))
    }
}

/// [`f64::round`], which is a call into the C library on processors without an instruction for it.
fn nearest(x: f64) -> f64 {
    let size = x.abs();
    // Larger ones are whole, or no numbers.
    if size >= (1_u64 << 52) as f64 || size.is_nan() {
        return x;
    }
    let whole = (size as i64) as f64;
    let up = if size - whole >= 0.5 { 1.0 } else { 0.0 };
    (whole + up).copysign(x)
}

/// By how much of the clip norm the rounding to the device's grids may move a sum, over all of the blocks that an example can
/// move ([`SUM_ROUNDING`](crate::gradient::SUM_ROUNDING)).
#[cfg(feature = "gpu")]
const GRID_ROUNDING: f64 = 1.0 / (1 << 12) as f64;

#[cfg(feature = "gpu")]
impl Mechanism {
    /// Adds the noise of the next step to a sum on a device, to the same noise as [`privatize`](Self::privatize).
    ///
    /// Sums of blocks are rounded to multiples of `2^-FINER 2^exponent` and added up exactly; their sum is rounded to one of
    /// `2^exponent`, and so is the noise, by itself: that is the rounding of a sum with its noise, for the former is a multiple already.
    /// The example that two neighbours differ in moves every coordinate of the rounded sum of one block by at most
    /// `2^-FINER 2^exponent` more than before, `r` blocks of its part where batches are secret, and the last rounding adds
    /// `2^exponent`. So the sum moves by `sqrt(dim) (1 + 2^-FINER r) 2^exponent` more: the grid is fine enough for that to be
    /// [`GRID_ROUNDING`] of the clip norm. It is at most 2^-26 of the noise, unless that is next to nothing: as long as no finer one
    /// is needed, 32 bits reach to 16 standard deviations. For the 307,498 parameters of the paper's ConvNet they reach to eight
    /// up to noise of 64 clip norms.
    ///
    /// # Errors
    /// As [`privatize`](Self::privatize), and [`MechanismError::Device`] if the noise is no number of the device's.
    pub(crate) fn privatize_resident<'a>(
        &mut self,
        sum: ResidentSum<'a>,
    ) -> Result<ResidentGradient<'a>, MechanismError> {
        let (noise, _) = self.draw_resident()?;
        noise.privatize(sum)
    }

    /// The noise of the next step, before there is a sum for it, and what it takes to [take it back](Self::take_back).
    ///
    /// # Errors
    /// [`MechanismError::Noise`] after the last step, [`MechanismError::Device`] if the noise is no number of the device's.
    pub(crate) fn draw_resident(&mut self) -> Result<(ResidentNoise, Overwritten), MechanismError> {
        let (step, clip_norm) = (self.stream.next_step(), self.clip_norm);
        let mut row = vec![0.0; self.stream.dim()];
        let overwritten = self.stream.add_ahead(self.noise_std, &mut row)?;
        let Some(noise) = self.fixed(&row) else {
            self.stream.take_back(overwritten);
            return Err(MechanismError::Device { clip_norm });
        };
        Ok((ResidentNoise { step, dim: row.len(), clip_norm, noise }, overwritten))
    }

    /// The mechanism before its last draw, the noise of which must not be used then: it comes again.
    pub(crate) fn take_back(&mut self, row: Overwritten) {
        self.stream.take_back(row);
    }

    /// A row of noise on the device's grid, if its numbers have less than 61 bits.
    fn fixed(&self, row: &[f64]) -> Option<FixedNoise> {
        let exponent = self.exponent(row.len());
        let grid = f64::from(exponent).exp2();
        let whole = |noise: &f64| nearest(noise / grid) as i64;
        let most = row.iter().fold(0.0_f64, |most, noise| most.max((noise / grid).abs()));
        let scale = (grid / self.batch_size as f64) as f32;
        if most >= 61.0_f64.exp2() || !scale.is_normal() {
            return None;
        }
        // Where the grid is finer than the noise asks for, 32 bits may not do.
        let wide = row.iter().any(|noise| i32::try_from(whole(noise)).is_err());
        let mut words: Vec<u32> = row.iter().map(|noise| whole(noise) as u32).collect();
        if wide {
            words.extend(row.iter().map(|noise| (whole(noise) >> 32) as u32));
        }
        Some(FixedNoise { exponent, words, wide, scale })
    }

    /// Of the device's grid.
    fn exponent(&self, dim: usize) -> i32 {
        let blocks = MOST_IN_PART / BLOCK;
        let blocks = if self.secret { blocks as f64 } else { 1.0 };
        let roundings = 1.0 + blocks / f64::from(1 << FINER);
        let fine = GRID_ROUNDING * self.clip_norm / (roundings * (dim as f64).sqrt());
        let exponent = (self.noise_std.log2().floor() - 26.0).min(fine.log2().floor());
        // Sums of any batch fit into 62 bits on the finer grid; next to no noise it is coarser than that.
        exponent.max(self.clip_norm.log2().ceil() - 36.0) as i32
    }
}

/// The noise of one step of a plan, for a sum on a device.
#[cfg(feature = "gpu")]
#[must_use]
#[derive(Debug, PartialEq)]
pub(crate) struct ResidentNoise {
    step: usize,
    dim: usize,
    /// Of the plan.
    clip_norm: f64,
    noise: FixedNoise,
}

#[cfg(feature = "gpu")]
impl ResidentNoise {
    /// The step that it is for.
    pub(crate) fn step(&self) -> usize {
        self.step
    }

    /// Adds it to a sum.
    ///
    /// # Errors
    /// [`MechanismError::ClipNorm`] if the sum was clipped to another norm than the plan's, [`MechanismError::Noise`] for
    /// another dimension.
    pub(crate) fn privatize(
        self,
        sum: ResidentSum<'_>,
    ) -> Result<ResidentGradient<'_>, MechanismError> {
        if sum.clip_norm() != self.clip_norm {
            let (expected, found) = (self.clip_norm, sum.clip_norm());
            return Err(MechanismError::ClipNorm { expected, found });
        }
        if sum.dim() != self.dim {
            let (expected, found) = (self.dim, sum.dim());
            return Err(NoiseError::Dimension { expected, found }.into());
        }
        Ok(sum.with_noise(self.noise))
    }
}

/// Why a sum cannot be made private.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum MechanismError {
    /// There is no noise for it.
    #[error(transparent)]
    Noise(#[from] NoiseError),
    /// The noise is too large or too small for the numbers of a GPU.
    #[error(
        "noise for clip norm {clip_norm} is too large or too small for the numbers of a GPU: take the device cpu, or a clip \
         norm nearer to 1"
    )]
    Device {
        /// The plan's clip norm.
        clip_norm: f64,
    },
    /// The sum was clipped to another norm than the noise is for.
    #[error("the noise is for clip norm {expected}, but the sum was clipped to {found}")]
    ClipNorm {
        /// The plan's clip norm.
        expected: f64,
        /// The sum's clip norm.
        found: f64,
    },
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn nearest_is_round_to_the_last_bit() {
        let edges = [0.0, 0.5, 0.499_999_999_999_999_94, 1.5, 2.5, 4_503_599_627_370_495.5, 1e300];
        let edges = edges.into_iter().chain([f64::INFINITY, f64::NAN, f64::MIN_POSITIVE]);
        let many = (0..100_000).map(|i| (f64::from(i) * 0.77).sin() * f64::from(i % 60).exp2());
        for x in edges.chain(many).flat_map(|x| [x, -x, x + 0.5]) {
            assert_eq!(nearest(x).to_bits(), x.round().to_bits(), "{x}");
        }
    }
}
