//! Gradients on their way to the optimizer, as types that carry the privacy argument.
//!
//! ```text
//! PerSampleGradients --clip--> ClippedSum --privatize--> PrivateGradient --step--> parameters
//! ```
//!
//! Each stage consumes the one before it, and only [`PrivateGradient`] reaches
//! [`Momentum::step`](crate::update::Momentum::step). So two mistakes do not compile. Noising one
//! sum twice, which spends budget on a release that the plan does not know of:
//!
//! ```compile_fail,E0382
//! use dp_train::gradient::ClippedSum;
//! use dp_train::mechanism::Mechanism;
//!
//! fn twice(mechanism: &mut Mechanism, sum: ClippedSum) {
//!     let first = mechanism.privatize(sum);
//!     let second = mechanism.privatize(sum);
//! }
//! ```
//!
//! And training on a sum that has no noise:
//!
//! ```compile_fail,E0308
//! use dp_train::gradient::ClippedSum;
//! use dp_train::update::Momentum;
//!
//! fn bare(momentum: &mut Momentum, parameters: &mut [f32], sum: ClippedSum) {
//!     momentum.step(parameters, sum, 0.1);
//! }
//! ```
//!
//! Nor can either be made by hand from the outside:
//!
//! ```compile_fail,E0451
//! let forged = dp_train::gradient::PrivateGradient { values: vec![0.0], step: 0 };
//! ```
//!
//! Training without privacy has a type and a method of its own, so that it cannot be mistaken for the
//! other: a [`NonPrivateGradient`] does not enter a private run.
//!
//! ```compile_fail,E0308
//! use dp_train::gradient::NonPrivateGradient;
//! use dp_train::update::Momentum;
//!
//! fn open(momentum: &mut Momentum, parameters: &mut [f32], gradient: NonPrivateGradient) {
//!     momentum.step(parameters, gradient, 0.1);
//! }
//! ```
//!
//! The same calls in the right order do compile:
//!
//! ```
//! use dp_train::gradient::ClippedSum;
//! use dp_train::mechanism::{Mechanism, MechanismError};
//! use dp_train::update::Momentum;
//!
//! fn step(
//!     mechanism: &mut Mechanism,
//!     momentum: &mut Momentum,
//!     parameters: &mut [f32],
//!     sum: ClippedSum,
//! ) -> Result<(), MechanismError> {
//!     let gradient = mechanism.privatize(sum)?;
//!     momentum.step(parameters, gradient, 0.1);
//!     Ok(())
//! }
//! ```

use std::fmt;

use std::ops::RangeInclusive;

use thiserror::Error;

/// The gradients of one batch, one row per example, as they come from the model.
#[derive(Debug, Clone, PartialEq)]
pub struct PerSampleGradients {
    dim: usize,
    rows: Vec<f32>,
}

impl PerSampleGradients {
    /// No examples yet, of gradients with `dim` entries. An empty batch stays a valid one.
    pub fn new(dim: usize) -> Self {
        Self { dim, rows: Vec::new() }
    }

    /// One more example.
    ///
    /// # Errors
    /// [`GradientError::Dimension`] unless it has `dim` entries.
    pub fn push(&mut self, gradient: &[f32]) -> Result<(), GradientError> {
        if gradient.len() != self.dim {
            return Err(GradientError::Dimension { expected: self.dim, found: gradient.len() });
        }
        self.rows.extend_from_slice(gradient);
        Ok(())
    }

    /// Entries of one gradient.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The rows in order, one per example.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        // A gradient without entries has no rows to tell apart.
        self.rows.chunks_exact(self.dim.max(1))
    }
}

/// What clipping did to a batch.
///
/// These numbers depend on the data and are covered by no guarantee: a run that is to be private
/// does not publish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClipCounts {
    /// Examples in the batch.
    pub examples: usize,
    /// Examples whose gradient was scaled down.
    pub clipped: usize,
    /// Examples with a NaN or infinite gradient, which contributed zero.
    pub non_finite: usize,
}

impl ClipCounts {
    /// With those of other examples.
    pub(crate) fn add(&mut self, other: Self) {
        self.examples += other.examples;
        self.clipped += other.clipped;
        self.non_finite += other.non_finite;
    }
}

/// Clip norms that can be used: beyond them sums of clipped gradients overflow or vanish in f32.
pub const CLIP_NORMS: RangeInclusive<f64> = 1e-30..=1e30;

/// By how much more than the clip norm one example may move a sum, relatively, because floating-point numbers are
/// added: the noise of every plan is wider by this factor.
///
/// Parts of a batch are added up in f64, so the excess does not grow with the batch: zeroing one example changes
/// the rounding of its own part and of nothing else. Let `u = 2^-24`, and let a part be made of `r` blocks of `k`
/// examples of norm at most `zeta`. In whatever order `k` of them are added, partial sums of `i` examples have norm at
/// most `i zeta`, and all of them together at most `k (k + 1) zeta / 2`; with scale and product, `2 k zeta`, a block errs
/// by at most `u (k^2 + 5 k) zeta / 2`. Adding the blocks errs by `u k (r^2 + r) zeta / 2`. Two neighbours of which an
/// example is zeroed differ in the rounding of its block, with it and without it, and of the sum of blocks: by at most
/// `zeta (1 + u (k^2 + 5 k + k (r^2 + r)))`. That is 1 + 2^-15 for the 16 examples of a lane on the CPU in any blocks,
/// 1 + 2^-13 for 4 blocks of 32 on burn's devices, and 1 + 2^-11.7 for 2 blocks of 64 of a burn module without products
/// that cancel (below); less for its linear layers at one position in host memory, of which every block of 64 is added in f64.
///
/// [`ClippedSum::add`] and [`PerSampleGradients::clip`] have no parts: norms, products and sums are f64. Adding `m`
/// examples one by one errs by at most `2^-53` times the norms of all partial sums, `2^-53 m^2 zeta / 2`, so two
/// neighbours differ by at most `zeta (1 + 2^-53 (m^2 + 2 m))`: 1 + 2^-12.9 for [`MOST_EXAMPLES`]. Adding sums to
/// one another ([`ClippedSum::add_sum`]) errs by no more than that, on top of what the parts do.
///
/// Where batches are secret an example is compared with none, not with zero: those behind it move up, and all lanes of
/// its [part](crate::parting::Parting), of at most 128 examples, may be rounded otherwise: all `r` blocks of a group, with it and
/// without it, which makes `zeta (1 + u (r (k^2 + 5 k) + k (r^2 + r)))`. That is 1 + 2^-12.6 for 8 lanes of 16, which are added in
/// f64, 1 + 2^-11.6 for 4 blocks of 32, 1 + 2^-10.8 for 2 blocks of 64.
///
/// A GPU adds up blocks of 16 in f32, as a lane, and rounds each sum to a grid and their sum to a coarser one on which the
/// noise is added exactly: that is at most 2^-12 more, over all blocks that an example can move
/// (`Mechanism::privatize_resident`), and 1 + 2^-11 + 2^-12 together where batches are secret.
///
/// That holds for layers whose gradients are held, and for linear layers at one position. A convolution whose gradients are never
/// held (ghost norms) sums products that can cancel, and so do a linear layer at several positions and a large embedding
/// of a burn module. Norms are rounded up so that an example's products add up to
/// at most `2^10 zeta` without their signs; others in the same block are rounded to the last place of such partial
/// sums, `2^-14 zeta`. How many of these roundings add up is not proven: an attack by ascent, of which the
/// engine's tests have a short form, reached 4.0e-4 with blocks of 16 examples and 2.3e-4 with the usual 8 in a
/// review, which is why this factor is 2^-10. On GPUs the same attack found nothing above the clip norm. With an example missing instead of zeroed only those tests have searched.
pub const SUM_ROUNDING: f64 = 1.0 / 1024.0;

/// Examples that one sum may have: with more, the rounding of sums in f64 would use up [`SUM_ROUNDING`].
pub const MOST_EXAMPLES: usize = 1 << 20;

/// The sum of gradients that were each clipped to norm at most `clip_norm`.
///
/// # Guarantees
/// * Zeroing one example moves the sum by at most `(1 + SUM_ROUNDING) clip_norm` ([`SUM_ROUNDING`]).
/// * All entries are finite.
///
/// It can grow by [`add`](Self::add) and [`add_sum`](Self::add_sum), but not be copied, scaled or looked at: its debug
/// form does not show it.
#[derive(PartialEq)]
pub struct ClippedSum {
    sum: Vec<f64>,
    clip_norm: f64,
    counts: ClipCounts,
}

impl fmt::Debug for ClippedSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sum, clip_norm, .. } = self;
        write!(f, "ClippedSum({} entries, clip norm {clip_norm}, not shown)", sum.len())
    }
}

impl ClippedSum {
    /// The empty sum of gradients with `dim` entries, to which [`add`](Self::add) adds one example after the
    /// other: O(dim) memory for a batch of any size.
    ///
    /// # Errors
    /// [`GradientError::ClipNorm`] unless the clip norm is in [`CLIP_NORMS`].
    pub fn new(dim: usize, clip_norm: f64) -> Result<Self, GradientError> {
        if !CLIP_NORMS.contains(&clip_norm) {
            return Err(GradientError::ClipNorm { clip_norm });
        }
        Ok(Self { sum: vec![0.0; dim], clip_norm, counts: ClipCounts::default() })
    }

    /// Adds the examples of another sum, say one that an engine clipped.
    ///
    /// # Errors
    /// [`GradientError::Dimension`], [`GradientError::OtherClipNorm`] or [`GradientError::TooMany`], and nothing is
    /// added.
    pub fn add_sum(&mut self, other: ClippedSum) -> Result<(), GradientError> {
        self.check_room(other.dim(), other.counts.examples)?;
        if other.clip_norm != self.clip_norm {
            let (expected, found) = (self.clip_norm, other.clip_norm);
            return Err(GradientError::OtherClipNorm { expected, found });
        }
        self.sum.iter_mut().zip(other.sum).for_each(|(sum, other)| *sum += other);
        self.counts.add(other.counts);
        Ok(())
    }

    /// That gradients of `dim` entries of so many examples may be added.
    pub(crate) fn check_room(&self, dim: usize, examples: usize) -> Result<(), GradientError> {
        if dim != self.dim() {
            return Err(GradientError::Dimension { expected: self.dim(), found: dim });
        }
        if examples > MOST_EXAMPLES - self.counts.examples.min(MOST_EXAMPLES) {
            return Err(GradientError::TooMany);
        }
        Ok(())
    }

    /// The sum and what clipping did to it, to add one more example.
    pub(crate) fn parts_mut(&mut self) -> (&mut [f64], &mut ClipCounts) {
        (&mut self.sum, &mut self.counts)
    }

    /// The sum that clipping computed. Whoever calls this vouches for the guarantees.
    pub(crate) fn from_clipping(sum: Vec<f64>, clip_norm: f64, counts: ClipCounts) -> Self {
        Self { sum, clip_norm, counts }
    }

    /// Entries of the sum.
    pub fn dim(&self) -> usize {
        self.sum.len()
    }

    /// The bound on one example's contribution.
    pub fn clip_norm(&self) -> f64 {
        self.clip_norm
    }

    /// What clipping did; not private.
    pub fn counts(&self) -> ClipCounts {
        self.counts
    }

    pub(crate) fn into_values(self) -> Vec<f64> {
        self.sum
    }
}

/// A gradient with the noise of its step in it: all that training may see of a batch.
#[derive(Debug, PartialEq)]
pub struct PrivateGradient {
    values: Vec<f32>,
    step: usize,
}

impl PrivateGradient {
    /// The values that a mechanism released in a step.
    pub(crate) fn released(values: Vec<f32>, step: usize) -> Self {
        Self { values, step }
    }

    /// The released values. Anything may be computed from them.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The step of the release, counted from 0.
    pub fn step(&self) -> usize {
        self.step
    }
}

/// The mean gradient of a batch without any noise: it shows its examples to whoever sees it.
///
/// Moves parameters only through
/// [`Momentum::step_without_privacy`](crate::update::Momentum::step_without_privacy), which
/// [`NonPrivateTraining`](crate::training::non_private::NonPrivateTraining) calls and no private run does.
#[derive(Debug, PartialEq)]
pub struct NonPrivateGradient {
    values: Vec<f32>,
}

impl NonPrivateGradient {
    /// A plain sum of gradients over the number of terms.
    pub fn mean(mut sum: Vec<f32>, terms: usize) -> Self {
        let terms = terms.max(1) as f32;
        sum.iter_mut().for_each(|value| *value /= terms);
        Self { values: sum }
    }

    /// A sum of clipped gradients over the number of terms: clipping alone hides nothing.
    pub fn mean_of_clipped(sum: ClippedSum, terms: usize) -> Self {
        let terms = terms.max(1) as f64;
        Self { values: sum.into_values().into_iter().map(|value| (value / terms) as f32).collect() }
    }

    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }
}

/// What can be wrong with gradients.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum GradientError {
    /// A gradient has the wrong number of entries.
    #[error("a gradient must have {expected} entries, but it has {found}")]
    Dimension {
        /// Entries that were needed.
        expected: usize,
        /// Entries that were found.
        found: usize,
    },
    /// The clip norm is not in [`CLIP_NORMS`].
    #[error("the clip norm must be between 1e-30 and 1e30, but it is {clip_norm}")]
    ClipNorm {
        /// The value given.
        clip_norm: f64,
    },
    /// A sum was clipped to another norm than the one it is added to.
    #[error("the sum is for clip norm {expected}, but {found} was used")]
    OtherClipNorm {
        /// The clip norm of the sum that grows.
        expected: f64,
        /// The clip norm of the sum to add.
        found: f64,
    },
    /// There would be more than [`MOST_EXAMPLES`] in one sum.
    #[error("a sum can have at most 2^20 examples")]
    TooMany,
}
