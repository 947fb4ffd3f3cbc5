//! What training asks of an engine, whatever computes.

use std::fmt;

use crate::engine::{Batch, BatchMetrics, Engine, EngineError};
use crate::gradient::ClippedSum;

/// Forward passes, clipped sums and plain sums of an architecture's gradients.
///
/// # Guarantees
/// * One example moves a clipped sum by at most the clip norm, up to the rounding of the sum.
/// * An example with a non-finite gradient contributes exactly zero and is counted.
/// * The size of microbatches and the number of threads change nothing beyond rounding.
pub trait GradientEngine: fmt::Debug {
    /// What computes, in a few words.
    fn description(&self) -> String;

    /// What the last bits of a sum depend on besides the options: the device and its instruction set, but not
    /// the number of threads. A checkpoint is continued with the same arithmetic only.
    fn arithmetic(&self) -> String;

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

    /// `sum_j min(1, clip_norm / |g_j|) g_j` over the gradients of the examples' losses. An empty
    /// batch sums to zero.
    ///
    /// # Errors
    /// [`EngineError`] if a slice has the wrong length, a label is no class, the clip norm is not
    /// positive and finite, or the device fails.
    fn clipped_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError>;

    /// As [`clipped_sum`](Self::clipped_sum) for examples with several copies, say random crops: the
    /// gradients of the copies are averaged, and the mean is clipped.
    ///
    /// The images of a label lie one after the other, `copies` of them. Metrics count every copy as an
    /// example, the counts of the sum do not.
    ///
    /// # Errors
    /// As [`clipped_sum`](Self::clipped_sum); also [`EngineError::NoCopies`].
    fn clipped_sum_of_means(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        copies: usize,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError>;

    /// The plain sum of the gradients: no clipping, no privacy.
    ///
    /// # Errors
    /// [`EngineError`] if a slice has the wrong length, a label is no class, or the device fails.
    fn gradient_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
    ) -> Result<(Vec<f32>, BatchMetrics), EngineError>;
}

impl GradientEngine for Engine {
    fn description(&self) -> String {
        format!("the CPU engine, {}, {} threads", self.instruction_set(), self.threads())
    }

    fn arithmetic(&self) -> String {
        format!("cpu, {}", self.instruction_set())
    }

    fn forward(
        &mut self,
        parameters: &[f32],
        images: &[f32],
        logits: &mut [f32],
    ) -> Result<(), EngineError> {
        Engine::forward(self, parameters, images, logits)
    }

    fn clipped_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError> {
        Engine::clipped_sum(self, parameters, batch, clip_norm)
    }

    fn clipped_sum_of_means(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        copies: usize,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError> {
        Engine::clipped_sum_of_means(self, parameters, batch, copies, clip_norm)
    }

    fn gradient_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
    ) -> Result<(Vec<f32>, BatchMetrics), EngineError> {
        Engine::gradient_sum(self, parameters, batch)
    }
}
