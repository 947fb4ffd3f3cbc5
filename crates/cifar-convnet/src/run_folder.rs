//! The folder of a run: it explains and proves itself.
//!
//! | file | what |
//! |---|---|
//! | `config.toml` | the config with all overrides, as it was run |
//! | `plan.json` | the privacy plan, made before any data was read |
//! | `environment.json` | program, commit, machine |
//! | `metrics.csv` | one line per epoch |
//! | `privacy.json` | the certificate; `bandroot verify` checks it |
//! | `parameters.safetensors` | the trained model, with PyTorch's names and layouts |
//! | `checkpoint-STEP.bin` | the last two states while the run goes on; secret, they hold the noise key |

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use dp_train::plan::DpPlan;
use dp_train::seeds::RunSeed;
use dp_train::training::Training;

use crate::output;

/// How many checkpoints are kept: the newest, and one to fall back on.
const KEPT: usize = 2;

/// The folder of one run.
#[derive(Debug, Clone)]
pub(crate) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Makes a new folder.
    ///
    /// # Errors
    /// If there is one already: a run is never written over.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("could not make the folder {}", parent.display()))?;
        }
        fs::create_dir(path).with_context(|| {
            format!("could not make the folder {} for a new run", path.display())
        })?;
        Ok(Self { path: path.to_owned() })
    }

    /// A folder that is there.
    pub(crate) fn open(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file, whole or not at all.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        output::write_file(&self.file(name), content)
    }

    /// Saves a state, and removes all but the last two.
    pub(crate) fn save_checkpoint(&self, training: &Training, note: &[u8]) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        training.save(&mut bytes, note)?;
        let name = format!("checkpoint-{:08}.bin", training.steps_taken());
        output::write_secret(&self.file(&name), &bytes)?;
        for old in self.checkpoints()?.into_iter().skip(KEPT) {
            fs::remove_file(&old).with_context(|| format!("could not remove {}", old.display()))?;
        }
        Ok(())
    }

    /// The newest state that is whole and of this plan, with its note; states that are not are named
    /// in warnings.
    pub(crate) fn load_checkpoint(
        &self,
        plan: &DpPlan,
        examples: u32,
        learning_rate: f32,
        seed: RunSeed,
    ) -> anyhow::Result<Option<(Training, Vec<u8>)>> {
        for path in self.checkpoints()? {
            let file = fs::File::open(&path)
                .with_context(|| format!("could not read {}", path.display()))?;
            let reader = std::io::BufReader::new(file);
            match Training::load(plan.clone(), examples, learning_rate, seed, reader) {
                Ok(loaded) => return Ok(Some(loaded)),
                Err(error) => eprintln!(
                    "bandroot: warning: {} is not used: {error}; trying the one before it",
                    path.display()
                ),
            }
        }
        Ok(None)
    }

    /// Removes all states: a finished run keeps no secrets.
    pub(crate) fn remove_checkpoints(&self) -> anyhow::Result<()> {
        for path in self.checkpoints()? {
            fs::remove_file(&path)
                .with_context(|| format!("could not remove {}", path.display()))?;
        }
        Ok(())
    }

    /// The states, newest first.
    fn checkpoints(&self) -> anyhow::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.path)
            .with_context(|| format!("could not read the folder {}", self.path.display()))?;
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with("checkpoint-") && name.ends_with(".bin") {
                found.push(path);
            }
        }
        // The number of steps has a fixed width, so names sort as numbers do.
        found.sort();
        found.reverse();
        Ok(found)
    }
}
