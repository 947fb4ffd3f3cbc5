//! The folder of a run, which describes itself and can be verified.
//!
//! | file | what |
//! |---|---|
//! | `config.toml` | the config with all overrides, as it was run |
//! | `plan.json` | the privacy plan, made before any data was read |
//! | `environment.json` | program, commit, machine |
//! | `provenance.json` | of a run that started from another's parameters: the runs before it, and their data |
//! | `metrics.csv` | one line per epoch; no accuracy where `evaluation.every` leaves an epoch out |
//! | `events.out.tfevents.*` | the same and more, for TensorBoard, while the run goes on |
//! | `privacy.json` | the certificate; `bandroot verify` checks it |
//! | `parameters.safetensors` | the trained model, with PyTorch's names and layouts: the last iterate, or the average that `training.average` asks for |
//! | `summary.json` | what was reached, what is claimed |
//! | `continuations.json` | how far the run has got, to notice if a checkpoint is continued twice |
//! | `data-salt` | the salt of the training data's hash, for data that are not public; not to be published |
//! | `failed.json` | why a run of a sweep failed |
//! | `checkpoint-STEP.bin` | the last two states while the run goes on; secret, they hold the noise key |
//! | `summary.json.pending` | the summary of a run that has ended, until its secrets are gone |
//!
//! A run with `privacy = "none"` has neither plan nor certificate, and nothing to be noticed.
//!
//! A run ends in this order, and a crash in between loses nothing: the model and the certificate; the summary under
//! its pending name; then every checkpoint and everything half-written is removed; then the summary gets its
//! name. So a folder with a `summary.json` holds no noise key, and a folder with a pending one has only to be
//! tidied up.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use dp_train::certificate::Certificate;
use dp_train::continuations::Continuations;
use dp_train::ledger::Ledger;

use crate::BadArgument;
use crate::files;

/// The config with all overrides, as it was run.
pub const CONFIG: &str = "config.toml";

/// The plan, as a `PlanRecord`.
pub const PLAN: &str = "plan.json";

/// Program, commit and machine, as an `Environment`.
pub const ENVIRONMENT: &str = "environment.json";

/// The runs that the parameters before the first step came from, as a list of `Origin`.
pub const PROVENANCE: &str = "provenance.json";

/// One line per epoch, with the columns of `metrics::table`.
pub const METRICS: &str = "metrics.csv";

/// The `Certificate`.
pub const CERTIFICATE: &str = "privacy.json";

/// A certificate whose strategy was left out, in recorded results.
pub const ABRIDGED: &str = "privacy-abridged.json";

/// The trained model.
pub const PARAMETERS: &str = "parameters.safetensors";

/// What was reached, as a `Summary`; the last file of a run.
pub const SUMMARY: &str = "summary.json";

/// The same while there may still be secrets.
const PENDING: &str = "summary.json.pending";

/// How far the run has got, as `Continuations`.
pub const CONTINUATIONS: &str = "continuations.json";

/// The salt of the training data's hash, where the data are not public. Whoever has it can try out guesses of an
/// example against the certificate, so it is not to be published with the rest.
pub const SALT: &str = "data-salt";

/// Why a run of a sweep failed; written by the sweep.
pub const FAILED: &str = "failed.json";

/// A checkpoint that is bound to something else than what it was to be continued with; the sentence says what to do. The
/// program ends with a code of its own, because nothing is wrong with the run: elsewhere it goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ContinuationRefused(pub String);

/// The certificate in the folder of a run.
///
/// # Errors
/// If it is not there or damaged; it is named.
pub fn read_certificate(run: &Path) -> anyhow::Result<Certificate> {
    let path = run.join(CERTIFICATE);
    let text = fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))
}

/// How the names of TensorBoard's files begin.
pub const EVENTS: &str = "events.out.tfevents.";

/// Whether a run, or a sweep beside it, writes files of this name.
pub fn is_of_a_run(name: &str) -> bool {
    let written = [
        CONFIG,
        PLAN,
        ENVIRONMENT,
        PROVENANCE,
        METRICS,
        CERTIFICATE,
        PARAMETERS,
        CONTINUATIONS,
        FAILED,
        SALT,
        PENDING,
    ];
    written.contains(&name) || is_secret(name) || name.starts_with(EVENTS)
}

/// Whether a file of this name is a state of a run.
pub fn is_checkpoint(name: &str) -> bool {
    name.starts_with("checkpoint-") && name.ends_with(".bin")
}

/// Whether a file of this name can hold a noise key: a state, or what a crash left of one.
pub fn is_secret(name: &str) -> bool {
    is_checkpoint(name) || files::is_partial(name)
}

/// Whether a file of this name says that a run has ended but for its secrets.
pub fn is_pending(name: &str) -> bool {
    name == PENDING
}

/// The folder of one run, which one process at a time works on.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Held under a lock as long as this exists; the system drops it with the process, however that ends.
    _lock: Option<fs::File>,
}

/// Locks a folder. Two processes on one run would remove each other's states, and one that is late would write states
/// into a run that the other has finished.
///
/// # Errors
/// If another process has it.
fn lock(path: &Path) -> anyhow::Result<Option<fs::File>> {
    // Elsewhere than on Unix a folder cannot be opened.
    if cfg!(not(unix)) {
        return Ok(None);
    }
    let folder = fs::File::open(path)
        .with_context(|| format!("could not read the folder {}", path.display()))?;
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(fs::TryLockError::WouldBlock) => {
            bail!("another process is at work on {}; wait for it, or end it", path.display())
        }
        Err(fs::TryLockError::Error(error)) => {
            log::warn!(
                "{} cannot be locked ({error}); see to it that no other process works on it",
                path.display()
            );
            Ok(None)
        }
    }
}

impl RunFolder {
    /// Makes a new folder.
    ///
    /// # Errors
    /// If there is one already: a run is never written over.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("could not make the folder {}", parent.display()))?;
        }
        fs::create_dir(path).with_context(|| {
            format!("could not make the folder {} for a new run", path.display())
        })?;
        Ok(Self { path: path.to_owned(), _lock: lock(path)? })
    }

    /// A folder that is there.
    ///
    /// # Errors
    /// If it is not, or if another process is at work on it.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        Ok(Self { path: path.to_owned(), _lock: lock(path)? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file, whole or not at all.
    pub fn write(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        files::write(&self.file(name), content)
    }

    /// Notes how many steps of a private run can have been seen.
    pub fn note_released(&self, ledger: &Ledger) -> anyhow::Result<()> {
        let mut known = self.continuations()?;
        known.released(ledger);
        self.write(CONTINUATIONS, files::json(&known)?.as_bytes())
    }

    /// Says if a run is about to repeat steps that were released before. With the same data, seed and
    /// rates, which a continuation insists on, it releases the same numbers again and nothing is lost.
    ///
    /// # Errors
    /// If another run was trained in this folder: its steps would be left out of the certificate.
    pub fn check_continuation(&self, ledger: &Ledger) -> anyhow::Result<()> {
        let known = self.continuations()?;
        ensure!(
            !known.are_of_others(ledger),
            BadArgument(format!(
                "{}: the checkpoint is of run {}, but another run was trained here; continue it in its own folder",
                self.file(CONTINUATIONS).display(),
                ledger.run_id()
            ))
        );
        if let Some(steps) = known.repeated_steps(ledger) {
            log::warn!(
                "steps {} to {} of this run were taken before; they are repeated with \
                 the same noise on the same data, which releases nothing new",
                steps.start + 1,
                steps.end
            );
        }
        Ok(())
    }

    fn continuations(&self) -> anyhow::Result<Continuations> {
        let path = self.file(CONTINUATIONS);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is damaged", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Continuations::default()),
            Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
        }
    }

    /// Whether the summary is there.
    pub fn is_finished(&self) -> bool {
        self.file(SUMMARY).exists()
    }

    /// Ends a run whose other files are all written: the summary, but no secret.
    pub fn finish(&self, summary: &[u8]) -> anyhow::Result<()> {
        self.write(PENDING, summary)?;
        files::sync_folder(&self.path)?;
        self.tidy_up().map(drop)
    }

    /// Removes what a crash left half-written, which may hold a key; and all states if the run has ended. If it
    /// has, gives the content of its summary where that had not got its name yet.
    pub fn tidy_up(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let (pending, summary) = (self.file(PENDING), self.file(SUMMARY));
        let content = match fs::read(&pending) {
            Ok(content) if self.is_complete(&content) => Some(content),
            Ok(_) => {
                // Not the end of this run: what it would have removed is still needed.
                fs::remove_file(&pending)
                    .with_context(|| format!("could not remove {}", pending.display()))?;
                None
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("could not read {}", pending.display()));
            }
        };
        let ended = content.is_some() || self.is_finished();
        for path in
            self.files(|name| if ended { is_secret(name) } else { files::is_partial(name) })?
        {
            fs::remove_file(&path)
                .with_context(|| format!("could not remove {}", path.display()))?;
        }
        files::sync_folder(&self.path)?;
        if content.is_some() {
            fs::rename(&pending, &summary)
                .with_context(|| format!("could not write {}", summary.display()))?;
            files::sync_folder(&self.path)?;
        }
        Ok(content)
    }

    /// Whether a summary is that of the model, and of the certificate if it claims anything, in this folder.
    fn is_complete(&self, summary: &[u8]) -> bool {
        let read = |name: &str| {
            let bytes = fs::read(self.file(name)).ok()?;
            serde_json::from_slice::<serde_json::Value>(&bytes).ok()
        };
        let Ok(summary) = serde_json::from_slice::<serde_json::Value>(summary) else {
            return false;
        };
        let certified = || {
            read(CERTIFICATE).is_some_and(|certificate| {
                certificate["statement"] == summary["statement"]
                    && certificate["realised"]["steps"] == summary["steps"]
            })
        };
        let whole = summary["statement"].is_string() && summary["steps"].is_u64();
        whole && self.file(PARAMETERS).is_file() && (summary["epsilon"].is_null() || certified())
    }

    /// The files whose names are wanted.
    pub(super) fn files(&self, wanted: impl Fn(&str) -> bool) -> anyhow::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.path)
            .with_context(|| format!("could not read the folder {}", self.path.display()))?;
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if wanted(path.file_name().and_then(|name| name.to_str()).unwrap_or_default()) {
                found.push(path);
            }
        }
        Ok(found)
    }
}
