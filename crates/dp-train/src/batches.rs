//! Batches: one fixed order of the examples, walked again and again.
//!
//! The order is drawn once. Shuffling anew in every epoch would let an example stand at the end of
//! one epoch and at the start of the next, one step apart; in a fixed order two uses are a whole
//! epoch apart, which is what the sensitivity is computed for.

use chacha20::rand_core::Rng;
use thiserror::Error;

use crate::seeds::{Purpose, RunSeed};

/// A fixed order of `N` examples, cut into `b = floor(N / m)` batches of `m`.
///
/// # Guarantees
/// * Step `i` uses batch `i mod b`: two uses of an example are `b` steps apart, or a multiple of
///   it.
/// * All batches have exactly `m` examples. The last `N mod m` examples of the order are never
///   used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batches {
    order: Vec<u32>,
    batch_size: usize,
    dropped: usize,
}

impl Batches {
    /// A uniformly random order of `examples`, from the order stream of the seed. O(N).
    ///
    /// # Errors
    /// [`NoBatch`] unless there is at least one whole batch of at least one example.
    pub fn new(examples: u32, batch_size: usize, seed: RunSeed) -> Result<Self, NoBatch> {
        let all = examples as usize;
        if batch_size == 0 || batch_size > all {
            return Err(NoBatch { examples: all, batch_size });
        }
        let mut rng = seed.stream(Purpose::Order);
        let mut order: Vec<u32> = (0..examples).collect();
        for last in (1..order.len()).rev() {
            // A 64-bit word scaled to 0..=last; the bias of at most 2^-32 does not matter to
            // privacy.
            let scaled = (u128::from(rng.next_u64()) * (last as u128 + 1)) >> 64;
            order.swap(last, scaled as usize);
        }
        let dropped = all % batch_size;
        order.truncate(all - dropped);
        Ok(Self { order, batch_size, dropped })
    }

    /// `b`, the number of batches in one pass.
    pub fn per_epoch(&self) -> usize {
        self.order.len() / self.batch_size
    }

    /// Examples that are never used because they do not fill a batch.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// The examples of a step, counted from 0.
    pub fn batch(&self, step: usize) -> &[u32] {
        let start = step % self.per_epoch() * self.batch_size;
        &self.order[start..start + self.batch_size]
    }
}

/// There are not enough examples for one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the batch size must be between 1 and {examples} examples, but it is {batch_size}")]
pub struct NoBatch {
    examples: usize,
    batch_size: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_uses_every_kept_example_once_and_epochs_repeat() {
        let batches = Batches::new(103, 10, RunSeed(1)).unwrap();
        assert_eq!((batches.per_epoch(), batches.dropped()), (10, 3));
        let mut seen: Vec<u32> = (0..10).flat_map(|i| batches.batch(i).to_vec()).collect();
        assert!(!seen.is_sorted(), "the order is random");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 100);
        assert!((0..10).all(|i| batches.batch(i) == batches.batch(i + 10)));
        assert_eq!(batches, Batches::new(103, 10, RunSeed(1)).unwrap());
        assert_ne!(batches, Batches::new(103, 10, RunSeed(2)).unwrap());
    }

    #[test]
    fn a_batch_larger_than_the_data_is_refused() {
        assert!(Batches::new(9, 10, RunSeed(0)).is_err());
        assert!(Batches::new(9, 0, RunSeed(0)).is_err());
        assert!(Batches::new(0, 0, RunSeed(0)).is_err());
    }
}
