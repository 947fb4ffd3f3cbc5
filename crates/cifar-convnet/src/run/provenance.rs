//! `provenance.json`: the runs that a run's first parameters came from, private or not.
//!
//! A private run has the same list in its certificate. A run without privacy has no certificate, and what is trained
//! on top of it must still know.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;
use dp_train::fingerprint::Fingerprint;
use dp_train::provenance::Origin;

use super::folder::PROVENANCE;
use crate::files;

/// The bytes of the file.
pub(super) fn bytes(provenance: &[Origin]) -> anyhow::Result<Vec<u8>> {
    Ok(files::json(&provenance)?.into_bytes())
}

/// SHA-256 of the list, as a checkpoint is bound to it.
pub(super) fn sha256(provenance: &[Origin]) -> anyhow::Result<Fingerprint> {
    Ok(Fingerprint::of_bytes(&bytes(provenance)?))
}

/// The list in the folder of a run; none if it has no such file.
///
/// # Errors
/// If the file is there and cannot be read.
pub(super) fn read(run: &Path) -> anyhow::Result<Option<Vec<Origin>>> {
    let path = run.join(PROVENANCE);
    match fs::read(&path) {
        Ok(bytes) => {
            let list = serde_json::from_slice(&bytes);
            list.map(Some).with_context(|| format!("{} is damaged", path.display()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
    }
}
