//! Which data a run was trained on, as its certificate says it: a hash that shows nothing else.
//!
//! A plain hash of private examples is a release that no noise covers: who knows all examples but one can try out that one.
//! So the hash is salted unless the data are public. The salt stays in the run folder, readable by its owner alone, and
//! `bandroot verify --data` needs it.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, ensure};
use dp_train::fingerprint::Fingerprint;

use super::folder::SALT;
use crate::config::Config;
use crate::files;

/// Draws the salt of a new run, if it needs one.
///
/// # Errors
/// If the system has no random bytes, or the file cannot be written.
pub fn begin(run: &Path, config: &Config) -> anyhow::Result<()> {
    if config.data.is_public() {
        return Ok(());
    }
    let mut salt = [0; 32];
    getrandom::fill(&mut salt)
        .map_err(|error| anyhow::anyhow!("no random bytes for a salt: {error}"))?;
    files::write_secret(&run.join(SALT), format!("{}\n", Fingerprint::from_bytes(salt)).as_bytes())
}

/// What the certificate of a run says of data with this hash; none if the salt is not in the folder.
///
/// # Errors
/// If the salt is there and cannot be read.
pub fn of(run: &Path, config: &Config, data: &Fingerprint) -> anyhow::Result<Option<Fingerprint>> {
    if config.data.is_public() {
        return Ok(Some(*data));
    }
    let path = run.join(SALT);
    let salt = match fs::read(&path) {
        Ok(salt) => salt,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(error).with_context(|| format!("could not read {}", path.display()));
        }
    };
    ensure!(salt.len() == 65, "{} is damaged: it holds 64 digits and a line break", path.display());
    let mut salted = salt;
    salted.extend_from_slice(data.bytes());
    Ok(Some(Fingerprint::of_bytes(&salted)))
}
