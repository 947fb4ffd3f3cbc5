//! The record of a run: one line per epoch, and which of its numbers may be published.

use anyhow::Context;
use dp_train::certificate::{Exposure, Metric};
use dp_train::engine::BatchMetrics;
use serde::{Deserialize, Serialize};

use super::evaluation::Judged;
use super::seen::Seen;
use crate::config::privacy::Privacy;
use crate::config::{Config, Record};

/// One line of `metrics.csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Epoch {
    pub(super) epoch: usize,
    pub(super) step: usize,
    /// Of the result so far, on the examples that the run is judged by, which [`judged_by`] names. None after an epoch
    /// that is not evaluated.
    pub(super) accuracy: Option<f64>,
    pub(super) loss: Option<f64>,
    /// Of the last iterate, if an average is the result.
    pub(super) last_iterate_accuracy: Option<f64>,
    pub(super) last_iterate_loss: Option<f64>,
    /// From here on it depends on the training data and is covered by no guarantee.
    pub(super) train_loss: f64,
    pub(super) train_accuracy: f64,
    /// None if nothing is clipped.
    pub(super) clipped_share: Option<f64>,
    pub(super) examples_per_second: f64,
    pub(super) seconds: f64,
}

impl Epoch {
    /// The epoch that ended with `step`, what was measured after it if that was due, and what its steps saw.
    pub(super) fn new(
        (epoch, step): (usize, usize),
        judged: Option<Judged>,
        seen: &Seen,
        seconds: f64,
    ) -> Self {
        let result = judged.map(|judged| judged.result);
        let last_iterate = judged.and_then(|judged| judged.last_iterate);
        let BatchMetrics { images: views, loss_sum, correct } = seen.metrics;
        // Poisson batches of a whole epoch may be empty.
        let (views, examples) = (views.max(1) as f64, seen.examples as f64);
        Self {
            epoch,
            step,
            accuracy: result.map(|result| result.accuracy),
            loss: result.map(|result| result.loss),
            last_iterate_accuracy: last_iterate.map(|last| last.accuracy),
            last_iterate_loss: last_iterate.map(|last| last.loss),
            train_loss: loss_sum / views,
            train_accuracy: correct as f64 / views,
            clipped_share: seen.clipped.map(|clipped| clipped as f64 / examples.max(1.0)),
            examples_per_second: examples / seconds,
            seconds,
        }
    }

    /// What was measured, by the names that [`judged_by`] gives.
    pub(super) fn measured<'a>(&self, names: [&'a str; 4]) -> Vec<(&'a str, f64)> {
        let Self { accuracy, loss, last_iterate_accuracy, last_iterate_loss, .. } = self;
        let numbers = [accuracy, loss, last_iterate_accuracy, last_iterate_loss];
        names.into_iter().zip(numbers).filter_map(|(name, x)| Some((name, (*x)?))).collect()
    }
}

/// What accuracy and loss are called, then those of the last iterate, and whether the guarantee covers them. Averages
/// are made of released iterates: what is measured of them is as public as what is measured of the last one. Held-out training examples are not
/// trained on, but they are training data: nothing hides them in what is computed from them. So are test examples
/// that `data.test_share` takes from the training files.
pub(super) fn judged_by(config: &Config) -> ([&'static str; 4], Exposure) {
    match (config.data.holds_out(), config.data.judges_by_training_files()) {
        (true, _) => (VALIDATION, Exposure::NotPrivate),
        (false, true) => (TEST, Exposure::NotPrivate),
        (false, false) => (TEST, Exposure::Covered),
    }
}

const VALIDATION: [&str; 4] = [
    "validation_accuracy",
    "validation_loss",
    "last_iterate_validation_accuracy",
    "last_iterate_validation_loss",
];

const TEST: [&str; 4] =
    ["test_accuracy", "test_loss", "last_iterate_test_accuracy", "last_iterate_test_loss"];

/// The columns, in the order of the type.
fn columns(config: &Config) -> [(&'static str, Exposure); 11] {
    let ([accuracy, loss, last_accuracy, last_loss], judged) = judged_by(config);
    // Without noise nothing is covered but what the config says.
    let judged = if config.privacy == Privacy::None { Exposure::NotPrivate } else { judged };
    [
        ("epoch", Exposure::Covered),
        ("step", Exposure::Covered),
        (accuracy, judged),
        (loss, judged),
        (last_accuracy, judged),
        (last_loss, judged),
        ("train_loss", Exposure::NotPrivate),
        ("train_accuracy", Exposure::NotPrivate),
        ("clipped_share", Exposure::NotPrivate),
        ("examples_per_second", Exposure::NotPrivate),
        ("seconds", Exposure::NotPrivate),
    ]
}

/// What is in the events of every step and in the summary besides.
const OTHERS: [(&str, Exposure); 3] = [
    ("learning_rate", Exposure::Covered),
    ("batch_loss", Exposure::NotPrivate),
    ("peak_memory_bytes", Exposure::NotPrivate),
];

/// What is computed from the examples of single batches, or from how many there were: from training accuracy and
/// clipped share alone, as fractions, the number of examples of an epoch can be read.
const OF_BATCHES: [&str; 7] = [
    "train_loss",
    "train_accuracy",
    "clipped_share",
    "examples_per_second",
    "seconds",
    "batch_loss",
    "peak_memory_bytes",
];

/// Whether a record has this number.
pub(super) fn is_in(record: Record, name: &str, exposure: Exposure) -> bool {
    match record {
        Record::All => true,
        Record::NoBatches => !OF_BATCHES.contains(&name),
        Record::Public => exposure == Exposure::Covered,
    }
}

fn is_recorded(config: &Config, (name, exposure): (&str, Exposure)) -> bool {
    let is_shown = is_in(config.training.record, name, exposure);
    // Without an average the last iterate is the result.
    is_shown && (config.training.average.is_some() || !name.starts_with("last_iterate_"))
}

/// All that a run with this config records, for its certificate.
pub fn metrics(config: &Config) -> Vec<Metric> {
    let all = columns(config).into_iter().chain(OTHERS);
    let recorded = all.filter(|column| is_recorded(config, *column));
    recorded.map(|(name, exposure)| Metric { name: name.to_owned(), exposure }).collect()
}

/// The content of `metrics.csv`. The names of columns that no guarantee covers say so.
pub(super) fn table(epochs: &[Epoch], config: &Config) -> anyhow::Result<Vec<u8>> {
    let whole = whole_table(epochs)?;
    let columns = columns(config);
    let kept = |index: &usize| is_recorded(config, columns[*index]);
    let name = |index: usize| match columns[index] {
        (name, Exposure::Covered) => name.to_owned(),
        (name, Exposure::NotPrivate) => format!("{NOT_PRIVATE}{name}"),
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record((0..columns.len()).filter(kept).map(name))?;
    for row in csv::Reader::from_reader(whole.as_bytes()).records() {
        let row = row?;
        writer.write_record((0..columns.len()).filter(kept).map(|index| &row[index]))?;
    }
    Ok(writer.into_inner()?)
}

/// How the names of columns begin that no guarantee covers.
const NOT_PRIVATE: &str = "not_private_";

/// A `metrics.csv` that anyone wrote, without the columns that tell of batches; for runs whose batches are secret.
///
/// # Errors
/// If it is no table.
pub fn without_batches(table: &str) -> anyhow::Result<String> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let header = reader.headers()?.clone();
    // The first runs did not mark their columns.
    let name = |index: usize| header[index].trim_start_matches(NOT_PRIVATE);
    let kept: Vec<usize> =
        (0..header.len()).filter(|index| !OF_BATCHES.contains(&name(*index))).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(kept.iter().map(|index| &header[*index]))?;
    for row in reader.records() {
        let row = row?;
        writer.write_record(kept.iter().map(|index| &row[*index]))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// All columns, for a checkpoint.
pub(super) fn whole_table(epochs: &[Epoch]) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for epoch in epochs {
        writer.serialize(epoch)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// The epochs of a table with all columns.
pub(super) fn read_table(table: &str) -> anyhow::Result<Vec<Epoch>> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    reader.deserialize().collect::<Result<_, _>>().context("the epochs of a checkpoint")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::file;

    fn epochs() -> Vec<Epoch> {
        let epoch = |epoch: usize, train_loss, clipped_share| Epoch {
            epoch,
            step: 4 * epoch,
            accuracy: (epoch != 2).then_some(0.1 + 0.2),
            loss: (epoch != 2).then_some(1.0 / 3.0),
            last_iterate_accuracy: (epoch == 3).then_some(0.25),
            last_iterate_loss: (epoch == 3).then_some(2.0),
            train_loss,
            train_accuracy: 0.5,
            clipped_share,
            examples_per_second: 1e3,
            seconds: 2.5,
        };
        vec![epoch(1, 2.0, Some(0.25)), epoch(2, f64::INFINITY, None), epoch(3, 1.0, None)]
    }

    fn config(overrides: &[&str]) -> Config {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/textures.toml");
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        file::read(&path, &overrides).unwrap()
    }

    fn header(config: &Config) -> String {
        let table = String::from_utf8(table(&epochs(), config).unwrap()).unwrap();
        table.lines().next().unwrap().to_owned()
    }

    #[test]
    fn a_table_keeps_every_bit() {
        let whole = whole_table(&epochs()).unwrap();
        assert_eq!(read_table(&whole).unwrap(), epochs());
        assert!(read_table(&whole_table(&[]).unwrap()).unwrap().is_empty());
        // The columns are those of the type: each name is that of its field, with the examples' in between.
        let fields: Vec<&str> = whole.lines().next().unwrap().split(',').collect();
        let names = columns(&config(&[])).map(|(name, _)| name);
        assert_eq!(fields.len(), names.len());
        assert!(fields.iter().zip(names).all(|(field, name)| name.replace("test_", "") == **field));
    }

    #[test]
    fn secret_batches_leave_nothing_of_themselves_in_the_table() {
        let secret = "privacy.sampling=balls-in-bins";
        let (test, tuned) = (config(&[secret]), config(&[secret, "data.validation=0.25"]));
        assert_eq!(header(&test), "epoch,step,test_accuracy,test_loss");
        let names = "epoch,step,not_private_validation_accuracy,not_private_validation_loss";
        assert_eq!(header(&tuned), names);
        for config in [&test, &tuned] {
            let listed = metrics(config);
            assert!(listed.iter().all(|metric| !OF_BATCHES.contains(&metric.name.as_str())));
            assert_eq!(listed.len(), 5, "with the learning rate");
        }
        // Whoever asks for it has everything, and it can be taken out again.
        for more in [vec![], vec!["data.validation=0.25"]] {
            let whole = config(&[&[secret, "training.record=all"], &more[..]].concat());
            let whole = String::from_utf8(table(&epochs(), &whole).unwrap()).unwrap();
            assert!(whole.contains("not_private_examples_per_second"));
            let usual = config(&[&[secret], &more[..]].concat());
            let usual = String::from_utf8(table(&epochs(), &usual).unwrap()).unwrap();
            assert_eq!(without_batches(&whole).unwrap(), usual);
            assert_eq!(without_batches(&usual).unwrap(), usual);
        }
        // In a fixed order everything is written, as ever.
        assert_eq!(metrics(&config(&[])).len(), 12);
    }

    #[test]
    fn a_public_record_has_no_column_of_the_training_data() {
        let (public, all) = (config(&["training.record=public"]), config(&[]));
        let table = String::from_utf8(table(&epochs(), &public).unwrap()).unwrap();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "epoch,step,test_accuracy,test_loss");
        assert_eq!(lines[1], "1,4,0.30000000000000004,0.3333333333333333");
        assert_eq!((lines[2], lines.len()), ("2,8,,", 4), "an epoch that was not evaluated");
        let listed = metrics(&public);
        assert!(listed.iter().all(|metric| metric.exposure == Exposure::Covered));
        assert_eq!((listed.len(), metrics(&all).len()), (5, 12));
    }

    #[test]
    fn with_an_average_the_last_iterate_has_columns_of_its_own_and_the_same_exposure() {
        let averaged = |more: &[&str]| {
            let mut overrides = vec!["training.average={kind='ema', decay=0.9}"];
            overrides.extend(more);
            config(&overrides)
        };
        let public = averaged(&["training.record=public"]);
        let table = String::from_utf8(table(&epochs(), &public).unwrap()).unwrap();
        let lines: Vec<&str> = table.lines().collect();
        let names =
            "epoch,step,test_accuracy,test_loss,last_iterate_test_accuracy,last_iterate_test_loss";
        assert_eq!(lines[0], names);
        assert_eq!(lines[3], "3,12,0.30000000000000004,0.3333333333333333,0.25,2.0");
        assert_eq!((metrics(&public).len(), metrics(&averaged(&[])).len()), (7, 14));
        let exposure = |config: &Config, name: &str| {
            metrics(config).into_iter().find(|metric| metric.name == name).map(|m| m.exposure)
        };
        let covered = exposure(&public, "last_iterate_test_accuracy");
        assert_eq!(covered, Some(Exposure::Covered));
        let tuned = averaged(&["data.validation=0.25"]);
        let open = exposure(&tuned, "last_iterate_validation_loss");
        assert_eq!(open, Some(Exposure::NotPrivate));
        assert_eq!(exposure(&config(&[]), "last_iterate_test_loss"), None);
    }

    #[test]
    fn a_column_that_is_not_private_says_so() {
        let names = header(&config(&[]));
        assert!(names.starts_with("epoch,step,test_accuracy,test_loss,not_private_train_loss,"));
        let tuned = config(&["data.validation=0.25"]);
        let start =
            "epoch,step,not_private_validation_accuracy,not_private_validation_loss,not_private_";
        assert!(header(&tuned).starts_with(start), "{}", header(&tuned));
        assert!(!header(&tuned).contains("test_"), "there is nothing of the test examples");
        let open = header(&config(&["privacy=none"]));
        assert!(open.starts_with("epoch,step,not_private_test_accuracy,"), "{open}");
        let exposure = |config: &Config, name: &str| {
            metrics(config).into_iter().find(|metric| metric.name == name).map(|m| m.exposure)
        };
        assert_eq!(exposure(&tuned, "validation_accuracy"), Some(Exposure::NotPrivate));
        assert_eq!(exposure(&tuned, "test_accuracy"), None);
        assert_eq!(exposure(&tuned, "batch_loss"), Some(Exposure::NotPrivate));
        assert_eq!(exposure(&tuned, "learning_rate"), Some(Exposure::Covered));
    }
}
