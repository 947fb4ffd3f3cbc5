//! Batches: which examples every step uses.
//!
//! In a fixed order, which may be known, all batches have one size. In balls-in-bins every example falls into a batch of
//! its own drawing, independently of all others, which nobody may know: only then does not knowing where an example stands
//! hide it further (Choquette-Choo et al. 2024, arXiv:2410.06266), and only then may the accountant count on it. Batches of
//! one size would not do: where all others stand tells where the last one is.
//!
//! Either is drawn once. Shuffling anew in every epoch would let an example stand at the end of one epoch and at the
//! start of the next, one step apart; so two uses are a whole epoch apart, which is what the sensitivity is computed
//! for.
//!
//! Poisson batches are drawn anew in every step, each example with the same probability, from a secret key too: from
//! all examples for DP-SGD, from one of `p` groups in turn for a strategy of `p` diagonals.

use std::borrow::Cow;
use std::fmt;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use thiserror::Error;

use crate::plan::{PlanRequest, Sampling};
use crate::seeds::{NoiseKey, Purpose, RunSeed};

/// The examples of every step.
///
/// # Guarantees
/// * In a fixed order and in balls-in-bins step `i` uses batch `i mod b`: two uses of an example are `b` steps apart, or
///   a multiple of it.
/// * In a fixed order all batches have exactly `m` examples; the last `N mod m` examples of the order are never used.
/// * In balls-in-bins every example is in exactly one batch, each equally likely, independently of all others.
/// * Poisson batches take each example of group `i mod p` with probability at most `q`, and less than it by below 2^-63,
///   independently of all else. Example `e` is in group `e mod p`.
/// * Batches that are secret may be empty; their examples stand in the order of their numbers, which tells nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Batches {
    kind: Kind,
    dropped: usize,
}

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    /// A cycle that is walked again and again.
    Cycle {
        /// The examples of all batches, one after the other.
        order: Vec<u32>,
        /// Where each batch begins, and where the last one ends.
        starts: Vec<usize>,
    },
    Poisson {
        examples: u32,
        groups: u32,
        /// An example is taken if its 64 bits are below it; all are if there is none.
        below: Option<u64>,
        /// Step `i` is the `i`-th stream of the cipher.
        key: [u8; 32],
    },
}

impl Batches {
    /// The batches that a plan asks for: in the order of the seed, or by the key. O(N + b).
    ///
    /// # Errors
    /// [`NoBatch`] unless there are whole batches, or examples.
    pub fn of(
        request: &PlanRequest,
        examples: u32,
        seed: RunSeed,
        key: &NoiseKey,
    ) -> Result<Self, NoBatch> {
        // More than there are examples: a request of so many slots or groups is refused as too large.
        let cycle = u32::try_from(request.min_separation).unwrap_or(u32::MAX);
        match request.sampling {
            Sampling::FixedOrder => Self::new(examples, request.batch_size, seed),
            Sampling::BallsInBins => Self::balls_in_bins(examples, cycle, key),
            Sampling::Poisson | Sampling::CyclicPoisson => {
                Self::poisson(examples, cycle, request.probability().unwrap_or(0.0), key)
            }
        }
    }

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
        Ok(Self { kind: Kind::Cycle { order, starts }, dropped })
    }

    /// Every example in one of `slots` batches, by the key. O(N + b).
    ///
    /// # Errors
    /// [`NoBatch`] unless there are slots and examples.
    pub fn balls_in_bins(examples: u32, slots: u32, key: &NoiseKey) -> Result<Self, NoBatch> {
        if slots == 0 || examples == 0 {
            return Err(NoBatch { examples: examples as usize, batch_size: 0 });
        }
        let mut rng = ChaCha20Rng::from_seed(key.of_batches());
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
        Ok(Self { kind: Kind::Cycle { order, starts }, dropped: 0 })
    }

    /// Step `i` takes each example of group `i mod groups` with this probability, by the key. O(1).
    ///
    /// # Errors
    /// [`NoBatch`] unless there are examples in every group, and the probability is positive.
    pub fn poisson(
        examples: u32,
        groups: u32,
        probability: f64,
        key: &NoiseKey,
    ) -> Result<Self, NoBatch> {
        if groups == 0 || examples < groups || !(probability > 0.0 && probability.is_finite()) {
            return Err(NoBatch { examples: examples as usize, batch_size: 0 });
        }
        // Rounded down: an example is never more likely than was accounted for.
        let below = (probability < 1.0).then(|| (probability * 2.0_f64.powi(64)) as u64);
        let kind = Kind::Poisson { examples, groups, below, key: key.of_batches() };
        Ok(Self { kind, dropped: 0 })
    }

    /// `b` or `p`, the steps after which an example may come again.
    pub fn cycle(&self) -> usize {
        match &self.kind {
            Kind::Cycle { starts, .. } => starts.len() - 1,
            Kind::Poisson { groups, .. } => *groups as usize,
        }
    }

    /// Examples that are never used because they do not fill a batch.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// The examples of a step, counted from 0. O(1), or O(N / p) for Poisson batches.
    pub fn batch(&self, step: usize) -> Cow<'_, [u32]> {
        match &self.kind {
            Kind::Cycle { order, starts } => {
                let batch = step % self.cycle();
                Cow::Borrowed(&order[starts[batch]..starts[batch + 1]])
            }
            Kind::Poisson { examples, groups, below, key } => {
                let mut rng = ChaCha20Rng::from_seed(*key);
                rng.set_stream(step as u64);
                let group = (step % *groups as usize) as u32;
                let mut is_taken = || below.is_none_or(|below| rng.next_u64() < below);
                let members = (group..*examples).step_by(*groups as usize);
                Cow::Owned(members.filter(|_| is_taken()).collect())
            }
        }
    }
}

/// Where examples stand may be secret, so it is not printed.
impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Batches");
        text.field("cycle", &self.cycle()).field("dropped", &self.dropped);
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
        assert_eq!((batches.cycle(), batches.dropped()), (10, 3));
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
        assert_eq!((batches.cycle(), batches.dropped()), (7, 0));
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

    /// 2,000 steps of 300 examples with probability 0.1 in 3 groups: by Bernstein's inequality the number of uses of all
    /// together is within six deviations but for 1e-8, that of pairs of neighbours in a group likewise.
    #[test]
    fn poisson_batches_take_each_example_of_their_group_with_the_probability() {
        let key = NoiseKey::fixed(RunSeed(5));
        let batches = Batches::poisson(300, 3, 0.1, &key).unwrap();
        assert_eq!((batches.cycle(), batches.dropped()), (3, 0));
        let (mut uses, mut pairs) = (0, 0);
        for step in 0..2000 {
            let batch = batches.batch(step);
            assert!(batch.is_sorted() && batch.iter().all(|e| *e as usize % 3 == step % 3));
            assert_eq!(batch, batches.batch(step), "the same whenever it is asked for");
            uses += batch.len();
            pairs += batch.windows(2).filter(|pair| pair[1] == pair[0] + 3).count();
        }
        let near = |found: usize, trials: f64, probability: f64| {
            let deviation = (trials * probability * (1.0 - probability)).sqrt();
            (found as f64 - trials * probability).abs() < 6.0 * deviation
        };
        assert!(near(uses, 2000.0 * 100.0, 0.1), "{uses}");
        // Pairs that share an example are a little correlated: a tenth more deviation, which six have room for.
        assert!(near(pairs, 2000.0 * 99.0, 0.01), "{pairs}");
        assert_ne!(batches.batch(0), batches.batch(3));
        let all = Batches::poisson(7, 1, 1.0, &key).unwrap();
        assert_eq!(all.batch(4), (0..7).collect::<Vec<u32>>());
        for (groups, probability) in [(0, 0.1), (8, 0.1), (1, 0.0), (1, f64::NAN)] {
            assert!(Batches::poisson(7, groups, probability, &key).is_err());
        }
    }
}
