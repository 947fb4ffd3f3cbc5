//! The file of a sweep: a base config, settings of its keys, seeds, and how to choose.
//!
//! ```toml
//! base = "cifar10-bsr.toml"
//! seeds = [0, 1, 2]
//!
//! [grid] # every combination
//! "noise.method" = ["bsr", "aof"]
//!
//! [[candidates]] # each of them with every combination of the grid
//! "optimizer.learning_rate" = 0.1
//! "privacy.clip_norm" = 0.5
//!
//! [random] # so many more of them, drawn from a seed
//! samples = 20
//! seed = 0
//! [random.ranges]
//! "optimizer.learning_rate" = { from = 0.05, to = 2.0, scale = "log" }
//! "privacy.clip_norm" = [0.5, 1.0, 2.0]
//!
//! [select] # leave it out to run all settings and choose nothing
//! by = ["noise.method"]
//! validation = 0.2
//! seeds = [0, 1, 2, 3, 4]
//! scale_rate = 1.0
//!
//! [halving] # leave it out to run every setting to its end
//! epochs = [1, 3]
//! keep = 0.33
//!
//! [slurm] # what `--launch slurm` asks a cluster for; every key may be left out
//! tasks = 16
//! ```
//!
//! What was tried before counts: `privacy.trials` of the base is added to the runs of the sweep.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use dp_train::accounting::stopping::StoppingLaw;
use serde::Deserialize;
use toml::Table;

use super::cell::{Cell, Setting};
use super::random::Random;
use super::settings;
use super::trials::Trials;
use cifar_convnet::BadArgument;
use cifar_convnet::config;
use cifar_convnet::config::slurm::Slurm;

/// A sweep as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    base: PathBuf,
    seeds: Option<Vec<u64>>,
    #[serde(default)]
    grid: Table,
    #[serde(default)]
    candidates: Vec<Table>,
    random: Option<Random>,
    select: Option<Select>,
    halving: Option<Halving>,
    slurm: Option<Slurm>,
}

/// How the runs of the grid are judged, and what follows for the best.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Select {
    /// Keys of the grid: one choice for every combination of their values.
    #[serde(default)]
    pub(crate) by: Vec<String>,
    /// Share of the training examples that the grid is judged by.
    #[serde(default = "a_fifth")]
    pub(crate) validation: f64,
    /// Seeds of the final runs, on all training examples, tested once. They stand here before anything is known.
    pub(crate) seeds: Vec<u64>,
    /// The learning rate of the final runs as a multiple of the one that was chosen: they have more examples, and so
    /// more steps.
    #[serde(default = "unscaled")]
    pub(crate) scale_rate: f64,
}

fn unscaled() -> f64 {
    1.0
}

fn a_fifth() -> f64 {
    0.2
}

/// Short runs first, the best of which go on.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Halving {
    /// Epochs of the short runs, rising; the last round has the epochs of the config.
    pub(crate) epochs: Vec<usize>,
    /// Share of the settings that a round keeps, rounded up.
    pub(crate) keep: f64,
}

/// A sweep that was read and checked.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    path: PathBuf,
    base: Table,
    pub(crate) seeds: Vec<u64>,
    /// Whether the file names them.
    pub(crate) names_seeds: bool,
    pub(crate) settings: Vec<Setting>,
    pub(crate) select: Option<Select>,
    pub(crate) halving: Option<Halving>,
    /// What its workers ask a cluster for.
    pub(crate) slurm: Slurm,
    /// Runs on the same data before this sweep, as the base counts them.
    pub(crate) earlier: u64,
}

impl Spec {
    /// Reads a sweep; the path of the base is relative to the file.
    ///
    /// # Errors
    /// Every message names the file and the key.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("could not read the sweep {}", path.display()))?;
        Self::parse(path, &text, |base| config::file::read_table(base, &[]))
    }

    /// A sweep from its text, with what reads its base.
    pub(super) fn parse(
        path: &Path,
        text: &str,
        read_base: impl FnOnce(&Path) -> anyhow::Result<Table>,
    ) -> anyhow::Result<Self> {
        let written: Written = toml::from_str(text).map_err(|error| {
            let line = config::file::line_of(text, error.span());
            BadArgument(format!("{}, line {line}: {}", path.display(), error.message()))
        })?;
        let refuse = |what: String| BadArgument(format!("{}: {what}", path.display()));
        let base = path.parent().unwrap_or(Path::new("")).join(&written.base);
        let base = read_base(&base).with_context(|| format!("the base of {}", path.display()))?;
        let names_seeds = written.seeds.is_some();
        let seeds = written.seeds.clone().unwrap_or_else(|| vec![0]);
        check_seeds("seeds", &seeds).map_err(refuse)?;
        let Written { grid, candidates, random, .. } = &written;
        let settings = settings::settings(grid, candidates, random.as_ref()).map_err(refuse)?;
        let keys = settings::keys(grid).map_err(refuse)?;
        let in_grid = |key: &str| settings.iter().flatten().any(|(found, _)| found == key);
        let earlier = earlier_runs(&base).map_err(refuse)?;
        for (owner, key) in [("seeds", "training.seed"), ("the sweep", "privacy.trials")] {
            ensure!(!in_grid(key), refuse(format!("{key} is set by {owner}, not by the grid")));
        }
        if let Some(select) = &written.select {
            check_seeds("select.seeds", &select.seeds).map_err(refuse)?;
            for key in &select.by {
                ensure!(
                    keys.contains(key),
                    refuse(format!("select.by names {key}, which is not in the grid"))
                );
            }
            ensure!(
                !in_grid("data.validation"),
                refuse("data.validation is set by select, not by the grid".into())
            );
            ensure!(
                select.validation > 0.0,
                refuse(
                    "select.validation must be positive: nothing is chosen on the test examples"
                        .into()
                )
            );
        }
        if let Some(Select { scale_rate, .. }) = &written.select {
            ensure!(
                *scale_rate > 0.0 && scale_rate.is_finite(),
                refuse(format!("select.scale_rate must be positive, but it is {scale_rate}"))
            );
        }
        if let Some(Halving { epochs, keep }) = &written.halving {
            ensure!(
                written.select.is_some(),
                refuse("halving needs select: it keeps the best on validation examples".into())
            );
            ensure!(
                epochs.first().is_some_and(|&first| first > 0) && epochs.is_sorted_by(|a, b| a < b),
                refuse("halving.epochs must be rising and at least 1".into())
            );
            ensure!(
                *keep > 0.0 && *keep < 1.0,
                refuse(format!("halving.keep must be between 0 and 1, but it is {keep}"))
            );
        }
        let Written { select, halving, slurm, .. } = written;
        let slurm = slurm.unwrap_or_default();
        slurm.check().map_err(refuse)?;
        let path = path.to_owned();
        let spec =
            Self { path, base, seeds, names_seeds, settings, select, halving, slurm, earlier };
        // Every config is checked before anything runs.
        for setting in &spec.settings {
            spec.cell("", setting.clone(), spec.seeds[0], 1)?;
        }
        Ok(spec)
    }

    /// The same for runs of which a secret number is made, which stands in every config: undoing the choice is noticed.
    pub(super) fn with_random_stopping(&self, law: &StoppingLaw) -> Self {
        let mut spec = self.clone();
        for (key, value) in [("mean", law.mean()), ("shape", law.shape())] {
            // Where there is no section of privacy, there is no guarantee either, and the runs are refused.
            config::file::set(
                &mut spec.base,
                &format!("privacy.random_stopping.{key}"),
                value.into(),
            );
        }
        spec
    }

    /// The cell of a setting.
    pub(crate) fn cell(
        &self,
        prefix: &str,
        setting: Setting,
        seed: u64,
        trials: u64,
    ) -> anyhow::Result<Cell> {
        Cell::new(&self.path, &self.base, prefix, setting, seed, trials)
    }

    /// Whether a setting, or the base, gives this key.
    pub(crate) fn gives(&self, setting: &Setting, section: &str, key: &str) -> bool {
        config::file::says(&self.base, section, key)
            || setting.iter().any(|(found, _)| *found == format!("{section}.{key}"))
    }

    /// The cells of a grid without a choice: every setting with every seed. Each counts what was begun in the folder
    /// before.
    pub(crate) fn cells(&self, begun: &BTreeMap<String, u64>) -> anyhow::Result<Vec<Cell>> {
        let cells = |trials| -> anyhow::Result<Vec<Cell>> {
            let mut cells = Vec::new();
            for &seed in &self.seeds {
                for setting in &self.settings {
                    cells.push(self.cell("", setting.clone(), seed, trials)?);
                }
            }
            Ok(cells)
        };
        let named = cells(1)?;
        cells(Trials::new(self.earlier, named.len() as u64, &named).count(begun))
    }
}

/// How many runs were made on the same data before, by `privacy.trials` of the base, which counts its own run too.
fn earlier_runs(base: &Table) -> Result<u64, String> {
    let Some(trials) = base.get("privacy").and_then(|privacy| privacy.get("trials")) else {
        return Ok(0);
    };
    let before = trials.as_integer().and_then(|trials| u64::try_from(trials).ok()?.checked_sub(1));
    before.ok_or_else(|| format!("the base has privacy.trials = {trials}: it must be at least 1"))
}

fn check_seeds(key: &str, seeds: &[u64]) -> Result<(), String> {
    let mut sorted = seeds.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    // A run's config is TOML, which has no larger numbers.
    if let Some(&large) = sorted.last().filter(|&&seed| i64::try_from(seed).is_err()) {
        return Err(format!("{key} names {large}, but seeds go up to {}", i64::MAX));
    }
    match sorted.len() {
        0 => Err(format!("{key} must name at least one seed")),
        unique if unique < seeds.len() => Err(format!("{key} names a seed twice")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const BASE: &str = "[data]\nname = 'textures'\n[model]\nname = 'convnet'\n
        [privacy]\nepsilon = 4.0\ndelta = 1e-5\nclip_norm = 1.0\n
        [noise]\nmethod = 'bsr'\n[optimizer]\nlearning_rate = 0.5\n
        [training]\nepochs = 2\nbatch_size = 100\n";

    fn read(text: &str) -> Result<Spec, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("base.toml"), BASE).unwrap();
        fs::write(folder.path().join("sweep.toml"), text).unwrap();
        Spec::read(&folder.path().join("sweep.toml")).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_grid_is_every_combination_with_every_seed() {
        let spec = read(
            "base = 'base.toml'\nseeds = [0, 4]\n[grid]\n'noise.method' = ['bsr', 'identity', 'sqrt']\n\
             optimizer.learning_rate = [0.1, 1]",
        );
        let cells = spec.unwrap().cells(&BTreeMap::new()).unwrap();
        assert_eq!(cells.len(), 12);
        let mut names: Vec<_> = cells.iter().map(|cell| &cell.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 12);
        assert!(cells.iter().all(|cell| cell.config.privacy.trials() == 12));
        assert_eq!(cells[3].config.optimizer.learning_rate, 1.0);
        assert_eq!((cells[5].seed, cells[6].seed), (0, 4));
    }

    #[test]
    fn what_was_tried_before_counts() {
        let earlier = |trials: &str| {
            let base = format!("[privacy]\n{trials}").parse().unwrap();
            earlier_runs(&base)
        };
        assert_eq!((earlier(""), earlier("trials = 1")), (Ok(0), Ok(0)));
        assert_eq!(earlier("trials = 12"), Ok(11));
        assert!(earlier("trials = 0").is_err() && earlier("trials = 'many'").is_err());
        assert_eq!(earlier_runs(&"privacy = 'none'".parse().unwrap()), Ok(0));
    }

    #[test]
    fn the_search_in_the_repository_can_be_run() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/paper/search.toml");
        let spec = Spec::read(&path).unwrap();
        assert!(spec.select.is_some() && spec.halving.is_some());
        super::super::selection::Search::new(&spec, &BTreeMap::new()).unwrap();
    }

    #[test]
    fn every_refusal_names_the_file_and_the_key() {
        let refused = |text: &str, words: &[&str]| {
            let message = read(&format!("base = 'base.toml'\n{text}")).unwrap_err();
            for word in words.iter().chain(&["sweep.toml"]) {
                assert!(message.contains(word), "no {word:?} in {message:?}");
            }
        };
        refused("[grid]\n'training.epoch' = [1]", &["training.epoch", "epochs?"]);
        refused("[grid]\n'training.epochs' = [0]", &["training.epochs"]);
        refused("[grid]\n'training.epochs' = 3", &["training.epochs", "list"]);
        refused("[grid]\n'training.epochs' = []", &["training.epochs", "no values"]);
        refused("[grid]\n'training.epochs' = [1, 1]", &["training.epochs", "twice"]);
        refused("[grid]\nepochs = [1]", &["epochs"]);
        refused("[grid]\n'noise.method' = ['bsrr']", &["bsrr"]);
        refused("[grid]\n'training.seed' = [1]", &["training.seed", "seeds"]);
        let values: Vec<String> = (0..100).map(|value| value.to_string()).collect();
        let axis = |key: &str| format!("'{key}' = [{}]\n", values.join(", "));
        let keys = ["training.epochs", "noise.bands", "training.batch_size"];
        let grid: String = keys.iter().map(|key| axis(key)).collect();
        refused(&format!("[grid]\n{grid}"), &["grid", "1000000 settings", "split"]);
        refused("seeds = []", &["seeds"]);
        refused("seeds = [1, 1]", &["seeds", "twice"]);
        refused("seed = [1]", &["seed"]);
        refused("seeds = [0, 9223372036854775808]", &["seeds", "9223372036854775807"]);
        refused("[select]\nby = ['noise.method']\nseeds = [0]", &["noise.method", "grid"]);
        refused("[select]\nvalidation = 0.0\nseeds = [0]", &["select.validation", "test examples"]);
        refused("[select]\nvalidation = nan\nseeds = [0]", &["select.validation"]);
        refused("[select]\nscale_rate = 0.0\nseeds = [0]", &["select.scale_rate"]);
        refused("[[candidates]]\n'training.epoch' = 1", &["training.epoch", "epochs?"]);
        refused("[[candidates]]\n'training.seed' = 1", &["training.seed", "seeds"]);
        let random = "[random]\nsamples = 2\n[random.ranges]\n";
        refused(&format!("{random}'privacy.trials' = [1, 2]"), &["privacy.trials", "sweep"]);
        refused(&format!("{random}'noise.method' = ['bsr']"), &["random.samples", "1 different"]);
        let by = "[select]\nby = ['noise.method']\nseeds = [0]";
        let by = format!("{random}'noise.method' = ['bsr', 'identity']\n{by}");
        refused(&by, &["select.by", "noise.method", "not in the grid"]);
        refused("[halving]\nepochs = [1]\nkeep = 0.5", &["select"]);
        refused("[slurm]\ntask = 4", &["line 3", "task"]);
        refused("[slurm]\ntime = '4h'", &["slurm.time", "04:00:00"]);
        let select = "[select]\nseeds = [0]\n[halving]\n";
        refused(&format!("{select}epochs = [2, 1]\nkeep = 0.5"), &["halving.epochs"]);
        refused(&format!("{select}epochs = [1]\nkeep = 1.5"), &["halving.keep"]);
        assert!(read("base = 'no.toml'").unwrap_err().contains("no.toml"));
    }
}
