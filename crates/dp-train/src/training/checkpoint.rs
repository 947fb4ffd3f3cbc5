//! Checkpoints of a run: all of its state as bytes, from which it continues bit by bit.
//!
//! In little-endian order: a version, the seed, the learning rate, the parameters, the momentum, the ledger,
//! a note of the caller's, SHA-256 of all that, and then the state of the mechanism with a checksum of its
//! own. A checkpoint holds the noise key: it is as confidential as the data.

use std::fmt;
use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

use super::Training;
use crate::batches::Batches;
use crate::ledger::Ledger;
use crate::mechanism::Mechanism;
use crate::noise::checkpoint::CheckpointError;
use crate::plan::DpPlan;
use crate::seeds::RunSeed;
use crate::update::Momentum;

const VERSION: &[u8; 16] = b"bandroot run 01\n";

/// No part of a checkpoint is longer; a length beyond it is damage, not a reason to allocate.
const LONGEST: u64 = 1 << 36;

impl Training {
    /// Writes the state, with a note of the caller's (say, the metrics so far). O(p d).
    ///
    /// # Errors
    /// Those of the writer.
    pub fn save(&self, mut writer: impl Write, note: &[u8]) -> io::Result<()> {
        let ledger = serde_json::to_vec(&self.ledger)?;
        let mut bytes = VERSION.to_vec();
        bytes.extend_from_slice(&self.seed.0.to_le_bytes());
        bytes.extend_from_slice(&self.learning_rate.to_bits().to_le_bytes());
        for values in [&self.parameters[..], self.momentum.buffer()] {
            put(&mut bytes, &values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        }
        put(&mut bytes, &ledger);
        put(&mut bytes, note);
        writer.write_all(&bytes)?;
        writer.write_all(&Sha256::digest(&bytes))?;
        self.mechanism.save(writer)
    }

    /// The run that [`save`](Self::save) wrote, and the note. Notes in its ledger that it continues here.
    ///
    /// # Errors
    /// [`ResumeError`] if the bytes are damaged or belong to another plan, seed, rate or data set.
    pub fn load(
        plan: DpPlan,
        examples: u32,
        learning_rate: f32,
        seed: RunSeed,
        reader: impl Read,
    ) -> Result<(Self, Vec<u8>), ResumeError> {
        let mut input = Hashing { inner: reader, hash: Sha256::new() };
        if input.array::<16>()? != *VERSION {
            return Err(ResumeError::Version);
        }
        let found_seed = RunSeed(u64::from_le_bytes(input.array()?));
        let found_rate = f32::from_bits(u32::from_le_bytes(input.array()?));
        let (parameters, momentum) = (input.floats()?, input.floats()?);
        let ledger = input.part()?;
        let note = input.part()?;
        let Hashing { mut inner, hash } = input;
        let mut digest = [0; 32];
        inner.read_exact(&mut digest)?;
        if digest[..] != hash.finalize()[..] {
            return Err(ResumeError::Checksum);
        }
        let request = plan.request();
        let lengths = [parameters.len(), momentum.len()];
        if found_seed != seed || found_rate != learning_rate || lengths != [request.dim; 2] {
            return Err(ResumeError::OtherRun);
        }
        let mut ledger: Ledger =
            serde_json::from_slice(&ledger).map_err(|_| ResumeError::Checksum)?;
        let mechanism = Mechanism::load(&plan, inner)?;
        let batches = Batches::new(examples, request.batch_size, seed);
        let batches = batches.map_err(|_| ResumeError::OtherRun)?;
        let same_data = ledger.realised().examples == examples as usize
            && ledger.participation() == plan.participation()
            && batches.per_epoch() >= request.min_separation;
        if !same_data || ledger.next_step() != mechanism.next_step() {
            return Err(ResumeError::OtherRun);
        }
        ledger.continue_here();
        let momentum = Momentum::with_buffer(request.sgd, momentum);
        let training =
            Self { plan, seed, learning_rate, parameters, momentum, mechanism, batches, ledger };
        Ok((training, note))
    }
}

/// Appends a part with its length in front.
fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part);
}

/// Reads and hashes what it reads.
struct Hashing<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Hashing<R> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ResumeError> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes)?;
        self.hash.update(bytes);
        Ok(bytes)
    }

    fn part(&mut self) -> Result<Vec<u8>, ResumeError> {
        let len = u64::from_le_bytes(self.array()?);
        if len > LONGEST {
            return Err(ResumeError::Checksum);
        }
        // By what is there, not by what the length claims: a damaged length must not allocate.
        let mut bytes = Vec::new();
        self.inner.by_ref().take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != len {
            return Err(ResumeError::Checksum);
        }
        self.hash.update(&bytes);
        Ok(bytes)
    }

    fn floats(&mut self) -> Result<Vec<f32>, ResumeError> {
        let bytes = self.part()?;
        let (floats, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(ResumeError::Checksum);
        }
        Ok(floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

/// Why a run cannot be taken up.
#[derive(Debug)]
pub enum ResumeError {
    /// Another format or version.
    Version,
    /// Damaged or cut short.
    Checksum,
    /// Another seed, learning rate, model or data set.
    OtherRun,
    /// The state of the mechanism is damaged or of another plan.
    Mechanism(CheckpointError),
    /// It could not be read.
    Io(io::Error),
}

impl From<io::Error> for ResumeError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => ResumeError::Checksum,
            _ => ResumeError::Io(error),
        }
    }
}

impl From<CheckpointError> for ResumeError {
    fn from(error: CheckpointError) -> Self {
        ResumeError::Mechanism(error)
    }
}

impl fmt::Display for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResumeError::Version => write!(f, "it is not a checkpoint of this version"),
            ResumeError::Checksum => write!(f, "it is damaged or cut short"),
            ResumeError::OtherRun => {
                write!(f, "it belongs to another seed, learning rate, model or data set")
            }
            ResumeError::Mechanism(error) => error.fmt(f),
            ResumeError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResumeError {}
