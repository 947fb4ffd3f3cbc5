//! Checkpoints of a run: all of its state as bytes, from which it continues bit by bit.
//!
//! [Sealed](mf_core::sealed): a version, the [`Seal`], the seed, SHA-256 of the learning rates and of the plan, the parameters, the
//! momentum, the average if one is kept, the ledger, a note of the caller's, and then the state of the mechanism with a checksum of its own. A
//! checkpoint holds the noise key: it is as confidential as the data.

use std::io::{self, Read, Write};

use mf_core::sealed::{SealedError, SealedReader, SealedWriter};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::descent::{Descent, Rates};
use super::{Training, average};
use crate::batches::Batches;
use crate::ledger::Ledger;
use crate::mechanism::Mechanism;
use crate::noise::checkpoint::CheckpointError;
use crate::plan::{DpPlan, PlanRequest};
use crate::seal::{Seal, SealDifference};
use crate::seeds::RunSeed;

const VERSION: &[u8; 16] = b"bandroot run 05\n";

impl Training {
    /// Writes the state, with the seal that a continuation must agree with and a note of the caller's (say, the
    /// metrics so far). O(p d).
    ///
    /// # Errors
    /// Those of the writer.
    pub fn save(&self, writer: impl Write, seal: &Seal, note: &[u8]) -> io::Result<()> {
        let mut file = SealedWriter::new(writer, VERSION)?;
        self.descent.put_identity(&mut file, seal)?;
        file.put(&plan_digest(&self.plan)?)?;
        self.descent.put_state(&mut file)?;
        file.put_part(&serde_json::to_vec(&self.ledger)?)?;
        file.put_part(note)?;
        self.mechanism.save(file.finish()?)
    }

    /// The run that [`save`](Self::save) wrote, and the note. Notes in its ledger that it continues here. An average
    /// that it kept goes on.
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
        let mut file = SealedReader::new(reader, VERSION)?;
        let identity = Identity::read(&mut file)?;
        let digest = file.array()?;
        let (parameters, momentum) = (file.floats()?, file.floats()?);
        let average = average::read(&mut file, plan.request().steps, parameters.len())?;
        let ledger = file.part()?;
        let note = file.part()?;
        let mut rest = file.finish()?;
        let request = plan.request();
        let rates = Rates { learning_rate, factors: request.learning_rates.clone() };
        identity.check(seal, seed, &rates)?;
        let same_plan = digest == plan_digest(&plan)?;
        if !same_plan || [parameters.len(), momentum.len()] != [request.dim; 2] {
            return Err(ResumeError::OtherRun);
        }
        let mut ledger: Ledger =
            serde_json::from_slice(&ledger).map_err(|_| ResumeError::Checksum)?;
        let mechanism = Mechanism::load(&plan, &mut rest)?;
        check_end(rest)?;
        // The key of the checkpoint gives the same slots again.
        let batches = Batches::of(request, examples, seed, mechanism.key());
        let batches = batches.map_err(|_| ResumeError::OtherRun)?;
        let taken = mechanism.next_step();
        let same_data = ledger.realized().examples == examples as usize
            && ledger.participation() == plan.participation()
            && batches.cycle() >= request.min_separation
            && request.examples.is_none_or(|planned| planned == u64::from(examples));
        if !same_data || ledger.next_step() != taken {
            return Err(ResumeError::OtherRun);
        }
        ledger.continue_here();
        let descent = Descent::new(request.sgd, rates, parameters, batches, seed);
        let descent = descent.resumed(request.sgd, momentum, taken, average);
        Ok((Self { plan, descent, mechanism, ledger }, note))
    }
}

/// SHA-256 of what was asked for and of the strategy: a run goes on with the plan that it began with, momentum and
/// decay included. How many rows of noise are kept may change.
fn plan_digest(plan: &DpPlan) -> io::Result<[u8; 32]> {
    let request = PlanRequest { keep_rows: None, ..plan.request().clone() };
    let mut hash = Sha256::new();
    hash.update(serde_json::to_vec(&request)?);
    hash.update(plan.record().strategy_sha256.bytes());
    Ok(hash.finalize().into())
}

/// That nothing follows.
pub(super) fn check_end(mut rest: impl Read) -> Result<(), ResumeError> {
    if rest.read(&mut [0])? == 0 { Ok(()) } else { Err(ResumeError::Checksum) }
}

impl Descent {
    /// Writes what a continuation must agree with.
    pub(super) fn put_identity<W: Write>(
        &self,
        file: &mut SealedWriter<W>,
        seal: &Seal,
    ) -> io::Result<()> {
        file.put_part(&serde_json::to_vec(seal)?)?;
        file.put(&self.seed.0.to_le_bytes())?;
        file.put(&self.rates.digest())
    }

    /// Writes what the steps have changed.
    pub(super) fn put_state<W: Write>(&self, file: &mut SealedWriter<W>) -> io::Result<()> {
        file.put_floats(&self.parameters)?;
        file.put_floats(self.momentum.buffer())?;
        average::put(self.average.as_ref(), file)
    }
}

/// What a checkpoint says of the run that it belongs to.
pub(super) struct Identity {
    seal: Vec<u8>,
    seed: RunSeed,
    rates: [u8; 32],
}

impl Identity {
    pub(super) fn read<R: Read>(file: &mut SealedReader<R>) -> Result<Self, ResumeError> {
        let seal = file.part()?;
        let seed = RunSeed(u64::from_le_bytes(file.array()?));
        Ok(Self { seal, seed, rates: file.array()? })
    }

    /// That it is the run that is to go on.
    pub(super) fn check(
        &self,
        now: &Seal,
        seed: RunSeed,
        rates: &Rates,
    ) -> Result<(), ResumeError> {
        let sealed: Seal = serde_json::from_slice(&self.seal).map_err(|_| ResumeError::Checksum)?;
        if let Some(difference) = sealed.difference(now) {
            return Err(ResumeError::Sealed(difference));
        }
        if self.seed != seed || self.rates != rates.digest() {
            return Err(ResumeError::OtherRun);
        }
        Ok(())
    }
}

/// Why a run cannot be resumed.
#[derive(Debug, Error)]
pub enum ResumeError {
    /// Another format or version.
    #[error("it is not a checkpoint of this version")]
    Version,
    /// Damaged or cut short.
    #[error("it is damaged or cut short")]
    Checksum,
    /// Something that the gradients depend on is not what it was.
    #[error("{0}")]
    Sealed(SealDifference),
    /// Another plan, seed, learning rate or schedule, model or data set.
    #[error("it belongs to another plan, seed, learning rate or schedule, model or data set")]
    OtherRun,
    /// The state of the mechanism is damaged or of another plan.
    #[error(transparent)]
    Mechanism(#[from] CheckpointError),
    /// It could not be read.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for ResumeError {
    fn from(error: io::Error) -> Self {
        SealedError::from(error).into()
    }
}

impl From<SealedError> for ResumeError {
    fn from(error: SealedError) -> Self {
        match error {
            SealedError::Version => ResumeError::Version,
            SealedError::Damaged => ResumeError::Checksum,
            SealedError::Io(error) => ResumeError::Io(error),
        }
    }
}
