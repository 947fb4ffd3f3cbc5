//! What training saw of its examples; not private.

use std::ops::AddAssign;

use dp_train::engine::BatchMetrics;

/// What one step saw, or several.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) metrics: BatchMetrics,
    pub(super) examples: usize,
    /// None if nothing is clipped.
    pub(super) clipped: Option<usize>,
}

impl AddAssign for Seen {
    fn add_assign(&mut self, seen: Self) {
        self.metrics += seen.metrics;
        self.examples += seen.examples;
        self.clipped = seen.clipped.map(|clipped| self.clipped.unwrap_or(0) + clipped);
    }
}
