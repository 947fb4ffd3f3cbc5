//! Checkpoints of the noise: the state as bytes, from which the stream continues bit by bit.
//!
//! The bytes hold the secret key: a checkpoint of a run is as confidential as its data. They are,
//! in little-endian order: a version, the key and its origin, the fingerprint of `C`, `d`, the next
//! step, the rows computed, the history, and SHA-256 of all that. The history is `(p - 1) d` floats for a
//! banded `C` and `m d` doubles for buffers; rows of `Z` are drawn again and not stored.

use std::fmt;
use std::io::{self, Read, Write};

use mf_core::Strategy;
use sha2::{Digest, Sha256};

use super::solve::AHEAD;
use super::{NoiseStream, State, most_kept_rows};
use crate::fingerprint::Fingerprint;
use crate::seeds::{KeyOrigin, NoiseKey};

const VERSION: &[u8; 16] = b"bandroot noise 1";

/// Numbers that are converted at a time.
const PIECE: usize = 1 << 16;

impl NoiseStream {
    /// Writes the state. O(p d), without a copy of the history.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn save(&self, writer: impl Write) -> io::Result<()> {
        let mut out = Hashing { inner: writer, hash: Sha256::new() };
        out.write_all(VERSION)?;
        out.write_all(self.key.bytes())?;
        out.write_all(&[match self.key.origin() {
            KeyOrigin::OperatingSystem => 0,
            KeyOrigin::FixedSeed => 1,
        }])?;
        out.write_all(Fingerprint::of(&self.strategy).bytes())?;
        let computed = match &self.state {
            State::Recurrence(state) => state.computed,
            State::Taps(_) | State::Buffers(_) => self.next_step,
        };
        for size in [self.dim, self.next_step, computed] {
            out.write_all(&(size as u64).to_le_bytes())?;
        }
        match &self.state {
            State::Recurrence(state) => {
                write_pieces(&mut out, &state.history, |y| y.to_le_bytes())?;
            }
            State::Buffers(state) => write_pieces(&mut out, &state.sums, |s| s.to_le_bytes())?,
            State::Taps(_) => {}
        }
        let Hashing { mut inner, hash } = out;
        inner.write_all(&hash.finalize())?;
        inner.flush()
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
        let mut input = Hashing { inner: reader, hash: Sha256::new() };
        if &input.bytes::<16>()? != VERSION {
            return Err(CheckpointError::Version);
        }
        let key = input.bytes::<32>()?;
        let origin = match input.bytes::<1>()? {
            [0] => KeyOrigin::OperatingSystem,
            [1] => KeyOrigin::FixedSeed,
            _ => return Err(CheckpointError::Damaged),
        };
        if &input.bytes::<32>()? != Fingerprint::of(&strategy).bytes() {
            return Err(CheckpointError::OtherStrategy);
        }
        let mut size = || -> Result<usize, CheckpointError> {
            let value = u64::from_le_bytes(input.bytes::<8>()?);
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
                read_pieces(&mut input, &mut state.history, f32::from_le_bytes)?;
                state.computed = computed;
            }
            State::Buffers(state) => {
                read_pieces(&mut input, &mut state.sums, f64::from_le_bytes)?;
            }
            State::Taps(_) => {}
        }
        let Hashing { mut inner, hash } = input;
        let mut checksum = [0; 32];
        inner.read_exact(&mut checksum)?;
        if checksum != *hash.finalize() {
            return Err(CheckpointError::Damaged);
        }
        stream.next_step = next_step;
        match most_kept_rows(&stream.strategy) {
            Some(rows) => stream.keeping(rows).map_err(|_| CheckpointError::Damaged),
            None => Ok(stream),
        }
    }
}

/// Writes numbers without a copy of all of them.
fn write_pieces<T: Copy, const N: usize>(
    out: &mut Hashing<impl Write>,
    numbers: &[T],
    to_bytes: impl Fn(T) -> [u8; N],
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(N * PIECE);
    for piece in numbers.chunks(PIECE) {
        bytes.clear();
        bytes.extend(piece.iter().flat_map(|x| to_bytes(*x)));
        out.write_all(&bytes)?;
    }
    Ok(())
}

fn read_pieces<T, const N: usize>(
    input: &mut Hashing<impl Read>,
    numbers: &mut [T],
    from_bytes: impl Fn([u8; N]) -> T,
) -> io::Result<()> {
    let mut bytes = vec![0; N * PIECE];
    for piece in numbers.chunks_mut(PIECE) {
        let bytes = &mut bytes[..N * piece.len()];
        input.read_exact(bytes)?;
        for (x, bytes) in piece.iter_mut().zip(bytes.as_chunks::<N>().0) {
            *x = from_bytes(*bytes);
        }
    }
    Ok(())
}

/// Hashes what passes through.
struct Hashing<T> {
    inner: T,
    hash: Sha256,
}

impl<T: Write> Hashing<T> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.inner.write_all(bytes)
    }
}

impl<T: Read> Hashing<T> {
    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.hash.update(&*bytes);
        Ok(())
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Why a noise checkpoint cannot be continued.
#[derive(Debug)]
pub enum CheckpointError {
    /// Reading failed, or the bytes end too early.
    Read(io::Error),
    /// Not a noise checkpoint of this version.
    Version,
    /// The bytes contradict themselves or their checksum.
    Damaged,
    /// Saved under a plan with other privacy, participation, clip norm or batch size.
    OtherPlan,
    /// Saved with another strategy `C`.
    OtherStrategy,
    /// Saved for another number of parameters.
    OtherDimension {
        /// `d` now.
        expected: usize,
        /// `d` then.
        found: usize,
    },
}

impl From<io::Error> for CheckpointError {
    fn from(error: io::Error) -> Self {
        CheckpointError::Read(error)
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointError::Read(error) => {
                write!(f, "the noise checkpoint cannot be read: {error}")
            }
            CheckpointError::Version => write!(f, "this is not a noise checkpoint of version 1"),
            CheckpointError::Damaged => write!(f, "the noise checkpoint is damaged"),
            CheckpointError::OtherPlan => write!(f, "the checkpoint was made under another plan"),
            CheckpointError::OtherStrategy => {
                write!(f, "the noise checkpoint was made with another strategy matrix")
            }
            CheckpointError::OtherDimension { expected, found } => write!(
                f,
                "the noise checkpoint is for {found} parameters, but the model has {expected}"
            ),
        }
    }
}

impl std::error::Error for CheckpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CheckpointError::Read(error) => Some(error),
            _ => None,
        }
    }
}
