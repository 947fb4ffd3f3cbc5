//! Checkpoints of a run: all of its state as bytes, from which it continues bit by bit.
//!
//! In little-endian order: a version, the [`Seal`], the seed, SHA-256 of the learning rates, the parameters, the
//! momentum, the ledger, a note of the caller's, SHA-256 of all that, and then the state of the mechanism with a
//! checksum of its own. A checkpoint holds the noise key: it is as confidential as the data.

use std::fmt;
use std::io::{self, Read, Write};

use super::Training;
use super::parts::{Parts, Sealed, rates_digest};
use crate::batches::Batches;
use crate::ledger::Ledger;
use crate::mechanism::Mechanism;
use crate::noise::checkpoint::CheckpointError;
use crate::plan::DpPlan;
use crate::seal::{Seal, SealDifference};
use crate::seeds::RunSeed;
use crate::update::Momentum;

const VERSION: &[u8; 16] = b"bandroot run 03\n";

impl Training {
    /// Writes the state, with the seal that a continuation must agree with and a note of the caller's (say, the
    /// metrics so far). O(p d).
    ///
    /// # Errors
    /// Those of the writer.
    pub fn save(&self, mut writer: impl Write, seal: &Seal, note: &[u8]) -> io::Result<()> {
        let mut parts = Parts::new(VERSION);
        parts.put(&serde_json::to_vec(seal)?);
        parts.put_array(&self.seed.0.to_le_bytes());
        parts.put_array(&self.rates_digest());
        parts.put_floats(&self.parameters);
        parts.put_floats(self.momentum.buffer());
        parts.put(&serde_json::to_vec(&self.ledger)?);
        parts.put(note);
        writer.write_all(&parts.seal())?;
        self.mechanism.save(writer)
    }

    fn rates_digest(&self) -> [u8; 32] {
        rates_digest(self.learning_rate, self.plan.request().learning_rates.as_deref())
    }

    /// The run that [`save`](Self::save) wrote, and the note. Notes in its ledger that it continues here.
    ///
    /// # Errors
    /// [`ResumeError`] if the bytes are damaged, were sealed for something else, or belong to another plan, seed,
    /// rate or data set.
    pub fn load(
        plan: DpPlan,
        examples: u32,
        learning_rate: f32,
        seed: RunSeed,
        seal: &Seal,
        reader: impl Read,
    ) -> Result<(Self, Vec<u8>), ResumeError> {
        let mut parts = Sealed::new(reader, VERSION)?;
        let sealed = parts.part()?;
        let found_seed = RunSeed(u64::from_le_bytes(parts.array()?));
        let found_rates: [u8; 32] = parts.array()?;
        let (parameters, momentum) = (parts.floats()?, parts.floats()?);
        let ledger = parts.part()?;
        let note = parts.part()?;
        let inner = parts.open()?;
        check_seal(&sealed, seal)?;
        let request = plan.request();
        let lengths = [parameters.len(), momentum.len()];
        let rates = rates_digest(learning_rate, request.learning_rates.as_deref());
        if found_seed != seed || found_rates != rates || lengths != [request.dim; 2] {
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

/// That the seal in a checkpoint is the one of the run that is to go on.
pub(super) fn check_seal(sealed: &[u8], now: &Seal) -> Result<(), ResumeError> {
    let sealed: Seal = serde_json::from_slice(sealed).map_err(|_| ResumeError::Checksum)?;
    sealed.difference(now).map_or(Ok(()), |difference| Err(ResumeError::Sealed(difference)))
}

/// Why a run cannot be taken up.
#[derive(Debug)]
pub enum ResumeError {
    /// Another format or version.
    Version,
    /// Damaged or cut short.
    Checksum,
    /// Something that the gradients depend on is not what it was.
    Sealed(SealDifference),
    /// Another seed, learning rate or schedule, model or data set.
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
            ResumeError::Sealed(difference) => difference.fmt(f),
            ResumeError::OtherRun => {
                write!(
                    f,
                    "it belongs to another seed, learning rate or schedule, model or data set"
                )
            }
            ResumeError::Mechanism(error) => error.fmt(f),
            ResumeError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResumeError {}
