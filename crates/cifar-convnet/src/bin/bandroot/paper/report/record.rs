//! The runs below a folder, read from what they left, whichever commit made them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde_json::Value;

use cifar_convnet::config;
use cifar_convnet::run::folder;
use cifar_convnet::run::summary::Summary;

/// Keys that make no other experiment.
const INCIDENTAL: [&str; 6] = [
    "data.folder",
    "privacy.trials",
    "training.seed",
    "training.checkpoint_steps",
    "training.record",
    "noise.tolerance",
];

/// Keys of the paper's experiments; a run that says more is compared by what it says.
const PAPER: [&str; 12] = [
    "data.name",
    "data.validation",
    "model.name",
    "privacy.epsilon",
    "privacy.delta",
    "privacy.clip_norm",
    "noise.method",
    "optimizer.learning_rate",
    "optimizer.momentum",
    "optimizer.decay_factor",
    "training.epochs",
    "training.batch_size",
];

/// Characters of a value that are shown among what is unlike the paper.
const LONGEST: usize = 80;

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    /// Relative to the folder that was read.
    pub(crate) folder: PathBuf,
    /// What the config says that matters, by `section.key`, with today's defaults.
    pub(crate) setting: BTreeMap<String, String>,
    /// What of it is neither in the paper nor today's default.
    pub(crate) deviations: Vec<String>,
    pub(crate) data: String,
    pub(crate) method: String,
    /// Infinite for a run without privacy.
    pub(crate) epsilon: f64,
    pub(crate) delta: f64,
    pub(crate) validation: f64,
    pub(crate) steps: usize,
    pub(crate) participations: usize,
    pub(crate) separation: usize,
    pub(crate) batch_size: usize,
    pub(crate) seed: u64,
    /// In percent; of validation examples if `validation` is not 0.
    pub(crate) accuracy: f64,
    /// Of the last iterate on the test examples, where the result is an average.
    pub(crate) last_iterate: Option<f64>,
    /// Standard deviation of the noise on a parameter by the plan, at the run's rate: over all iterates, and of the last.
    pub(crate) noise: [Option<f64>; 2],
    /// None if it was not recorded.
    pub(crate) seconds: Option<f64>,
    /// Whether the noise key was secret.
    pub(crate) private: bool,
    pub(crate) trials: Option<u64>,
    pub(crate) environment: BTreeMap<String, String>,
}

/// What was found below a folder.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) runs: Vec<Record>,
    /// Folders with a `failed.json`, and the last line of their error.
    pub(crate) failed: Vec<(PathBuf, String)>,
    /// Run folders that could not be read, and why.
    pub(crate) unreadable: Vec<(PathBuf, String)>,
}

impl Records {
    /// Reads every folder below `results` that has a config and a summary, in order; hidden folders and
    /// `except` are passed by.
    pub(crate) fn read(results: &Path, except: &Path) -> anyhow::Result<Self> {
        let mut records = Self::default();
        records.walk(results, results, except)?;
        Ok(records)
    }

    fn walk(&mut self, root: &Path, folder: &Path, except: &Path) -> anyhow::Result<()> {
        let context = || format!("could not read the folder {}", folder.display());
        let mut entries = fs::read_dir(folder)
            .and_then(|entries| entries.collect::<Result<Vec<_>, _>>())
            .with_context(context)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        let relative = folder.strip_prefix(root).unwrap_or(folder).to_owned();
        let has = |name: &str| folder.join(name).is_file();
        if has(folder::CONFIG) && has(folder::SUMMARY) {
            match Record::read(folder, relative) {
                Ok(record) => self.runs.push(record),
                Err((relative, error)) => self.unreadable.push((relative, format!("{error:#}"))),
            }
            return Ok(());
        }
        if has(folder::FAILED) {
            let text = fs::read_to_string(folder.join(folder::FAILED)).unwrap_or_default();
            let failure: Value = serde_json::from_str(&text).unwrap_or_default();
            let last = failure["stderr"].as_array().and_then(|lines| lines.last());
            let last = last.and_then(Value::as_str).unwrap_or("no reason was written down");
            self.failed.push((relative, last.to_owned()));
            return Ok(());
        }
        for entry in entries {
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if path.is_dir() && !hidden && path != except {
                self.walk(root, &path, except)?;
            }
        }
        Ok(())
    }
}

impl Record {
    /// The name of its folder, which a copy has too.
    pub(crate) fn name(&self) -> String {
        self.folder.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
    }

    fn read(folder: &Path, relative: PathBuf) -> Result<Self, (PathBuf, anyhow::Error)> {
        Self::parse(folder, relative.clone()).map_err(|error| (relative, error))
    }

    fn parse(folder: &Path, relative: PathBuf) -> anyhow::Result<Self> {
        let path = folder.join(folder::CONFIG);
        let table = config::file::read_table(&path, &[])?;
        // With today's defaults, so that a run from before a key was there is not another experiment.
        let filled = filled(&table, &path).unwrap_or_else(|| flat(&table));
        let mut basic = filled.clone();
        basic.retain(|key, _| PAPER.contains(&key.as_str()));
        let basic = unflat(&basic).and_then(|table| self::filled(&table, &path));
        // What computes changes results by rounding only.
        let kept =
            |key: &&String| !INCIDENTAL.contains(&key.as_str()) && !key.starts_with("engine.");
        let deviations = filled
            .iter()
            .filter(|(key, value)| {
                let default = basic.as_ref().and_then(|basic| basic.get(*key));
                kept(key) && default != Some(value) && !PAPER.contains(&key.as_str())
            })
            .map(|(key, value)| match value.char_indices().nth(LONGEST) {
                // All layers of a model.
                Some((end, _)) => format!("{key} = {}\u{2026}", &value[..end]),
                None => format!("{key} = {value}"),
            })
            .collect();
        let text = |key: &str| {
            let value = filled.get(key).with_context(|| format!("config.toml has no {key}"))?;
            Ok::<_, anyhow::Error>(value.trim_matches('"').to_owned())
        };
        let number = |key: &str| {
            let text = text(key)?;
            text.parse::<f64>().with_context(|| format!("config.toml: {key} is {text}"))
        };
        let count = |key: &str| Ok::<_, anyhow::Error>(number(key)? as usize);
        let open = filled.get("privacy").is_some_and(|word| word.trim_matches('"') == "none");
        let summary = Summary::read(folder)?;
        let (steps, epochs) = (summary.steps, count("training.epochs")?);
        let plan = read_json(&folder.join(folder::PLAN)).unwrap_or_default();
        let participation = |key: &str| plan["participation"][key].as_u64().map(|n| n as usize);
        let certificate = read_json(&folder.join(folder::CERTIFICATE))
            .or_else(|_| read_json(&folder.join(folder::ABRIDGED)))
            .unwrap_or_default();
        let environment = read_json(&folder.join(folder::ENVIRONMENT)).unwrap_or_default();
        let environment = environment.as_object().into_iter().flatten();
        let plain = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
        let mut deviations: Vec<String> = deviations;
        if !plan["request"]["learning_rates"].is_null() && deviations.is_empty() {
            deviations.push("learning rates that change".to_owned());
        }
        Ok(Self {
            folder: relative,
            deviations,
            data: text("data.name")?,
            method: if open { "none".to_owned() } else { text("noise.method")? },
            epsilon: if open { f64::INFINITY } else { number("privacy.epsilon")? },
            delta: if open { 0.0 } else { number("privacy.delta")? },
            validation: number("data.validation").unwrap_or(0.0),
            steps,
            participations: participation("max_participations").unwrap_or(epochs),
            separation: participation("min_separation").unwrap_or(steps / epochs.max(1)),
            batch_size: count("training.batch_size")?,
            seed: number("training.seed").unwrap_or(0.0) as u64,
            accuracy: 100.0
                * summary
                    .accuracy()
                    .ok_or_else(|| anyhow!("{} has no accuracy", folder::SUMMARY))?,
            last_iterate: summary.last_iterate_test_accuracy.map(|accuracy| 100.0 * accuracy),
            // A plan is for rate 1, or for a schedule that begins with it.
            noise: ["iterate_noise_std", "final_iterate_noise_std"]
                .map(|key| Some(plan[key].as_f64()? * number("optimizer.learning_rate").ok()?)),
            seconds: summary.seconds,
            private: summary.private,
            trials: certificate["trials"].as_u64(),
            environment: environment.map(|(key, value)| (key.clone(), plain(value))).collect(),
            setting: filled.into_iter().filter(|(key, _)| kept(&key)).collect(),
        })
    }

    /// A value of the config, or of the environment, as it is shown.
    pub(crate) fn show(&self, key: &str) -> String {
        let found = self.setting.get(key).or_else(|| self.environment.get(key));
        found.map_or(String::new(), |value| value.trim_matches('"').to_owned())
    }

    /// Seconds since 1970 when it was started; 0 if that is not known.
    pub(crate) fn unix_time(&self) -> u64 {
        self.environment.get("unix_time").and_then(|time| time.parse().ok()).unwrap_or(0)
    }
}

fn read_json(path: &Path) -> anyhow::Result<Value> {
    let context = || format!("could not read {}", path.display());
    serde_json::from_slice(&fs::read(path).with_context(context)?).with_context(context)
}

/// A config with its defaults; `None` if today's program does not understand it.
fn filled(table: &toml::Table, path: &Path) -> Option<BTreeMap<String, String>> {
    let config = config::file::check(table.clone(), path).ok()?;
    Some(flat(&toml::Table::try_from(config).ok()?))
}

fn flat(table: &toml::Table) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => {
                found.extend(flat(inner).into_iter().map(|(k, v)| (format!("{key}.{k}"), v)));
            }
            value => drop(found.insert(key.clone(), value.to_string())),
        }
    }
    found
}

fn unflat(flat: &BTreeMap<String, String>) -> Option<toml::Table> {
    let mut table = toml::Table::new();
    for (key, value) in flat {
        let value = format!("v = {value}").parse::<toml::Table>().ok()?.remove("v")?;
        config::file::set(&mut table, key, value)?;
    }
    Some(table)
}
