//! `bandroot results import`: runs as they are kept in git: small files, no model, no secret, no path of a
//! machine, and of runs on secret batches nothing that tells of these.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use dp_train::certificate::Certificate;
use serde_json::Value;

use crate::cli::Results;
use crate::terminal::output;
use cifar_convnet::BadArgument;
use cifar_convnet::files;
use cifar_convnet::run::folder;

mod batches;
mod tables;

/// Files that are taken over, where they exist.
const KEPT: [&str; 8] = [
    folder::CONFIG,
    folder::PLAN,
    folder::ENVIRONMENT,
    folder::PROVENANCE,
    folder::METRICS,
    folder::SUMMARY,
    folder::CERTIFICATE,
    folder::FAILED,
];

/// Runs one of the commands.
pub(crate) fn run(command: &Results) -> anyhow::Result<()> {
    let Results::Import(arguments) = command;
    let mut runs = Vec::new();
    for folder in &arguments.runs {
        ensure!(folder.is_dir(), BadArgument(format!("there is no folder {}", folder.display())));
        let before = runs.len();
        find(folder, &mut runs)?;
        ensure!(
            runs.len() > before,
            BadArgument(format!("{} holds no finished or failed run", folder.display()))
        );
    }
    let mut failed = 0;
    let mut places = Vec::new();
    // All of them before anything is written.
    for run in &runs {
        if !arguments.by_table {
            places.push((run, arguments.into.clone()));
        } else if run.join(folder::SUMMARY).is_file() {
            places.push((run, tables::folder(run, &arguments.into)?));
        } else {
            failed += 1;
        }
    }
    let (mut imported, mut there, mut abridged) = (0, 0, 0);
    for (run, into) in &places {
        let mut files = files(run, arguments.trials)?;
        let secret = batches::are_secret(run)?;
        if secret {
            for (name, text) in &mut files {
                *text = batches::left_out(name, text)
                    .with_context(|| format!("could not read {}", run.join(name).display()))?;
            }
        }
        abridged += usize::from(files.iter().any(|(name, _)| *name == folder::ABRIDGED));
        match import(run, &files, into, secret)? {
            true => imported += 1,
            false => there += 1,
        }
    }
    if arguments.by_table {
        tables::list(&arguments.into)?;
    }
    let mut text = format!("{imported} runs imported into {}", arguments.into.display());
    if there > 0 {
        text += &format!(", {there} were there already");
    }
    if failed > 0 {
        text += &format!(", {failed} that failed are in no table and were left out");
    }
    if abridged > 0 {
        text += &format!(
            "; {abridged} without the rows of their strategy: {} keeps their hash, and the run \
             folder the whole certificate for bandroot verify",
            folder::ABRIDGED
        );
    }
    output::print(&text)
}

/// All folders at or below one that hold a summary or a failure, in order; hidden ones are passed by.
fn find(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if folder.join(folder::SUMMARY).is_file() || folder.join(folder::FAILED).is_file() {
        found.push(folder.to_owned());
        return Ok(());
    }
    let mut entries = fs::read_dir(folder)
        .and_then(|entries| entries.collect::<Result<Vec<_>, _>>())
        .with_context(|| format!("could not read the folder {}", folder.display()))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if entry.path().is_dir() && !hidden {
            find(&entry.path(), found)?;
        }
    }
    Ok(())
}

/// The files of a run as they are to be kept, with so many trials if they say fewer.
fn files(run: &Path, trials: u64) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut files = Vec::new();
    let restated = restated(run, trials)?;
    for name in KEPT {
        let path = run.join(name);
        if !path.exists() {
            continue;
        }
        let context = || format!("could not read {}", path.display());
        let text = fs::read_to_string(&path).with_context(context)?;
        if name.ends_with(".csv") {
            files.push((name, text));
        } else if name.ends_with(".toml") {
            let mut table: toml::Table = text.parse().with_context(context)?;
            // Where the data was on that machine, and the run that it started from, says nothing about the run.
            for (section, key) in [("data", "folder"), ("model", "start_from")] {
                if let Some(toml::Value::String(folder)) =
                    table.get_mut(section).and_then(|section| section.get_mut(key))
                {
                    *folder = without_paths(folder);
                }
            }
            files.push((name, toml::to_string_pretty(&table)?));
        } else {
            let mut value: Value = serde_json::from_str(&text).with_context(context)?;
            if let Some(restated) = &restated {
                if let (folder::CERTIFICATE, Some(fields)) = (name, value.as_object_mut()) {
                    fields.insert("trials".to_owned(), restated.trials.into());
                    // What they cost together is not known of runs that are only counted.
                    fields.remove("epsilon_all_trials");
                    fields.remove("tried");
                }
                if value.get("statement").is_some_and(|statement| !statement.is_null()) {
                    value["statement"] = restated.statement.as_str().into();
                }
            }
            remove_paths(&mut value);
            let long = value.get("strategy").is_some_and(|strategy| !strategy.is_null());
            if name == folder::CERTIFICATE && long {
                value["strategy"] = Value::Null;
                files.push((folder::ABRIDGED, files::json(&value)?));
            } else {
                files.push((name, files::json(&value)?));
            }
        }
    }
    Ok(files)
}

/// A certificate after so many trials; none if there is none, or if it says as many.
fn restated(run: &Path, trials: u64) -> anyhow::Result<Option<Certificate>> {
    if !run.join(folder::CERTIFICATE).exists() {
        return Ok(None);
    }
    let certificate = folder::read_certificate(run)?;
    Ok((trials > certificate.trials).then(|| certificate.with_trials(trials)))
}

/// Every string without the absolute paths in it.
fn remove_paths(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_paths(text),
        Value::Array(values) => values.iter_mut().for_each(remove_paths),
        Value::Object(values) => values.values_mut().for_each(remove_paths),
        _ => {}
    }
}

/// Words that are absolute paths give way to their last part.
fn without_paths(text: &str) -> String {
    let last = |word: &str| match word.rsplit_once('/') {
        Some((_, last)) if word.trim_start_matches(['"', '\'', '(']).starts_with('/') => {
            last.to_owned()
        }
        _ => word.to_owned(),
    };
    text.split(' ').map(last).collect::<Vec<_>>().join(" ")
}

/// Writes the files into a new folder, whole or not at all; `false` if they are there already. What is there is
/// replaced only if more runs have been made since, and it says nothing else that is new, or if it tells of `secret`
/// batches and says nothing else besides.
fn import(run: &Path, files: &[(&str, String)], into: &Path, secret: bool) -> anyhow::Result<bool> {
    let full = run.canonicalize().with_context(|| run.display().to_string())?;
    let name = full.file_name().context("a run folder has a name")?;
    let target = into.join(name);
    if target.exists() {
        for (name, text) in files {
            let found = fs::read_to_string(target.join(name)).unwrap_or_default();
            let told = secret && found != *text && batches::left_out(name, &found)? == *text;
            if told || is_restated(&found, text) {
                files::write(&target.join(name), text.as_bytes())?;
            } else if found != *text && !is_restated(text, &found) {
                bail!(
                    "{} is there already and differs from {} in {name}",
                    target.display(),
                    run.display()
                );
            }
        }
        return Ok(false);
    }
    let temporary =
        into.join(format!(".{}.{}.partial", name.to_string_lossy(), files::unique_name()?));
    fs::create_dir_all(&temporary)
        .with_context(|| format!("could not make the folder {}", temporary.display()))?;
    for (name, text) in files {
        files::write(&temporary.join(name), text.as_bytes())?;
    }
    fs::rename(&temporary, &target)
        .with_context(|| format!("could not make the folder {}", target.display()))?;
    Ok(true)
}

/// Whether a certificate or summary differs from an older one only in the number of runs that it was chosen among,
/// which has grown.
fn is_restated(old: &str, new: &str) -> bool {
    let (Ok(Value::Object(mut old)), Ok(Value::Object(mut new))) =
        (serde_json::from_str(old), serde_json::from_str(new))
    else {
        return false;
    };
    let trials = [old.remove("trials"), new.remove("trials")];
    let trials = trials.map(|trials| trials.and_then(|trials| trials.as_u64()));
    // What the runs cost together changes with their number, and is known only once all of them were begun.
    let together = [old.remove("epsilon_all_trials"), new.remove("epsilon_all_trials")];
    let _ = (old.remove("tried"), new.remove("tried"));
    let statements = [old.remove("statement"), new.remove("statement")]
        .map(|statement| statement.as_ref().and_then(Value::as_str).map(str::to_owned));
    let completed = match (&together, &statements) {
        ([None, Some(_)], _) => true,
        ([None, None], [Some(old), Some(new)]) => new.len() > old.len() && new.starts_with(old),
        _ => false,
    };
    let counted = statements.map(|statement| statement.as_deref().map(without_count));
    // A summary has the number in its statement only.
    let grown = match (&trials, &counted) {
        ([Some(old), Some(new)], _) => old < new || (old == new && completed),
        (_, [Some((_, old)), Some((_, new))]) => old < new || (old == new && completed),
        _ => false,
    };
    let words = counted.map(|counted| counted.map(|(words, _)| words));
    grown && old == new && words[0] == words[1]
}

/// A statement without the number of runs it was chosen among, and that number.
fn without_count(statement: &str) -> (String, u64) {
    let counted = statement.split_once("; choosing among ").and_then(|(words, rest)| {
        let (number, _) = rest.split_once(' ')?;
        Some((words.to_owned(), number.parse().ok()?))
    });
    counted.unwrap_or_else(|| (statement.to_owned(), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_of_runs_that_has_grown_is_taken_over() {
        let certificate = |epsilon: f64, trials: u64| {
            let sweep = format!("; choosing among {trials} runs is not covered");
            let statement = format!("private{}", if trials > 1 { &sweep } else { "" });
            let value =
                serde_json::json!({"epsilon": epsilon, "trials": trials, "statement": statement});
            let mut summary = value.clone();
            summary.as_object_mut().unwrap().remove("trials");
            [value.to_string(), summary.to_string()]
        };
        let [one, eight, other] = [certificate(4.0, 1), certificate(4.0, 8), certificate(3.0, 8)];
        for file in [0, 1] {
            assert!(is_restated(&one[file], &eight[file]));
            assert!(!is_restated(&eight[file], &one[file]));
            assert!(!is_restated(&one[file], &one[file]));
            assert!(!is_restated(&one[file], &other[file]));
            let louder = eight[file].replace("private;", "very private;");
            assert!(!is_restated(&one[file], &louder));
        }
        assert!(!is_restated("", &one[0]));
        // As many runs as before, but now it is known what they cost together.
        let together = |text: &str| {
            text.replace(
                "is not covered",
                "is not covered: all of them together are (9, 1e-5)-private",
            )
        };
        let known =
            together(&eight[0]).replace('{', "{\"epsilon_all_trials\": 9.0, \"tried\": [], ");
        assert!(is_restated(&eight[0], &known) && !is_restated(&known, &eight[0]));
        let summary = together(&eight[1]);
        assert!(is_restated(&eight[1], &summary) && !is_restated(&summary, &eight[1]));
    }

    #[test]
    fn paths_of_a_machine_are_cut_and_others_stay() {
        let cut = without_paths("bandroot train /home/me/a.toml --out results/run \"/x/y\"");
        assert_eq!(cut, "bandroot train a.toml --out results/run y\"");
        assert_eq!(without_paths("1/2 of and/or"), "1/2 of and/or");
    }
}
