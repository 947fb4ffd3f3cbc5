//! Seeds: where randomness comes from, one independent stream per purpose.
//!
//! A run has one seed for what may be known (initialization, order of the examples, augmentation)
//! and a separate 256-bit key for the noise. Reusing one stream for two purposes would let the
//! public one give away the secret one, so each purpose has its own key:
//! `SHA-256(purpose || seed)`.

use std::fmt;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// What a stream of random numbers is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The parameters before the first step.
    Initialization,
    /// The order of the examples.
    Order,
    /// The random views of the examples.
    Augmentation,
    /// The noise of a run that gives up privacy to be reproducible.
    Noise,
    /// The keys of the audit's many mechanism runs.
    Audit,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Purpose::Initialization => b"bandroot/1/initialisation",
            Purpose::Order => b"bandroot/1/order",
            Purpose::Augmentation => b"bandroot/1/augmentation",
            Purpose::Noise => b"bandroot/1/noise",
            Purpose::Audit => b"bandroot/1/audit",
        }
    }
}

/// The public seed of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunSeed(pub u64);

impl RunSeed {
    /// The stream for one purpose. Streams of different purposes or seeds are independent.
    pub fn stream(self, purpose: Purpose) -> ChaCha20Rng {
        ChaCha20Rng::from_seed(self.key(purpose, 0))
    }

    /// The part of the stream for one purpose that belongs to an address: `step` picks the stream of
    /// the cipher, `index` the block to start from. Blocks are 16 words; whoever takes more from one index
    /// reads words of the next.
    pub fn stream_at(self, purpose: Purpose, step: u64, index: u64) -> ChaCha20Rng {
        let mut rng = self.stream(purpose);
        rng.set_stream(step);
        rng.set_block_pos(index);
        rng
    }

    /// The `index`-th 256-bit key for one purpose.
    pub(crate) fn key(self, purpose: Purpose, index: u64) -> [u8; 32] {
        // The label's length comes first: no label can run into the seed.
        let label = purpose.label();
        let mut hash = Sha256::new();
        hash.update((label.len() as u64).to_le_bytes());
        hash.update(label);
        hash.update(self.0.to_le_bytes());
        hash.update(index.to_le_bytes());
        hash.finalize().into()
    }
}

/// Where a noise key came from, which decides whether its noise hides anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOrigin {
    /// 256 bits from the operating system, unknown to anyone.
    OperatingSystem,
    /// Derived from a seed that stands in a config: reproducible, not private.
    FixedSeed,
}

impl fmt::Display for KeyOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyOrigin::OperatingSystem => "key from the operating system",
            KeyOrigin::FixedSeed => "fixed noise seed: reproducible, not private",
        })
    }
}

/// Where the key of secret batches came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SamplingKey {
    /// A hash of the noise key under a label of its own: as secret as that, and of the same origin.
    DerivedFromNoiseKey,
}

impl fmt::Display for SamplingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("derived from the noise key")
    }
}

/// The 256-bit key of the noise. Who knows it can subtract the noise.
///
/// Not `Clone`, so that one key is not handed to two mechanisms by accident, and not printed by
/// `Debug`.
#[derive(PartialEq, Eq)]
pub struct NoiseKey {
    bytes: [u8; 32],
    origin: KeyOrigin,
}

impl NoiseKey {
    /// A fresh key from the operating system: the only kind that keeps a run private.
    ///
    /// # Errors
    /// [`NoEntropy`] if the operating system has none to give.
    pub fn from_os() -> Result<Self, NoEntropy> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|_| NoEntropy)?;
        Ok(Self { bytes, origin: KeyOrigin::OperatingSystem })
    }

    /// The key that a seed stands for. Marks everything made with it as reproducible, not private.
    pub fn fixed(seed: RunSeed) -> Self {
        Self { bytes: seed.key(Purpose::Noise, 0), origin: KeyOrigin::FixedSeed }
    }

    /// The `index`-th of many fixed keys, for mechanism runs that only the audit looks at.
    pub(crate) fn for_audit(seed: RunSeed, index: u64) -> Self {
        Self { bytes: seed.key(Purpose::Audit, index), origin: KeyOrigin::FixedSeed }
    }

    /// The key that a checkpoint holds.
    pub(crate) fn restored(bytes: [u8; 32], origin: KeyOrigin) -> Self {
        Self { bytes, origin }
    }

    /// Where the key came from.
    pub fn origin(&self) -> KeyOrigin {
        self.origin
    }

    /// The key that secret batches are drawn from: SHA-256 of a label of its own and this key
    /// ([`SamplingKey::DerivedFromNoiseKey`]).
    ///
    /// One secret of 256 bits then does for both, and a checkpoint cannot hold one without the other. It is as sound as
    /// two independent keys if SHA-256 is taken for a random oracle: its value at the label and the key is uniform and
    /// independent of all that the noise shows, except to whoever asks for it at this very key, and finding the key from the noise
    /// is what `ChaCha20` is assumed to prevent anyway. So the batches are independent of the noise, as the accountants need,
    /// and whoever learns the batches learns nothing of the noise. The label, with its length before it, keeps this input
    /// from being that of any other hash in this crate.
    pub(crate) fn of_batches(&self) -> [u8; 32] {
        const LABEL: &[u8] = b"bandroot/1/batches";
        let mut hash = Sha256::new();
        hash.update((LABEL.len() as u64).to_le_bytes());
        hash.update(LABEL);
        hash.update(self.bytes);
        hash.finalize().into()
    }

    /// Where a step of a burn module takes the seeds of its draws from (dropout): SHA-256 of a label of its own, this key and the
    /// step. What is bounded for one example is bounded for given masks, so they have to be as secret as the noise; and a step that is taken
    /// again has the same. That noise and masks share a secret is as sound as [that batches do](Self::of_batches).
    #[cfg(feature = "burn")]
    pub(crate) fn draws(&self, step: u64) -> Draws {
        const LABEL: &[u8] = b"bandroot/1/draws";
        let mut hash = Sha256::new();
        hash.update((LABEL.len() as u64).to_le_bytes());
        hash.update(LABEL);
        hash.update(self.bytes);
        hash.update(step.to_le_bytes());
        Draws { bytes: hash.finalize().into() }
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }
}

/// A secret that the seeds of one step's calls are derived from.
#[cfg(feature = "burn")]
pub(crate) struct Draws {
    bytes: [u8; 32],
}

#[cfg(feature = "burn")]
impl Draws {
    /// A fresh one, of which nothing else is derived.
    ///
    /// # Errors
    /// [`NoEntropy`] if the operating system has none to give.
    pub(crate) fn from_os() -> Result<Self, NoEntropy> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|_| NoEntropy)?;
        Ok(Self { bytes })
    }

    /// The seed of a call.
    pub(crate) fn seed(&self, call: u64) -> u64 {
        let mut hash = Sha256::new();
        hash.update(self.bytes);
        hash.update(call.to_le_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        u64::from_le_bytes(*digest.first_chunk().expect("a digest is longer"))
    }
}

impl fmt::Debug for NoiseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NoiseKey({})", self.origin)
    }
}

/// The operating system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the operating system has no random bytes for the noise key")]
pub struct NoEntropy;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_purpose_and_seed_has_its_own_key() {
        let purposes = [
            Purpose::Initialization,
            Purpose::Order,
            Purpose::Augmentation,
            Purpose::Noise,
            Purpose::Audit,
        ];
        let mut keys = Vec::new();
        for seed in [0, 1, u64::MAX] {
            for purpose in purposes {
                keys.extend((0..3).map(|index| RunSeed(seed).key(purpose, index)));
            }
        }
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }

    #[test]
    fn addresses_of_a_stream_do_not_depend_on_what_was_read_before() {
        use chacha20::rand_core::Rng;
        let word =
            |step, index| RunSeed(3).stream_at(Purpose::Augmentation, step, index).next_u64();
        let far = u64::from(u32::MAX) << 32;
        let words: Vec<u64> =
            [(0, 0), (0, 1), (1, 0), (0, far), (0, far + 1)].map(|(s, i)| word(s, i)).into();
        let mut distinct = words.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), words.len());
        assert_eq!(word(0, far), words[3]);
        let mut from_start = RunSeed(3).stream_at(Purpose::Augmentation, 0, 0);
        let read: Vec<u64> = (0..9).map(|_| from_start.next_u64()).collect();
        assert_eq!(read[8], words[1], "an index is 16 words");
    }

    #[cfg(feature = "burn")]
    #[test]
    fn every_key_step_and_call_draws_from_its_own_seed_and_the_same_from_the_same() {
        let seeds = || -> Vec<u64> {
            let keys = (0..3).map(|seed| NoiseKey::fixed(RunSeed(seed)));
            let draws = keys.flat_map(|key| (0..3).map(move |step| key.draws(step)));
            draws.flat_map(|draws| (0..3).map(move |call| draws.seed(call))).collect()
        };
        let mut all = seeds();
        assert_eq!(all, seeds());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 27);
    }

    #[test]
    fn two_keys_from_the_operating_system_differ_and_do_not_print() {
        let (one, two) = (NoiseKey::from_os().unwrap(), NoiseKey::from_os().unwrap());
        assert_ne!(one.bytes, two.bytes);
        assert_eq!(format!("{one:?}"), "NoiseKey(key from the operating system)");
    }
}
