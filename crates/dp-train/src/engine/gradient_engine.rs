//! The trait of all engines.

use std::any::Any;
use std::fmt;

use crate::engine::batch::{Batch, BatchMetrics};
use crate::engine::error::EngineError;
use crate::gradient::ClippedSum;

/// What computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineDescription {
    /// For people: the engine, its instruction set or device, its threads.
    pub name: String,
    /// What the last bits of a sum depend on besides the options: the device and its instruction
    /// set, but not the number of threads. A checkpoint is resumed with the same arithmetic only.
    pub arithmetic: String,
}

/// Forward passes, clipped sums and plain sums of the gradients of one architecture.
///
/// # Guarantees
/// * One example moves a clipped sum by at most the clip norm, up to the rounding of the sum.
/// * An example with a non-finite gradient contributes exactly zero and is counted.
/// * The size of microbatches and the number of threads change nothing beyond rounding.
pub trait GradientEngine: fmt::Debug + Any {
    /// What computes.
    fn describe(&self) -> EngineDescription;

    /// The logits of every image, `classes` numbers each.
    ///
    /// # Errors
    /// [`EngineError`] if a slice has the wrong length or the device fails.
    fn forward(
        &mut self,
        parameters: &[f32],
        images: &[f32],
        logits: &mut [f32],
    ) -> Result<(), EngineError>;

    /// `sum_j min(1, clip_norm / |g_j|) g_j`, where `g_j` is the gradient of example `j`'s loss, or
    /// the mean of the gradients of its views. An empty batch sums to zero.
    ///
    /// Metrics count every view, the counts of the sum every example.
    ///
    /// # Errors
    /// [`EngineError`] if a slice has the wrong length, a label is no class, an example has no
    /// view, the clip norm is not in [`CLIP_NORMS`](crate::gradient::CLIP_NORMS), or the device
    /// fails.
    fn clipped_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError>;

    /// The plain sum of the gradients of all images, every view of an example counted: no clipping,
    /// no privacy.
    ///
    /// # Errors
    /// As [`clipped_sum`](Self::clipped_sum), but for the clip norm.
    fn gradient_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
    ) -> Result<(Vec<f32>, BatchMetrics), EngineError>;
}
