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

/// Draws the salt of a new run, if it needs one. A run that starts from another takes over the salt of that one: only
/// so can be seen whether data that come later are among those of all runs before.
///
/// # Errors
/// If the system has no random bytes, or a file cannot be read or written.
pub fn begin(run: &Path, config: &Config) -> anyhow::Result<()> {
    let taken_over = match &config.model.start_from {
        Some(source) => read(source)?,
        None => None,
    };
    if config.data.is_public() && taken_over.is_none() {
        return Ok(());
    }
    let salt = match taken_over {
        Some(salt) => salt,
        None => {
            let mut salt = [0; 32];
            getrandom::fill(&mut salt)
                .map_err(|error| anyhow::anyhow!("no random bytes for a salt: {error}"))?;
            format!("{}\n", Fingerprint::from_bytes(salt)).into_bytes()
        }
    };
    files::write_secret(&run.join(SALT), &salt)
}

/// What the certificate of a run says of data with this hash; none if the salt is not in the folder.
///
/// # Errors
/// If the salt is there and cannot be read.
pub fn of(run: &Path, config: &Config, data: &Fingerprint) -> anyhow::Result<Option<Fingerprint>> {
    if config.data.is_public() { Ok(Some(*data)) } else { salted(run, data) }
}

/// The hash of data that are not public, with the salt of a run; none if the salt is not in the folder.
///
/// # Errors
/// If the salt is there and cannot be read.
pub fn salted(run: &Path, data: &Fingerprint) -> anyhow::Result<Option<Fingerprint>> {
    let Some(mut salted) = read(run)? else { return Ok(None) };
    salted.extend_from_slice(data.bytes());
    Ok(Some(Fingerprint::of_bytes(&salted)))
}

/// The salt in the folder of a run, as it stands in its file; none if there is no such file.
fn read(run: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let path = run.join(SALT);
    let salt = match fs::read(&path) {
        Ok(salt) => salt,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(error).with_context(|| format!("could not read {}", path.display()));
        }
    };
    ensure!(salt.len() == 65, "{} is damaged: it holds 64 digits and a line break", path.display());
    Ok(Some(salt))
}
