//! `bandroot results import`: runs as they are kept in git: small files, no model, no secret, no path of a
//! machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::output::{self, BadArgument};

/// Files that are taken over, where they exist.
const KEPT: [&str; 7] = [
    "config.toml",
    "plan.json",
    "environment.json",
    "metrics.csv",
    "summary.json",
    "privacy.json",
    "failed.json",
];

/// What a certificate is called whose strategy was left out: `bandroot verify` needs the whole one.
const ABRIDGED: &str = "privacy-abridged.json";

/// What to do with recorded results.
#[derive(Debug, Subcommand)]
pub(crate) enum Results {
    /// Copy runs into a folder of results: their small files only, and nothing twice
    Import(Import),
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Run folders, or folders with run folders below them, such as that of a sweep
    #[arg(required = true, value_name = "RUN_DIR")]
    runs: Vec<PathBuf>,

    /// The folder to copy them to
    #[arg(long, value_name = "DIR", default_value = "results/runs")]
    into: PathBuf,
}

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
    let (mut imported, mut there, mut abridged) = (0, 0, 0);
    for run in &runs {
        let files = files(run)?;
        abridged += usize::from(files.iter().any(|(name, _)| *name == ABRIDGED));
        match import(run, &files, &arguments.into)? {
            true => imported += 1,
            false => there += 1,
        }
    }
    let mut text = format!("{imported} runs imported into {}", arguments.into.display());
    if there > 0 {
        text += &format!(", {there} were there already");
    }
    if abridged > 0 {
        text += &format!(
            "; {abridged} without the rows of their strategy: {ABRIDGED} keeps their hash, and the run \
             folder the whole certificate for bandroot verify"
        );
    }
    output::print(&text)
}

/// All folders at or below one that hold a summary or a failure, in order; hidden ones are passed by.
fn find(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if folder.join("summary.json").is_file() || folder.join("failed.json").is_file() {
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

/// The files of a run as they are to be kept.
fn files(run: &Path) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut files = Vec::new();
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
            // Where the data was on that machine says nothing about the run.
            if let Some(toml::Value::String(folder)) =
                table.get_mut("data").and_then(|data| data.get_mut("folder"))
            {
                *folder = without_paths(folder);
            }
            files.push((name, toml::to_string_pretty(&table)?));
        } else {
            let mut value: Value = serde_json::from_str(&text).with_context(context)?;
            remove_paths(&mut value);
            let long = value.get("strategy").is_some_and(|strategy| !strategy.is_null());
            if name == "privacy.json" && long {
                value["strategy"] = Value::Null;
                files.push((ABRIDGED, output::json(&value)?));
            } else {
                files.push((name, output::json(&value)?));
            }
        }
    }
    Ok(files)
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

/// Writes the files into a new folder, whole or not at all; `false` if they are there already.
fn import(run: &Path, files: &[(&str, String)], into: &Path) -> anyhow::Result<bool> {
    let full = run.canonicalize().with_context(|| run.display().to_string())?;
    let name = full.file_name().context("a run folder has a name")?;
    let target = into.join(name);
    if target.exists() {
        for (name, text) in files {
            let found = fs::read_to_string(target.join(name)).unwrap_or_default();
            if found != *text {
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
        into.join(format!(".{}.{}.partial", name.to_string_lossy(), std::process::id()));
    fs::create_dir_all(&temporary)
        .with_context(|| format!("could not make the folder {}", temporary.display()))?;
    for (name, text) in files {
        output::write_file(&temporary.join(name), text.as_bytes())?;
    }
    fs::rename(&temporary, &target)
        .with_context(|| format!("could not make the folder {}", target.display()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_machine_are_cut_and_others_stay() {
        let cut = without_paths("bandroot train /home/me/a.toml --out results/run \"/x/y\"");
        assert_eq!(cut, "bandroot train a.toml --out results/run y\"");
        assert_eq!(without_paths("1/2 of and/or"), "1/2 of and/or");
    }
}
