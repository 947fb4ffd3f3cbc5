//! Solved factorizations on disk, so that no optimum is computed twice.
//!
//! One file per problem, named by the hash of its key: the workload (`alpha`, `beta`, `n`, the learning
//! rates), the bands and the tolerance. A file holds a format version, the key, the certificate, the rows
//! of `C` as 64-bit floats, and a SHA-256 of all that. It is written beside its place and renamed, so
//! a file is whole or absent; one that is neither (bit rot, another version) is reported and the problem is
//! solved again. Only converged solutions are kept. A right checksum only says that nothing changed since
//! someone wrote it: that the certificate is the one of these rows is checked as well.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io::{BufReader, BufWriter, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Factorization;
use super::aof::{Certificate, Options, Progress, relative_gap};
use crate::banded::BandedLower;
use crate::error::Result;
use crate::sealed::{SealedError, SealedReader, SealedWriter};
use crate::workload::Workload;

/// Changes whenever the layout of a file or the meaning of its content does.
const FORMAT: &[u8; 16] = b"bandroot aof 01\n";

/// How far a recorded number may be from its re-derivation, relatively.
const ROUNDING: f64 = 1e-8;

/// A folder of solved factorizations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    folder: PathBuf,
}

/// A factorization with where it came from.
#[derive(Debug, Clone)]
pub struct Cached {
    /// The factorization, found or solved.
    pub factorization: Factorization,
    /// Whether it was found in the cache.
    pub found: bool,
    /// A damaged entry that was replaced, or why the solution could not be stored. The factorization is
    /// right all the same.
    pub warning: Option<String>,
}

/// What makes two problems the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Key {
    decay_factor: f64,
    momentum: f64,
    steps: usize,
    /// SHA-256 of the learning rates' bits; absent if they are constant.
    learning_rates: Option<String>,
    bands: usize,
    tolerance: f64,
}

#[derive(Serialize, Deserialize)]
struct Header {
    key: Key,
    certificate: Certificate,
}

impl Cache {
    /// A cache in this folder, which is made when the first entry is stored.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The optimal factorization of a workload, from the cache or solved and stored there; see
    /// [`Factorization::aof`]. A general workload has no key and is refused as it is there.
    ///
    /// # Errors
    /// Those of the solver. Trouble with the disk is a warning, not an error.
    pub fn aof(
        &self,
        workload: Workload,
        bands: usize,
        options: &Options,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Cached> {
        let Some(key) = Key::of(&workload, bands, options.relative_gap) else {
            let factorization = Factorization::aof(workload, bands, options, progress)?;
            return Ok(Cached { factorization, found: false, warning: None });
        };
        let path = self.folder.join(key.file_name());
        let mut warning = None;
        let loaded = load(&path, &key).and_then(|entry| {
            let (rows, certificate) = match entry {
                Some(entry) => entry,
                None => return Ok(None),
            };
            believed(workload.clone(), rows, certificate, options.relative_gap).map(Some)
        });
        match loaded {
            Ok(Some(factorization)) => {
                return Ok(Cached { factorization, found: true, warning: None });
            }
            Ok(None) => {}
            Err(reason) => {
                warning = Some(format!("{} is damaged ({reason}) and is replaced", path.display()));
            }
        }
        let factorization = Factorization::aof(workload, bands, options, progress)?;
        if let Some(certificate) = factorization.certificate().filter(|c| c.converged)
            && let Err(reason) = self.store(&path, &key, &factorization, certificate)
        {
            warning = Some(format!("{} could not be written: {reason}", path.display()));
        }
        Ok(Cached { factorization, found: false, warning })
    }

    fn store(
        &self,
        path: &Path,
        key: &Key,
        factorization: &Factorization,
        certificate: &Certificate,
    ) -> std::result::Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let rows = factorization.strategy().to_rows().map_err(|e| text(&e))?;
        let header = Header { key: key.clone(), certificate: certificate.clone() };
        let header = serde_json::to_vec(&header).map_err(|e| text(&e))?;
        fs::create_dir_all(&self.folder).map_err(|e| text(&e))?;
        let temporary = path.with_extension(format!("{:016x}.partial", random()));
        // Never into a file that is there: another process may be writing it.
        let written = File::create_new(&temporary).and_then(|file| {
            let mut file = SealedWriter::new(BufWriter::new(file), FORMAT)?;
            file.put_part(&header)?;
            file.put_numbers(rows.entries(), f64::to_le_bytes)?;
            file.finish()?.get_ref().sync_all()?;
            fs::rename(&temporary, path)
        });
        written.map_err(|error| {
            drop(fs::remove_file(&temporary));
            text(&error)
        })
    }
}

impl Key {
    fn of(workload: &Workload, bands: usize, tolerance: f64) -> Option<Self> {
        let sgd = workload.as_sgd()?;
        let learning_rates = workload.learning_rates().map(|rates| {
            let mut hash = Sha256::new();
            rates.iter().for_each(|rate| hash.update(rate.to_le_bytes()));
            hexadecimal(&hash.finalize())
        });
        Some(Self {
            decay_factor: sgd.decay_factor(),
            momentum: sgd.momentum(),
            steps: workload.steps(),
            learning_rates,
            bands,
            tolerance,
        })
    }

    fn file_name(&self) -> String {
        // Debug prints every float so that it reads back as the same one.
        let digest = Sha256::digest(format!("{self:?}"));
        format!("aof-n{}-b{}-{}.bin", self.steps, self.bands, &hexadecimal(&digest)[..16])
    }
}

/// A number that no other process draws, on whatever machine: those of two can have one process number. What the
/// standard library keys its hash maps with comes from the operating system.
fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The rows and the certificate in a file; `None` if there is no file, and a reason if it is not what it
/// should be.
fn load(path: &Path, key: &Key) -> std::result::Result<Option<(BandedLower, Certificate)>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let text = |error: SealedError| error.to_string();
    let mut sealed = SealedReader::new(BufReader::new(file), FORMAT).map_err(text)?;
    let header = sealed.part().map_err(text)?;
    let header: Header = serde_json::from_slice(&header).map_err(|error| error.to_string())?;
    // Before the rows, of which another problem has another number.
    if header.key != *key {
        return Err("it belongs to another problem".into());
    }
    let mut entries = vec![0.0; key.steps.saturating_mul(key.bands)];
    sealed.numbers(&mut entries, f64::from_le_bytes).map_err(text)?;
    if sealed.finish().map_err(text)?.bytes().next().is_some() {
        return Err("it is longer than it should be".into());
    }
    let rows =
        BandedLower::from_entries(key.steps, key.bands, entries).map_err(|e| e.to_string())?;
    rows.check_invertible().map_err(|error| error.to_string())?;
    Ok(Some((rows, header.certificate)))
}

/// The factorization of an entry whose certificate is that of its rows: unit columns, and `||A C^-1||_F^2` between
/// the two bounds whose gap it states. That the lower one holds only the solver can tell. O(n p^2), as the
/// loss of a plan.
fn believed(
    workload: Workload,
    rows: BandedLower,
    certificate: Certificate,
    tolerance: f64,
) -> std::result::Result<Factorization, String> {
    // Not a number is not near.
    let near = |found: f64, expected: f64| (found / expected - 1.0).abs() <= ROUNDING;
    if !rows.column_norms_squared().into_iter().all(|squared| near(squared, 1.0)) {
        return Err("its columns are not of unit norm".into());
    }
    let Certificate { objective, lower_bound, relative_gap: gap, converged, .. } = certificate;
    let stated = relative_gap(objective, lower_bound);
    let possible = lower_bound > 0.0 && lower_bound <= objective * (1.0 + ROUNDING);
    let same = (gap - stated).abs() <= ROUNDING * tolerance;
    if !(converged && possible && same && gap <= tolerance) {
        return Err("its certificate contradicts itself".into());
    }
    let text = |error: crate::error::Error| error.to_string();
    let factorization =
        Factorization::from_aof(workload, rows, certificate, tolerance).map_err(text)?;
    let value = factorization.decoder_norms().map_err(text)?.frobenius_squared;
    let bounds = lower_bound * (1.0 - ROUNDING)..=objective * (1.0 + ROUNDING);
    if !bounds.contains(&value) {
        return Err("its certificate is not that of its rows".into());
    }
    Ok(factorization)
}
