//! Batches: which examples every step uses, the same in every epoch.
//!
//! In a fixed order, which may be known, all batches have one size. In balls-in-bins every example falls into a batch of
//! its own drawing, independently of all others, which nobody may know: only then does not knowing where an example stands
//! hide it further (Choquette-Choo et al. 2024, arXiv:2410.06266), and only then may the accountant count on it. Batches of
//! one size would not do: where all others stand tells where the last one is.
//!
//! Either is drawn once. Shuffling anew in every epoch would let an example stand at the end of one epoch and at the
//! start of the next, one step apart; so two uses are a whole epoch apart, which is what the sensitivity is computed
//! for.

use std::fmt;

use chacha20::rand_core::Rng;
use thiserror::Error;

use crate::plan::{PlanRequest, Sampling};
use crate::seeds::{NoiseKey, Purpose, RunSeed};

/// The examples of `b` batches, walked again and again.
///
/// # Guarantees
/// * Step `i` uses batch `i mod b`: two uses of an example are `b` steps apart, or a multiple of it.
/// * In a fixed order all batches have exactly `m` examples; the last `N mod m` examples of the order are never used.
/// * In balls-in-bins every example is in exactly one batch, each equally likely, independently of all others. A batch
///   may be empty; its examples stand in the order of their numbers, which tells nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Batches {
    /// The examples of all batches, one after the other.
    order: Vec<u32>,
    /// Where each batch begins, and where the last one ends.
    starts: Vec<usize>,
    dropped: usize,
}

impl Batches {
    /// A uniformly random order of `examples` from the order stream of the seed, cut into `b = floor(N / m)` batches of
    /// `m`. O(N).
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
        let starts = (0..=order.len()).step_by(batch_size).collect();
        Ok(Self { order, starts, dropped })
    }

    /// Every example in one of `slots` batches, by the key. O(N + b).
    ///
    /// # Errors
    /// [`NoBatch`] unless there are slots and examples.
    pub fn balls_in_bins(examples: u32, slots: u32, key: &NoiseKey) -> Result<Self, NoBatch> {
        if slots == 0 || examples == 0 {
            return Err(NoBatch { examples: examples as usize, batch_size: 0 });
        }
        let mut rng = key.slots();
        let slot_of: Vec<u32> = (0..examples).map(|_| uniform(&mut rng, slots)).collect();
        let mut starts = vec![0; slots as usize + 1];
        for &slot in &slot_of {
            starts[slot as usize + 1] += 1;
        }
        for slot in 0..slots as usize {
            starts[slot + 1] += starts[slot];
        }
        let mut next = starts.clone();
        let mut order = vec![0; examples as usize];
        for (example, &slot) in (0..examples).zip(&slot_of) {
            let place = &mut next[slot as usize];
            order[*place] = example;
            *place += 1;
        }
        Ok(Self { order, starts, dropped: 0 })
    }

    /// The batches that a plan asks for: in the order of the seed, or in slots by the key. O(N + b).
    ///
    /// # Errors
    /// [`NoBatch`] unless there are whole batches, or examples.
    pub fn of(
        request: &PlanRequest,
        examples: u32,
        seed: RunSeed,
        key: &NoiseKey,
    ) -> Result<Self, NoBatch> {
        match request.sampling {
            Sampling::FixedOrder => Self::new(examples, request.batch_size, seed),
            // A request of more slots than this is refused as too large.
            Sampling::BallsInBins => {
                let slots = u32::try_from(request.min_separation).unwrap_or(u32::MAX);
                Self::balls_in_bins(examples, slots, key)
            }
        }
    }

    /// `b`, the number of batches in one pass.
    pub fn per_epoch(&self) -> usize {
        self.starts.len() - 1
    }

    /// Examples that are never used because they do not fill a batch.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// The examples of a step, counted from 0.
    pub fn batch(&self, step: usize) -> &[u32] {
        let batch = step % self.per_epoch();
        &self.order[self.starts[batch]..self.starts[batch + 1]]
    }
}

/// Where examples stand may be secret, so it is not printed.
impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Batches");
        text.field("per_epoch", &self.per_epoch()).field("dropped", &self.dropped);
        text.finish_non_exhaustive()
    }
}

/// A number below `bound`, each exactly equally likely: 64 bits scaled down, drawn again where one number would have
/// more of them than another (Lemire 2019, arXiv:1805.10941).
fn uniform(rng: &mut impl Rng, bound: u32) -> u32 {
    let bound = u64::from(bound);
    // 2^64 modulo the bound.
    let surplus = bound.wrapping_neg() % bound;
    loop {
        let product = u128::from(rng.next_u64()) * u128::from(bound);
        if product as u64 >= surplus {
            return (product >> 64) as u32;
        }
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

    #[test]
    fn every_example_falls_into_one_slot_whatever_the_others_do() {
        let key = NoiseKey::fixed(RunSeed(1));
        let batches = Batches::balls_in_bins(1000, 7, &key).unwrap();
        assert_eq!((batches.per_epoch(), batches.dropped()), (7, 0));
        let mut seen: Vec<u32> = (0..7).flat_map(|step| batches.batch(step).to_vec()).collect();
        assert!((0..7).all(|step| batches.batch(step).is_sorted()));
        assert!((0..7).all(|step| batches.batch(step) == batches.batch(step + 7)));
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<u32>>());
        assert_eq!(batches, Batches::balls_in_bins(1000, 7, &key).unwrap());
        // More slots than examples: some batches are empty.
        let sparse = Batches::balls_in_bins(5, 50, &key).unwrap();
        assert_eq!((0..50).map(|step| sparse.batch(step).len()).sum::<usize>(), 5);
        // An example's slot does not depend on how many others there are.
        let slot = |batches: &Batches, example: u32| {
            (0..7).find(|&step| batches.batch(step).contains(&example)).unwrap()
        };
        let fewer = Batches::balls_in_bins(10, 7, &key).unwrap();
        assert!((0..10).all(|example| slot(&fewer, example) == slot(&batches, example)));
        assert!(Batches::balls_in_bins(0, 7, &key).is_err());
        assert!(Batches::balls_in_bins(7, 0, &key).is_err());
    }

    /// Chi-square of 200,000 slots, and of the pairs of slots of 200,000 neighbours, each against equal shares:
    /// sixteen deviations above the mean, a false alarm below 1e-9 for any other key.
    #[test]
    fn slots_are_uniform_and_those_of_two_examples_independent() {
        let (slots, pairs) = (10_usize, 200_000_u32);
        let key = NoiseKey::fixed(RunSeed(3));
        let batches = Batches::balls_in_bins(2 * pairs, slots as u32, &key).unwrap();
        let mut slot_of = vec![0; 2 * pairs as usize];
        for step in 0..slots {
            batches.batch(step).iter().for_each(|&example| slot_of[example as usize] = step);
        }
        let mut counts = [vec![0_u32; slots], vec![0_u32; slots * slots]];
        for pair in slot_of.chunks_exact(2) {
            counts[0][pair[0]] += 1;
            counts[1][pair[0] * slots + pair[1]] += 1;
        }
        for counts in counts {
            let expected = f64::from(pairs) / counts.len() as f64;
            let square = |&count: &u32| (f64::from(count) - expected).powi(2) / expected;
            let chi: f64 = counts.iter().map(square).sum();
            let freedom = (counts.len() - 1) as f64;
            assert!(chi < freedom + 16.0 * (2.0 * freedom).sqrt(), "{chi} for {freedom}");
        }
    }
}
