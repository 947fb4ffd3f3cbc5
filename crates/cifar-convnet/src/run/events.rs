//! The TensorBoard events of a run, appended as it goes.
//!
//! A file of records: length, checksum of the length, an `Event` as a protocol buffer, checksum of the
//! event. Steps are counted as steps taken. Tags of numbers that no guarantee covers start with
//! `not-private/`; without privacy those are all of them.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use crc::{CRC_32_ISCSI, Crc};
use dp_train::certificate::Exposure;
use prost::Message;

use super::metrics;
use crate::config::Record;
use crate::files;

/// The start of the files' names, by which TensorBoard finds them.
const PREFIX: &str = "events.out.tfevents.";

/// The start of the tags of numbers that no guarantee covers.
const NOT_PRIVATE: &str = "not-private/";

const CASTAGNOLI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Scalar>,
}

#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    /// Optional, so that a zero is written too.
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// The event file of a run.
#[derive(Debug)]
pub(super) struct Events {
    file: File,
    path: PathBuf,
    record: Record,
    /// Whether there is a guarantee that covers anything.
    private: bool,
    started: f64,
}

impl Events {
    /// A new file in the folder of a run that has taken `steps`. Takes over the events up to there from
    /// the newest file, then removes the older ones: readers find every step once. A record takes over nothing that it
    /// would not have, whoever wrote it.
    pub(super) fn open(
        folder: &Path,
        steps: usize,
        record: Record,
        private: bool,
    ) -> anyhow::Result<Self> {
        let old = files(folder)?;
        let started = now();
        let mut number = started as u64;
        let mut content = framed(&Event {
            wall_time: started,
            file_version: Some("brain.Event:2".into()),
            ..Event::default()
        });
        if let Some((newest, path)) = old.last() {
            number = number.max(newest + 1);
            let bytes =
                fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
            // What a crash left half-written at the end is dropped with the steps after the checkpoint.
            for mut event in records(&bytes).map_while(Result::ok) {
                let Some(summary) = &mut event.summary else { continue };
                summary.value.retain(|scalar| match scalar.tag.strip_prefix(NOT_PRIVATE) {
                    Some(name) => metrics::is_in(record, name, Exposure::NotPrivate),
                    None => true,
                });
                if record != Record::All {
                    event.wall_time = started;
                }
                if !summary.value.is_empty() && event.step <= steps as i64 {
                    content.extend(framed(&event));
                }
            }
        }
        let path = folder.join(format!("{PREFIX}{number:010}.bandroot"));
        files::write(&path, &content)?;
        for (_, old) in old {
            fs::remove_file(&old).with_context(|| format!("could not remove {}", old.display()))?;
        }
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.with_context(|| format!("could not open {}", path.display()))?;
        Ok(Self { file, path, record, private, started })
    }

    /// Appends numbers of a step: those that the guarantee covers, and those that it does not.
    pub(super) fn add(
        &mut self,
        step: usize,
        covered: &[(&str, f64)],
        open: &[(&str, f64)],
    ) -> anyhow::Result<()> {
        let is_kept = |name: &str| metrics::is_in(self.record, name, Exposure::NotPrivate);
        let open = open.iter().filter(|(name, _)| is_kept(name));
        let all = covered.iter().map(|scalar| (scalar, self.private));
        let all = all.chain(open.map(|scalar| (scalar, false)));
        let value: Vec<Scalar> = all
            .map(|((tag, value), is_covered)| Scalar {
                tag: if is_covered { (*tag).to_owned() } else { format!("{NOT_PRIVATE}{tag}") },
                simple_value: Some(*value as f32),
            })
            .collect();
        if value.is_empty() {
            return Ok(());
        }
        // The time between events is the speed, which is not public, and tells the size of a batch.
        let wall_time = if self.record == Record::All { now() } else { self.started };
        let summary = Some(Summary { value });
        let event = Event { wall_time, step: step as i64, file_version: None, summary };
        self.file
            .write_all(&framed(&event))
            .with_context(|| format!("could not write {}", self.path.display()))
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// The event files of a folder by their numbers, oldest first.
fn files(folder: &Path) -> anyhow::Result<Vec<(u64, PathBuf)>> {
    let entries = fs::read_dir(folder)
        .with_context(|| format!("could not read the folder {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(".bandroot"));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found)
}

/// A record: rotated and shifted checksums, so that a checksum of a checksum is not one.
fn framed(event: &Event) -> Vec<u8> {
    let (event, length) = (event.encode_to_vec(), event.encoded_len() as u64);
    let length = length.to_le_bytes();
    let mut bytes = length.to_vec();
    bytes.extend(masked(&length).to_le_bytes());
    bytes.extend_from_slice(&event);
    bytes.extend(masked(&event).to_le_bytes());
    bytes
}

fn masked(bytes: &[u8]) -> u32 {
    CASTAGNOLI.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The events of a file, up to the first that is damaged or cut short.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = anyhow::Result<Event>> {
    let mut next = move || -> anyhow::Result<Option<Event>> {
        let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
            if bytes.is_empty() {
                return Ok(None);
            }
            bail!("cut short");
        };
        let (sum, rest) = rest.split_first_chunk::<4>().context("cut short")?;
        if u32::from_le_bytes(*sum) != masked(length) {
            bail!("a length does not have its checksum");
        }
        let length = usize::try_from(u64::from_le_bytes(*length))?;
        let (event, rest) = rest.split_at_checked(length).context("cut short")?;
        let (sum, rest) = rest.split_first_chunk::<4>().context("cut short")?;
        if u32::from_le_bytes(*sum) != masked(event) {
            bail!("an event does not have its checksum");
        }
        bytes = rest;
        Ok(Some(Event::decode(event)?))
    };
    std::iter::from_fn(move || next().transpose())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Step, tag and value of everything in the one file of a folder, all checksums right.
    fn scalars(folder: &Path) -> Vec<(i64, String, f32)> {
        let files = files(folder).unwrap();
        assert_eq!(files.len(), 1);
        let bytes = fs::read(&files[0].1).unwrap();
        let events: Vec<Event> = records(&bytes).map(Result::unwrap).collect();
        assert_eq!(events[0].file_version.as_deref(), Some("brain.Event:2"));
        let values = |event: &Event| {
            let step = event.step;
            let values = event.summary.clone().unwrap().value.into_iter();
            values.map(move |scalar| (step, scalar.tag, scalar.simple_value.unwrap()))
        };
        events[1..].iter().flat_map(values).collect()
    }

    #[test]
    fn the_bytes_are_those_that_tensorboard_reads() {
        // CRC-32C of "123456789" is the published check value.
        assert_eq!(CASTAGNOLI.checksum(b"123456789"), 0xe306_9283);
        let scalar = Scalar { tag: "a".into(), simple_value: Some(0.0) };
        let event = Event {
            wall_time: 0.0,
            step: 3,
            file_version: None,
            summary: Some(Summary { value: vec![scalar] }),
        };
        // By the protocol buffers' rules: step = 3; summary of 10 bytes; value of 8; tag "a"; 0.0.
        let body = [16, 3, 42, 10, 10, 8, 10, 1, b'a', 21, 0, 0, 0, 0];
        let bytes = framed(&event);
        assert_eq!(bytes[..8], 14_u64.to_le_bytes());
        assert_eq!(bytes[12..26], body);
        let unmasked = |sum: &[u8]| {
            let sum = u32::from_le_bytes(sum.try_into().unwrap());
            sum.wrapping_sub(0xa282_ead8).rotate_left(15)
        };
        assert_eq!(unmasked(&bytes[8..12]), CASTAGNOLI.checksum(&bytes[..8]));
        assert_eq!(unmasked(&bytes[26..]), CASTAGNOLI.checksum(&body));
    }

    #[test]
    fn a_continued_run_has_every_step_once_whatever_was_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let open = |steps| Events::open(folder.path(), steps, Record::All, true).unwrap();
        let mut events = open(0);
        for step in 1..=5 {
            events.add(step, &[("lr", 0.5)], &[("loss", step as f64)]).unwrap();
        }
        // Killed within a record.
        let (_, path) = files(folder.path()).unwrap().pop().unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        let mut events = open(3);
        for step in 4..=6 {
            events.add(step, &[("lr", 0.5)], &[("loss", 10.0 * step as f64)]).unwrap();
        }
        let found = scalars(folder.path());
        let steps: Vec<i64> = found.iter().map(|(step, ..)| *step).collect();
        assert_eq!(steps, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]);
        assert_eq!(found[7], (4, "not-private/loss".into(), 40.0));
        assert_eq!(found[6], (4, "lr".into(), 0.5));
        // Killed between writing the new file and removing the old one.
        let (number, path) = files(folder.path()).unwrap().pop().unwrap();
        let older = folder.path().join(format!("{PREFIX}{:010}.bandroot", number - 1));
        fs::copy(path, older).unwrap();
        drop(open(6));
        assert_eq!(scalars(folder.path()), found);
    }

    #[test]
    fn a_public_record_takes_over_nothing_that_is_not_covered() {
        let folder = tempfile::tempdir().unwrap();
        let mut all = Events::open(folder.path(), 0, Record::All, true).unwrap();
        all.add(1, &[("lr", 0.5)], &[("batch_loss", 1.0)]).unwrap();
        all.add(2, &[], &[("batch_loss", 2.0)]).unwrap();
        let times = || -> Vec<f64> {
            let (_, path) = files(folder.path()).unwrap().pop().unwrap();
            let bytes = fs::read(path).unwrap();
            records(&bytes).map(|event| event.unwrap().wall_time).collect()
        };
        let mut secret = Events::open(folder.path(), 2, Record::NoBatches, true).unwrap();
        let judged = ("validation_accuracy", 0.75);
        secret.add(3, &[], &[("batch_loss", 3.0), judged]).unwrap();
        let tag = "not-private/validation_accuracy".to_owned();
        assert_eq!(scalars(folder.path())[1..], [(3, tag, 0.75)]);
        assert!(times().iter().all(|time| *time == times()[0]));
        drop(Events::open(folder.path(), 3, Record::Public, true).unwrap());
        assert_eq!(scalars(folder.path()), [(1, "lr".to_owned(), 0.5)]);
        assert_eq!(times()[0], times()[1], "the time between events is the speed");
    }

    #[test]
    fn what_is_not_covered_is_stripped_or_marked() {
        let tags = |record, private| {
            let folder = tempfile::tempdir().unwrap();
            let mut events = Events::open(folder.path(), 0, record, private).unwrap();
            events.add(1, &[("test/accuracy", 0.5)], &[("train_loss", 1.0)]).unwrap();
            scalars(folder.path()).into_iter().map(|(_, tag, _)| tag).collect::<Vec<_>>()
        };
        assert_eq!(tags(Record::All, true), ["test/accuracy", "not-private/train_loss"]);
        assert_eq!(tags(Record::Public, true), ["test/accuracy"]);
        assert_eq!(tags(Record::NoBatches, true), ["test/accuracy"]);
        let open = ["not-private/test/accuracy", "not-private/train_loss"];
        assert_eq!(tags(Record::All, false), open);
    }
}
