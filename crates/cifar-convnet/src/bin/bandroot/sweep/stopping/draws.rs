//! What a search with random stopping draws before its first run, and the folder that keeps it.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use dp_train::accounting::stopping::StoppingLaw;
use dp_train::fingerprint::Fingerprint;
use dp_train::score::SecretCoins;
use serde::{Deserialize, Serialize};

use super::publication::CHOSEN;
use crate::sweep::attempts;
use cifar_convnet::BadArgument;
use cifar_convnet::files;

/// What was drawn.
pub(super) const DRAWS: &str = "draws.json";

/// Held by the process that is at it.
const LOCK: &str = "lock";

/// Where the runner keeps claims, configs and logs.
const NOTES: &str = ".sweep";

/// What was drawn before the first run. Secret: how many there are, above all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Draws {
    mean: f64,
    shape: f64,
    /// SHA-256 of all configs that the settings make.
    configs: Fingerprint,
    pub(super) runs: Vec<Draw>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Draw {
    pub(super) setting: usize,
    pub(super) seed: u64,
}

/// The folder of the runs, and a lock on it that is held to the end: two processes would make two choices.
///
/// # Errors
/// If it is a link, holds files but no draws, or another process has it.
pub(super) fn alone(secret: &Path) -> anyhow::Result<fs::File> {
    let shown = secret.display();
    ensure!(!secret.is_symlink(), "{shown} is a link: what it leads to would be left at the end");
    // The lock is the first file of a search and the last: with it, the others may be half written until it is ours.
    refuse_undrawn(secret, LOCK)?;
    let path = secret.join(LOCK);
    let context = || format!("could not lock {}", path.display());
    let file = loop {
        fs::create_dir_all(secret).with_context(|| format!("could not make the folder {shown}"))?;
        match fs::OpenOptions::new().create(true).append(true).open(&path) {
            // Another process has ended, and removed the folder in between.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            file => break file.with_context(context)?,
        }
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::Error(error)) if files::has_no_locks(&error) => {
            eprintln!("bandroot: warning: {shown} cannot be locked: run one process only");
        }
        Err(fs::TryLockError::Error(error)) => return Err(error).with_context(context),
        Err(fs::TryLockError::WouldBlock) => {
            bail!("another process is at this search: {shown} is locked")
        }
    }
    if secret.exists() {
        refuse_undrawn(secret, DRAWS)?;
        only_for_us(secret)?;
    }
    Ok(file)
}

/// That the folder has the file that says whose it is, or nothing but a lock.
fn refuse_undrawn(secret: &Path, sign: &str) -> anyhow::Result<()> {
    let names = attempts::names(secret)?;
    ensure!(
        names.iter().any(|name| name == sign || name == DRAWS)
            || names.iter().all(|name| name == LOCK),
        "{} holds files that no search has drawn: move them, or remove what a search left, which is secret",
        secret.display()
    );
    Ok(())
}

/// That the folder holds nothing but the search and the runs of these names.
pub(super) fn refuse_foreign(secret: &Path, runs: &[String]) -> anyhow::Result<()> {
    let ours = [DRAWS, LOCK, NOTES, CHOSEN];
    let names = attempts::names(secret)?;
    let foreign = names.iter().find(|name| !ours.contains(&name.as_str()) && !runs.contains(name));
    match foreign {
        Some(name) => bail!(
            "{} is not of the search, and would be removed with it at the end: move it, and give the same command again",
            secret.join(name).display()
        ),
        None => Ok(()),
    }
}

/// Removes the folder, the draws last: whoever is killed in between goes on with the same command.
pub(super) fn remove(secret: &Path, runs: &[String]) -> anyhow::Result<()> {
    refuse_foreign(secret, runs)?;
    let context =
        || format!("could not remove all of {}: remove it, it is secret", secret.display());
    for name in attempts::names(secret)?.iter().filter(|name| *name != DRAWS && *name != LOCK) {
        let path = secret.join(name);
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }
            .with_context(context)?;
    }
    for name in [DRAWS, LOCK] {
        let path = secret.join(name);
        if path.exists() {
            fs::remove_file(&path).with_context(context)?;
        }
    }
    match fs::remove_dir(secret) {
        // Whoever came meanwhile finds the choice made, and removes what it has made itself.
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) =>
        {
            refuse_foreign(secret, runs)
        }
        removed => removed.with_context(context),
    }
}

#[cfg(unix)]
fn only_for_us(folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
        .with_context(|| format!("could not close {} to others", folder.display()))
}

#[cfg(not(unix))]
fn only_for_us(_: &Path) -> anyhow::Result<()> {
    Ok(())
}

/// What was drawn for this folder, now or before.
pub(super) fn drawn(
    law: &StoppingLaw,
    (settings, configs): (usize, Fingerprint),
    secret: &Path,
) -> anyhow::Result<Draws> {
    let path = secret.join(DRAWS);
    if path.exists() {
        let text = fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
        let draws: Draws = serde_json::from_slice(&text).with_context(|| {
            format!("{} is damaged: this search cannot go on; begin another", path.display())
        })?;
        let same =
            draws.mean == law.mean() && draws.shape == law.shape() && draws.configs == configs;
        ensure!(
            same && draws.runs.iter().all(|draw| draw.setting < settings),
            BadArgument(format!(
                "{} was drawn for another --random-stopping or other settings: go on with those, or take another --out",
                secret.display()
            ))
        );
        return Ok(draws);
    }
    let mut coins = SecretCoins::from_os()?;
    let count = coins.runs(law);
    let mut draw = || Draw { setting: coins.below(settings as u32) as usize, seed: coins.seed() };
    let runs = (0..count).map(|_| draw()).collect();
    let draws = Draws { mean: law.mean(), shape: law.shape(), configs, runs };
    files::write_secret(&path, files::json(&draws)?.as_bytes())?;
    Ok(draws)
}
