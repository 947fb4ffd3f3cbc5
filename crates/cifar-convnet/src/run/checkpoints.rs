//! The states of a run in its folder: the newest, and one to fall back on.

use std::fs;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use dp_train::training::checkpoint::ResumeError;

use super::folder::{CONFIG, ContinuationRefused, RunFolder, is_checkpoint};
use crate::files;

/// How the keys of the seal begin that bind a run to the one it started from.
pub(super) const START: &str = "model.start_from.";

/// How many checkpoints are kept.
const KEPT: usize = 2;

impl RunFolder {
    /// Saves a state, and removes all but the last two.
    pub fn save_checkpoint(&self, steps: usize, bytes: &[u8]) -> anyhow::Result<()> {
        ensure!(!self.is_finished(), "{} was finished by another process", self.path().display());
        files::write_secret(&self.file(&format!("checkpoint-{steps:08}.bin")), bytes)?;
        for old in self.checkpoints()?.into_iter().skip(KEPT) {
            fs::remove_file(&old).with_context(|| format!("could not remove {}", old.display()))?;
        }
        Ok(())
    }

    /// The newest state that `load` takes; states that are damaged are named in warnings.
    ///
    /// # Errors
    /// A [`ContinuationRefused`] if a state is bound to something else than what it is to be continued with. The one before
    /// it is not tried: it would add the same noise to other gradients just as well.
    pub fn load_checkpoint<T>(
        &self,
        load: impl Fn(BufReader<fs::File>) -> Result<T, ResumeError>,
    ) -> anyhow::Result<Option<T>> {
        for path in self.checkpoints()? {
            let file = fs::File::open(&path)
                .with_context(|| format!("could not read {}", path.display()))?;
            match load(BufReader::new(file)) {
                Ok(loaded) => return Ok(Some(loaded)),
                Err(ResumeError::Sealed(difference)) => {
                    let (difference, remedy) = (&difference, self.remedy(&difference.key));
                    let refusal = format!("{}: {difference}; {remedy}", path.display());
                    return Err(ContinuationRefused(refusal).into());
                }
                Err(error) => {
                    log::warn!("{} is not used: {error}; trying the one before it", path.display());
                }
            }
        }
        Ok(None)
    }

    /// What to do about a key of the seal that is not what it was.
    fn remedy(&self, key: &str) -> String {
        let what = match key {
            "data.sha256" => {
                "train on the examples that it began with: see data.validation and the files in \
                              data.folder"
                    .to_owned()
            }
            key if key.starts_with(START) => {
                "let model.start_from lead to the run that it began from, as it was then".to_owned()
            }
            "engine.arithmetic" => {
                "continue it on the processor, or the GPU with its driver, that it began on"
                    .to_owned()
            }
            "program.version" | "program.commit" | "program.sha256" => {
                "continue it with that program".to_owned()
            }
            key => format!("put {key} back in {}", self.file(CONFIG).display()),
        };
        format!("{what}, or begin a new run")
    }

    /// The states, newest first.
    fn checkpoints(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut found = self.files(is_checkpoint)?;
        // The number of steps has a fixed width, so names sort as numbers do.
        found.sort();
        found.reverse();
        Ok(found)
    }
}
