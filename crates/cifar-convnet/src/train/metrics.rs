//! The record of a run: one line per epoch, and which of its columns may be published.

use anyhow::Context;
use dp_train::certificate::{Exposure, Metric};
use serde::{Deserialize, Serialize};

use crate::config::Record;

/// One line of `metrics.csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Epoch {
    pub(super) epoch: usize,
    pub(super) step: usize,
    pub(super) test_accuracy: f64,
    pub(super) test_loss: f64,
    /// From here on it depends on the training data and is covered by no guarantee.
    pub(super) train_loss: f64,
    pub(super) train_accuracy: f64,
    /// None if nothing is clipped.
    pub(super) clipped_share: Option<f64>,
    pub(super) examples_per_second: f64,
    pub(super) seconds: f64,
}

/// The columns, in the order of the type.
const COLUMNS: [(&str, Exposure); 9] = [
    ("epoch", Exposure::Covered),
    ("step", Exposure::Covered),
    ("test_accuracy", Exposure::Covered),
    ("test_loss", Exposure::Covered),
    ("train_loss", Exposure::NotPrivate),
    ("train_accuracy", Exposure::NotPrivate),
    ("clipped_share", Exposure::NotPrivate),
    ("examples_per_second", Exposure::NotPrivate),
    ("seconds", Exposure::NotPrivate),
];

fn is_recorded(record: Record, exposure: Exposure) -> bool {
    record == Record::All || exposure == Exposure::Covered
}

/// What is recorded, for the certificate.
pub(super) fn metrics(record: Record) -> Vec<Metric> {
    let recorded = COLUMNS.into_iter().filter(|(_, exposure)| is_recorded(record, *exposure));
    recorded.map(|(name, exposure)| Metric { name: name.to_owned(), exposure }).collect()
}

/// The content of `metrics.csv`.
pub(super) fn table(epochs: &[Epoch], record: Record) -> anyhow::Result<Vec<u8>> {
    let mut whole = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    for epoch in epochs {
        whole.serialize(epoch)?;
    }
    let whole = whole.into_inner()?;
    let recorded: Vec<bool> =
        COLUMNS.iter().map(|(_, exposure)| is_recorded(record, *exposure)).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    let kept = |index: &usize| recorded[*index];
    writer.write_record((0..COLUMNS.len()).filter(kept).map(|index| COLUMNS[index].0))?;
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(&whole[..]);
    for row in reader.records() {
        let row = row?;
        writer.write_record((0..COLUMNS.len()).filter(kept).map(|index| &row[index]))?;
    }
    Ok(writer.into_inner()?)
}

/// The epochs of a table with all columns.
pub(super) fn read_table(table: &str) -> anyhow::Result<Vec<Epoch>> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    reader.deserialize().collect::<Result<_, _>>().context("the epochs of a checkpoint")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs() -> Vec<Epoch> {
        let epoch = |epoch: usize, train_loss, clipped_share| Epoch {
            epoch,
            step: 4 * epoch,
            test_accuracy: 0.1 + 0.2,
            test_loss: 1.0 / 3.0,
            train_loss,
            train_accuracy: 0.5,
            clipped_share,
            examples_per_second: 1e3,
            seconds: 2.5,
        };
        vec![epoch(1, 2.0, Some(0.25)), epoch(2, f64::INFINITY, None)]
    }

    #[test]
    fn a_table_keeps_every_bit() {
        let table = table(&epochs(), Record::All).unwrap();
        let read = read_table(std::str::from_utf8(&table).unwrap()).unwrap();
        assert_eq!(read, epochs());
        let header = String::from_utf8(table).unwrap().lines().next().unwrap().to_owned();
        assert_eq!(header.split(',').count(), COLUMNS.len());
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.serialize(&epochs()[0]).unwrap();
        let names = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        assert_eq!(names.lines().next().unwrap(), header, "the columns are those of the type");
    }

    #[test]
    fn a_public_record_has_no_column_of_the_training_data() {
        let table = String::from_utf8(table(&epochs(), Record::Public).unwrap()).unwrap();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "epoch,step,test_accuracy,test_loss");
        assert_eq!(lines[1], "1,4,0.30000000000000004,0.3333333333333333");
        assert_eq!(lines.len(), 3);
        let public = metrics(Record::Public);
        assert!(public.iter().all(|metric| metric.exposure == Exposure::Covered));
        assert_eq!((public.len(), metrics(Record::All).len()), (4, 9));
    }
}
