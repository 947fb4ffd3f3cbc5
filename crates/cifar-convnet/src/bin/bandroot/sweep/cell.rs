//! A cell of a sweep: one config, one run folder, and how far it has come.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::{attempts, name};
use cifar_convnet::BadArgument;
use cifar_convnet::config::{self, Config};
use cifar_convnet::files;
use cifar_convnet::run::folder::{self, is_checkpoint, is_pending, is_secret};
use cifar_convnet::run::summary::Summary;

/// Keys and values that a run has in place of those of its base, in their order.
pub(crate) type Setting = Vec<(String, Value)>;

/// One run of a sweep.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    /// The name of its folder: what is readable, and a hash of the config.
    pub(crate) name: String,
    /// What the grid says of it, without the seed.
    pub(crate) setting: Setting,
    pub(crate) seed: u64,
    /// What is given to the training.
    table: Table,
    pub(crate) config: Config,
}

/// How far a cell has come.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CellState {
    /// Nothing, or too little to go on from.
    Open,
    /// There is a checkpoint to continue from, or an end to complete.
    Started,
    /// It ended in a failure, which is written down.
    Failed(Failure),
    /// The summary is there; with what a crash may have left behind, which is secret.
    Done { leftovers: bool },
}

/// What `failed.json` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The command that failed.
    pub(crate) command: String,
    /// Its exit code; none if a signal ended it.
    pub(crate) exit_code: Option<i32>,
    /// How it ended, in the system's words.
    pub(crate) status: String,
    /// The last lines that it wrote to standard error.
    pub(crate) stderr: Vec<String>,
    /// Whether it had been continued from a checkpoint.
    pub(crate) resumed: bool,
    /// When, in seconds since 1970 with their fractions: a failure and the retry after it may lie in one second.
    pub(crate) unix_time: f64,
}

impl Cell {
    /// The cell of a base config with this setting and seed, checked as far as that is possible without data.
    ///
    /// # Errors
    /// If a key is unknown or a value is refused; `path` is named in the message.
    pub(crate) fn new(
        path: &Path,
        base: &Table,
        prefix: &str,
        setting: Setting,
        seed: u64,
        trials: u64,
    ) -> anyhow::Result<Self> {
        let mut table = base.clone();
        let seed_value = Value::Integer(i64::try_from(seed).context("a seed is too large")?);
        let trials = Value::Integer(i64::try_from(trials).context("too many trials")?);
        let mut set = |key: &str, value| {
            config::file::set(&mut table, key, value).ok_or_else(|| {
                BadArgument(format!("{}: {key} must be section.key of a config", path.display()))
            })
        };
        for (key, value) in setting.iter().cloned() {
            set(&key, value)?;
        }
        set("training.seed", seed_value)?;
        // A run without privacy has no certificate to state them in.
        if table.get("privacy").is_none_or(Value::is_table) {
            config::file::set(&mut table, "privacy.trials", trials);
        }
        let config = config::file::complete(table.clone(), path)?;
        config.check().map_err(|error| BadArgument(format!("{}: {error}", path.display())))?;
        let name = name::of(prefix, &setting, seed, &table);
        Ok(Self { name, setting, seed, table, config })
    }

    /// The config as the training reads it.
    pub(crate) fn toml(&self) -> anyhow::Result<String> {
        Ok(toml::to_string_pretty(&self.table)?)
    }

    /// How much work it is: examples whose gradients are taken.
    pub(crate) fn examples(&self) -> u64 {
        let steps = self.config.steps();
        let batch_size = self.config.training.batch_size;
        steps.map_or(0, |steps| steps.total.saturating_mul(batch_size) as u64)
    }

    /// Its folder in the folder of the sweep.
    pub(crate) fn folder(&self, sweep: &Path) -> PathBuf {
        sweep.join(&self.name)
    }

    /// How far it has come.
    ///
    /// # Errors
    /// If the folder or `failed.json` cannot be read.
    pub(crate) fn state(&self, sweep: &Path) -> anyhow::Result<CellState> {
        let folder = self.folder(sweep);
        let names = attempts::names(&folder)?;
        let has = |name: &str| names.iter().any(|found| found == name);
        if has(folder::SUMMARY) {
            return Ok(CellState::Done { leftovers: names.iter().any(|name| is_secret(name)) });
        }
        if has(folder::FAILED) {
            let path = folder.join(folder::FAILED);
            let remedy = || format!("could not read {}; remove it to run again", path.display());
            match fs::read(&path) {
                // Another process is about to try it again.
                Err(error) if files::is_gone(&error) => {}
                text => {
                    let failure = serde_json::from_slice(&text.with_context(remedy)?);
                    return Ok(CellState::Failed(failure.with_context(remedy)?));
                }
            }
        }
        let resumable = |name: &String| is_checkpoint(name) || is_pending(name);
        Ok(if names.iter().any(resumable) { CellState::Started } else { CellState::Open })
    }

    /// Epochs that are in its metrics.
    pub(crate) fn epochs_done(&self, sweep: &Path) -> usize {
        let text = fs::read_to_string(self.folder(sweep).join(folder::METRICS));
        text.map_or(0, |text| text.lines().count().saturating_sub(1))
    }

    /// The accuracy on the examples it is judged by, and the loss there, once it is done.
    pub(crate) fn result(&self, sweep: &Path) -> anyhow::Result<Score> {
        let folder = self.folder(sweep);
        let summary = Summary::read(&folder)?;
        let accuracy = summary.accuracy();
        let path = folder.join(folder::SUMMARY);
        Ok(Score {
            accuracy: accuracy.with_context(|| format!("{} has no accuracy", path.display()))?,
            loss: summary.loss(),
            seconds: summary.seconds,
        })
    }

    /// Removes what a run left that is not to be continued. Other files in the folder are refused.
    pub(crate) fn clear(&self, sweep: &Path) -> anyhow::Result<()> {
        let folder = self.folder(sweep);
        for name in attempts::names(&folder)? {
            let ours = folder::is_of_a_run(&name);
            let path = folder.join(&name);
            anyhow::ensure!(ours, "{} is in the way of a new run; move it", path.display());
            fs::remove_file(&path)
                .with_context(|| format!("could not remove {}", path.display()))?;
        }
        if folder.exists() {
            fs::remove_dir(&folder)
                .with_context(|| format!("could not remove {}", folder.display()))?;
        }
        Ok(())
    }

    /// Removes what a crash leaves half-written, and the checkpoints too if the run is done: both hold the
    /// noise key.
    pub(crate) fn sweep_up(&self, sweep: &Path, done: bool) -> anyhow::Result<()> {
        let folder = self.folder(sweep);
        for name in attempts::names(&folder)? {
            if files::is_partial(&name) || (done && is_secret(&name)) {
                let path = folder.join(name);
                fs::remove_file(&path)
                    .with_context(|| format!("could not remove {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// How a run did on the examples that it is judged by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score {
    pub(crate) accuracy: f64,
    /// None if it is not a number.
    pub(crate) loss: Option<f64>,
    /// None if it was not to be recorded.
    pub(crate) seconds: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(more: &str, setting: &[(&str, Value)]) -> Cell {
        let text = format!(
            "[data]\nname = 'textures'\n[model]\nname = 'convnet'\n{more}
            [noise]\nmethod = 'bsr'\n[optimizer]\nlearning_rate = 0.5\n
            [training]\nepochs = 2\nbatch_size = 100\n"
        );
        let base: Table = text.parse().unwrap();
        let setting = setting.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
        Cell::new(Path::new("a.toml"), &base, "", setting, 3, 7).unwrap()
    }

    const PRIVACY: &str = "[privacy]\nepsilon = 4.0\ndelta = 1e-5\nclip_norm = 1.0\n";

    #[test]
    fn a_name_says_the_setting_and_depends_on_what_matters_only() {
        let rate = |value: f64| [("optimizer.learning_rate", Value::Float(value))];
        let first = cell(PRIVACY, &rate(0.1));
        assert!(first.name.starts_with("learning_rate-0.1_seed-3_"), "{}", first.name);
        assert_eq!(first.config.privacy.trials(), 7);
        let integer = PRIVACY.replace("4.0", "4");
        assert_eq!(cell(&integer, &rate(0.1)).name, first.name);
        let order = "[privacy]\nclip_norm = 1.0\ndelta = 1e-5\nepsilon = 4.0\n";
        assert_eq!(cell(order, &rate(0.1)).name, first.name);
        let hash = |cell: &Cell| cell.name.rsplit('_').next().unwrap().to_owned();
        assert_ne!(hash(&cell(PRIVACY, &rate(0.2))), hash(&first));
        let other = PRIVACY.replace("1e-5", "1e-6");
        assert_ne!(hash(&cell(&other, &rate(0.1))), hash(&first));
    }

    #[test]
    fn the_outcome_is_read_by_its_new_name_and_by_its_old_one() {
        let sweep = tempfile::tempdir().unwrap();
        let cell = cell(PRIVACY, &[]);
        fs::create_dir(cell.folder(sweep.path())).unwrap();
        let read = |text: &str| {
            fs::write(cell.folder(sweep.path()).join("summary.json"), text).unwrap();
            cell.result(sweep.path())
        };
        let outcome = Score { accuracy: 0.5, loss: None, seconds: Some(2.0) };
        let new = r#"{"run": "r", "private": true, "steps": 9, "test_accuracy": null, "validation_accuracy": 0.5, "seconds": 2.0}"#;
        assert_eq!(read(new).unwrap(), outcome);
        let old = r#"{"run": "r", "private": true, "steps": 9, "test_accuracy": 0.5, "test_loss": null, "seconds": 2.0}"#;
        assert_eq!(read(old).unwrap(), outcome);
        assert!(read("{}").unwrap_err().to_string().contains("summary.json"));
    }

    #[test]
    fn a_foreign_file_is_never_removed() {
        let sweep = tempfile::tempdir().unwrap();
        let cell = cell(PRIVACY, &[]);
        let folder = cell.folder(sweep.path());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("plan.json"), "").unwrap();
        assert_eq!(cell.state(sweep.path()).unwrap(), CellState::Open);
        fs::write(folder.join("summary.json.pending"), "").unwrap();
        assert_eq!(cell.state(sweep.path()).unwrap(), CellState::Started, "an end to complete");
        fs::write(folder.join("notes.txt"), "mine").unwrap();
        assert!(cell.clear(sweep.path()).unwrap_err().to_string().contains("notes.txt"));
        fs::remove_file(folder.join("notes.txt")).unwrap();
        cell.clear(sweep.path()).unwrap();
        assert!(!folder.exists());
    }
}
