//! Checkpoints of the noise: the state as bytes, from which the stream continues bit by bit.
//!
//! The bytes hold the secret key: a checkpoint of a run is as confidential as its data. They are,
//! in little-endian order: a version, the key and its origin, the fingerprint of `C`, `d`, the next
//! step, the rows computed, the history, and SHA-256 of all that. The history is `(p - 1) d` floats for a
//! banded `C` and `m d` doubles for buffers; rows of `Z` are drawn again and not stored.

use std::io::{self, Read, Write};

use mf_core::Strategy;
use mf_core::sealed::{SealedError, SealedReader, SealedWriter};
use thiserror::Error;

use super::solve::AHEAD;
use super::{NoiseStream, State, most_kept_rows};
use crate::fingerprint::Fingerprint;
use crate::seeds::{KeyOrigin, NoiseKey};

const VERSION: &[u8; 16] = b"bandroot noise 1";

impl NoiseStream {
    /// Writes the state. O(p d), without a copy of the history.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn save(&self, writer: impl Write) -> io::Result<()> {
        let mut out = SealedWriter::new(writer, VERSION)?;
        out.put(self.key.bytes())?;
        out.put(&[match self.key.origin() {
            KeyOrigin::OperatingSystem => 0,
            KeyOrigin::FixedSeed => 1,
        }])?;
        out.put(Fingerprint::of(&self.strategy).bytes())?;
        let computed = match &self.state {
            State::Recurrence(state) => state.computed,
            State::Taps(_) | State::Buffers(_) => self.next_step,
        };
        for size in [self.dim, self.next_step, computed] {
            out.put(&(size as u64).to_le_bytes())?;
        }
        match &self.state {
            State::Recurrence(state) => out.put_numbers(&state.history, f32::to_le_bytes)?,
            State::Buffers(state) => out.put_numbers(&state.sums, f64::to_le_bytes)?,
            State::Taps(_) => {}
        }
        out.finish()?;
        Ok(())
    }

    /// Reads a state that was saved for the same strategy and dimension. O(p d).
    ///
    /// # Errors
    /// [`CheckpointError`] if the bytes are not a noise checkpoint, are damaged, or belong to
    /// another strategy or dimension: the rest of the run would not be what the plan says.
    pub fn load(
        strategy: Strategy,
        dim: usize,
        reader: impl Read,
    ) -> Result<Self, CheckpointError> {
        let mut input = SealedReader::new(reader, VERSION)?;
        let key = input.array::<32>()?;
        let origin = match input.array::<1>()? {
            [0] => KeyOrigin::OperatingSystem,
            [1] => KeyOrigin::FixedSeed,
            _ => return Err(CheckpointError::Damaged),
        };
        if &input.array::<32>()? != Fingerprint::of(&strategy).bytes() {
            return Err(CheckpointError::OtherStrategy);
        }
        let mut size = || -> Result<usize, CheckpointError> {
            let value = u64::from_le_bytes(input.array::<8>()?);
            usize::try_from(value).map_err(|_| CheckpointError::Damaged)
        };
        let (found, next_step, computed) = (size()?, size()?, size()?);
        if found != dim {
            return Err(CheckpointError::OtherDimension { expected: dim, found });
        }
        let key = NoiseKey::restored(key, origin);
        let mut stream = Self::new(strategy, dim, key).map_err(|_| CheckpointError::Damaged)?;
        let most_ahead = match &stream.state {
            State::Recurrence(_) => AHEAD.min(stream.strategy.bands() - 1),
            State::Taps(_) | State::Buffers(_) => 0,
        };
        let ahead = computed.checked_sub(next_step).ok_or(CheckpointError::Damaged)?;
        if computed > stream.strategy.steps() || ahead > most_ahead {
            return Err(CheckpointError::Damaged);
        }
        match &mut stream.state {
            State::Recurrence(state) => {
                input.numbers(&mut state.history, f32::from_le_bytes)?;
                state.computed = computed;
            }
            State::Buffers(state) => {
                input.numbers(&mut state.sums, f64::from_le_bytes)?;
            }
            State::Taps(_) => {}
        }
        input.finish()?;
        stream.next_step = next_step;
        match most_kept_rows(&stream.strategy) {
            Some(rows) => stream.keeping(rows).map_err(|_| CheckpointError::Damaged),
            None => Ok(stream),
        }
    }
}

/// Why a noise checkpoint cannot be continued.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// Reading failed, or the bytes end too early.
    #[error("the noise checkpoint cannot be read: {0}")]
    Read(#[from] io::Error),
    /// Not a noise checkpoint of this version.
    #[error("this is not a noise checkpoint of version 1")]
    Version,
    /// The bytes contradict themselves or their checksum.
    #[error("the noise checkpoint is damaged")]
    Damaged,
    /// Saved under a plan with other privacy, participation, clip norm or batch size.
    #[error("the checkpoint was made under another plan")]
    OtherPlan,
    /// Saved with another strategy `C`.
    #[error("the noise checkpoint was made with another strategy matrix")]
    OtherStrategy,
    /// Saved for another number of parameters.
    #[error("the noise checkpoint is for {found} parameters, but the model has {expected}")]
    OtherDimension {
        /// `d` now.
        expected: usize,
        /// `d` then.
        found: usize,
    },
}

impl From<SealedError> for CheckpointError {
    fn from(error: SealedError) -> Self {
        match error {
            SealedError::Version => CheckpointError::Version,
            SealedError::Damaged => CheckpointError::Damaged,
            SealedError::Io(error) => CheckpointError::Read(error),
        }
    }
}
