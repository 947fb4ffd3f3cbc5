//! The parts of a checkpoint: numbers and byte strings one after the other, sealed with SHA-256.

use std::io::Read;

use sha2::{Digest, Sha256};

use super::checkpoint::ResumeError;

/// No part of a checkpoint is longer; a length beyond it is damage, not a reason to allocate.
const LONGEST: u64 = 1 << 36;

/// SHA-256 of the rate and of the factor of every step: a run goes on with the rates that it began with.
pub(super) fn rates_digest(learning_rate: f32, factors: Option<&[f64]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(learning_rate.to_bits().to_le_bytes());
    for factor in factors.into_iter().flatten() {
        hash.update(factor.to_bits().to_le_bytes());
    }
    hash.finalize().into()
}

/// A checkpoint that is being written.
pub(super) struct Parts(Vec<u8>);

impl Parts {
    pub(super) fn new(version: &[u8; 16]) -> Self {
        Self(version.to_vec())
    }

    /// Bytes whose number is known to who reads them.
    pub(super) fn put_array(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Bytes with their length in front.
    pub(super) fn put(&mut self, part: &[u8]) {
        self.0.extend_from_slice(&(part.len() as u64).to_le_bytes());
        self.0.extend_from_slice(part);
    }

    pub(super) fn put_floats(&mut self, values: &[f32]) {
        self.put(&values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    }

    /// All of it with its SHA-256 at the end.
    pub(super) fn seal(mut self) -> Vec<u8> {
        let digest = Sha256::digest(&self.0);
        self.0.extend_from_slice(&digest);
        self.0
    }
}

/// Reads the parts in the order in which they were written, and hashes them.
pub(super) struct Sealed<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Sealed<R> {
    pub(super) fn new(inner: R, version: &[u8; 16]) -> Result<Self, ResumeError> {
        let mut sealed = Self { inner, hash: Sha256::new() };
        if sealed.array::<16>()? == *version { Ok(sealed) } else { Err(ResumeError::Version) }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ResumeError> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes)?;
        self.hash.update(bytes);
        Ok(bytes)
    }

    pub(super) fn part(&mut self) -> Result<Vec<u8>, ResumeError> {
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

    pub(super) fn floats(&mut self) -> Result<Vec<f32>, ResumeError> {
        let bytes = self.part()?;
        let (floats, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(ResumeError::Checksum);
        }
        Ok(floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// Checks the seal; what follows it in the file is the caller's.
    pub(super) fn open(mut self) -> Result<R, ResumeError> {
        let mut digest = [0; 32];
        self.inner.read_exact(&mut digest)?;
        if digest[..] == self.hash.finalize()[..] {
            Ok(self.inner)
        } else {
            Err(ResumeError::Checksum)
        }
    }
}
