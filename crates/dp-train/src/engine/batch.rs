//! What the engine is given, and what it tells beside the sum.

/// A batch of examples: images `[channels][height][width]` one after the other, and their classes.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// All pixels.
    pub images: &'a [f32],
    /// One class per example.
    pub labels: &'a [u32],
}

/// What a batch looked like. Depends on the data: not private.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BatchMetrics {
    /// Examples in the batch.
    pub examples: usize,
    /// The sum of their losses before the step.
    pub loss_sum: f64,
    /// How many were classified correctly.
    pub correct: usize,
}
