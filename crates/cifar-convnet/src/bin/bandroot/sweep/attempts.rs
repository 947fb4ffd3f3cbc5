//! Attempts: how many trainings were ever begun in the folder of a sweep, and the certificates that say so.
//!
//! Choosing the best of many runs on the same data is not covered by the guarantee of one of them, so every
//! certificate states among how many it may have been chosen. What counts is what was begun: a run that failed
//! has shown something too, and so has one that is in the grid no more. A line is written to `.sweep/NAME.attempts`
//! before each training that begins from the start. Of cells from before there were such files one attempt each is
//! known.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use dp_train::accounting::tuning::Tried;
use serde_json::Value;

use super::tried;
use cifar_convnet::files;
use cifar_convnet::run::folder::{self, is_checkpoint};

/// How the names of the files end.
const SUFFIX: &str = ".attempts";

/// Says that a training was begun again from the start, by which more were begun than any plan says.
const AGAIN: &str = "again";

/// Where a sweep keeps its notes.
const NOTES: &str = ".sweep";

/// Writes an attempt down that was made before attempts were, as long as the folder of the cell shows it. Whoever
/// calls holds the claim of the cell.
pub(super) fn remember(sweep: &Path, cell: &str) -> anyhow::Result<()> {
    let path = sweep.join(NOTES).join(format!("{cell}{SUFFIX}"));
    if !path.exists() && was_begun(&sweep.join(cell))? {
        append(sweep, &path, "begun before attempts were written down\n")?;
    }
    Ok(())
}

/// Notes that the training of a cell is about to begin from the start: on the disk before it can show anything.
/// Whoever calls holds the claim of the cell. Whether it was begun before: then finished runs are to be told.
pub(super) fn note(sweep: &Path, cell: &str) -> anyhow::Result<bool> {
    remember(sweep, cell)?;
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let path = sweep.join(NOTES).join(format!("{cell}{SUFFIX}"));
    let again = path.exists();
    append(sweep, &path, &format!("begun at {time}\n"))?;
    if again && !was_any_begun_again(sweep) {
        let mark = sweep.join(NOTES).join(AGAIN);
        fs::write(&mark, "").with_context(|| format!("could not write {}", mark.display()))?;
    }
    Ok(again)
}

/// Whether a training of the folder was ever begun again from the start. A run that is done then counts more than its config
/// says, which is from before.
pub(super) fn was_any_begun_again(sweep: &Path) -> bool {
    sweep.join(NOTES).join(AGAIN).exists()
}

fn append(sweep: &Path, path: &Path, line: &str) -> anyhow::Result<()> {
    let context = || format!("could not write {}", path.display());
    let mut file = OpenOptions::new().create(true).append(true).open(path).with_context(context)?;
    file.write_all(line.as_bytes()).with_context(context)?;
    file.sync_all().with_context(context)?;
    files::sync_folder(&sweep.join(NOTES))
}

/// The attempts at every cell that was ever begun in the folder of a sweep, by the cells' names.
pub(crate) fn counts(sweep: &Path) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    for name in names(sweep)? {
        if !name.starts_with('.') && was_begun(&sweep.join(&name))? {
            counts.insert(name, 1);
        }
    }
    for name in names(&sweep.join(NOTES))? {
        let Some(cell) = name.strip_suffix(SUFFIX) else { continue };
        let path = sweep.join(NOTES).join(&name);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("could not read {}", path.display()))?;
        let count = counts.entry(cell.to_owned()).or_insert(0);
        *count = (text.lines().count() as u64).max(*count);
    }
    Ok(counts)
}

/// Where the runs are that a cell may have been chosen among.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Among {
    /// All cells of the folder, and so many as were made before and elsewhere.
    Folder,
    /// Some of the folder's cells, and others.
    Others,
}

/// Brings the certificates and summaries of all finished cells up to date: `trials` says among how many runs a
/// cell may have been chosen, given the attempts at all cells. A number never falls. Once all of them are in the folder
/// and have written down their noise, the certificates say what they cost together.
///
/// # Errors
/// If a file cannot be read or written; it is named.
pub(crate) fn settle(
    sweep: &Path,
    among: Among,
    trials: impl Fn(&str, &BTreeMap<String, u64>) -> u64,
) -> anyhow::Result<()> {
    let path = sweep.join(NOTES).join("trials.lock");
    let context = || format!("could not lock {}", path.display());
    let options = &mut OpenOptions::new();
    let lock =
        options.create(true).write(true).truncate(false).open(&path).with_context(context)?;
    // Held until the end: who counted fewer must not write after who counted more.
    match lock.lock() {
        Err(error) if !files::has_no_locks(&error) => {
            return Err(error).with_context(context);
        }
        _ => {}
    }
    let counts = counts(sweep)?;
    let tried = match among {
        Among::Folder => tried::of(sweep, &counts),
        Among::Others => None,
    };
    for cell in counts.keys() {
        let folder = sweep.join(cell);
        if folder.join(folder::SUMMARY).exists() && folder.join(folder::CERTIFICATE).exists() {
            restate(sweep, cell, trials(cell, &counts), tried.as_deref())?;
        }
    }
    Ok(())
}

/// Writes the number of trials, and what they cost together if that is known, into the certificate of a finished run,
/// and what it then says into the summary.
fn restate(sweep: &Path, cell: &str, trials: u64, tried: Option<&[Tried]>) -> anyhow::Result<()> {
    let folder = sweep.join(cell);
    let replace = |name: &str, text: String| {
        // Beside the folder: whoever tidies up in it must not find this half-written.
        let temporary = sweep.join(NOTES).join(format!("{cell}.{name}"));
        files::write_through(&temporary, &folder.join(name), text.as_bytes())
    };
    let found = folder::read_certificate(&folder)?;
    let mut certificate = found.clone().with_trials(trials);
    if let Some(tried) = tried {
        certificate = certificate.with_tried(tried);
    }
    if certificate != found {
        replace(folder::CERTIFICATE, files::json(&certificate)?)?;
    }
    let path = folder.join(folder::SUMMARY);
    let context = || format!("could not bring {} up to date", path.display());
    let text = fs::read(&path).with_context(context)?;
    let mut summary: Value = serde_json::from_slice(&text).with_context(context)?;
    if summary["statement"] != certificate.statement.as_str() {
        summary["statement"] = certificate.statement.into();
        replace(folder::SUMMARY, files::json(&summary)?)?;
    }
    Ok(())
}

/// Whether a training was begun in the folder of a cell: it has shown or may have shown something.
fn was_begun(folder: &Path) -> anyhow::Result<bool> {
    let known = [folder::CONFIG, folder::SUMMARY, folder::FAILED];
    Ok(names(folder)?.iter().any(|name| known.contains(&name.as_str()) || is_checkpoint(name)))
}

/// The names in a folder; none if there is no such folder, or if it is a file.
pub(super) fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if files::is_gone(&error) || error.kind() == ErrorKind::NotADirectory => {
            return Ok(Vec::new());
        }
        entries => {
            entries.with_context(|| format!("could not read the folder {}", folder.display()))?
        }
    };
    let mut names = Vec::new();
    for entry in entries {
        match entry {
            // Another machine removed the folder meanwhile.
            Err(error) if files::is_gone(&error) => return Ok(Vec::new()),
            entry => names.push(entry?.file_name().to_string_lossy().into_owned()),
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_counts_and_a_cell_from_before_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let sweep = folder.path();
        fs::create_dir(sweep.join(NOTES)).unwrap();
        let place = |cell: &str, file: &str| {
            fs::create_dir_all(sweep.join(cell)).unwrap();
            fs::write(sweep.join(cell).join(file), "").unwrap();
        };
        let count = |cell: &str| counts(sweep).unwrap().get(cell).copied();
        place("done", "summary.json");
        place("failed", "failed.json");
        place("empty", "notes.txt");
        fs::write(sweep.join("sweep.csv"), "").unwrap();
        assert_eq!((count("done"), count("failed"), count("empty")), (Some(1), Some(1), None));
        // Tried again: the attempt from before is written down with the new one.
        assert!(note(sweep, "failed").unwrap() && was_any_begun_again(sweep));
        assert_eq!(count("failed"), Some(2));
        assert!(!note(sweep, "new").unwrap());
        assert_eq!(count("new"), Some(1), "it was begun, though it left no folder");
        place("new", "config.toml");
        assert_eq!(count("new"), Some(1));
        note(sweep, "new").unwrap();
        assert_eq!(counts(sweep).unwrap().values().sum::<u64>(), 1 + 2 + 2);
    }
}
