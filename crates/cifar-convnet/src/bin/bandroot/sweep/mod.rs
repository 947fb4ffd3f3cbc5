//! `bandroot sweep`: a grid over any keys of a config, or a search among candidates, run until nothing is missing.
//!
//! The folder of a sweep holds one run folder per cell, `sweep.csv` with all of them, of a search `selection.csv` and
//! `chosen.toml`, and in `.sweep` the claims, attempts, configs and logs of the runs. Any number of processes may work on it at once, and may be killed and
//! started again at any moment.

mod spec;
mod settings;
mod random;
mod selection;
mod chosen;
mod record;
pub(crate) mod cell;
mod tried;
pub(crate) mod attempts;
mod name;
mod trials;
mod claim;
pub(crate) mod child;
pub(crate) mod runner;
mod stopping;
pub(crate) mod slurm;
pub(crate) mod status;

#[cfg(test)]
mod fuzz;

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use serde::Serialize;

use crate::cli::{Sweep, SweepQuestion};
use crate::terminal::output::{self, Stopped};
use attempts::Among;
use cifar_convnet::BadArgument;
use cifar_convnet::files;
use record::Row;
use runner::{FAILURES, Retry, Runner, Tally};
use selection::Search;
use slurm::Workers;
use spec::Spec;
use trials::Trials;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct SweepOutput {
    folder: PathBuf,
    #[serde(flatten)]
    tally: Tally,
}

pub(crate) fn run(arguments: &Sweep) -> anyhow::Result<()> {
    match &arguments.question {
        Some(SweepQuestion::Status(arguments)) => status::run(arguments),
        None => run_or_launch(arguments),
    }
}

fn run_or_launch(arguments: &Sweep) -> anyhow::Result<()> {
    ensure!(arguments.jobs > 0, BadArgument("--jobs must be at least 1".into()));
    let spec = Spec::read(arguments.file())?;
    let folder = arguments.out.clone().unwrap_or_else(|| default_folder(arguments.file()));
    if let Some(law) = &arguments.random_stopping {
        return stopping::run(arguments, law, &spec, &folder);
    }
    ensure!(
        !stopping::is_at(&folder),
        BadArgument(format!(
            "{} belongs to a search with --random-stopping: take another --out",
            folder.display()
        ))
    );
    // All before the folder is made: what cannot run leaves nothing behind.
    let begun = attempts::counts(&folder)?;
    let search = spec.select.as_ref().map(|_| Search::new(&spec, &begun)).transpose()?;
    ensure!(
        search.is_some() || !arguments.choose_only,
        BadArgument(format!(
            "{}: --choose-only needs [select], which says how to choose",
            arguments.file().display()
        ))
    );
    let cells = if search.is_none() { spec.cells(&begun)? } else { Vec::new() };
    let trials = search.as_ref().map_or_else(
        || Trials::new(spec.earlier, cells.len() as u64, &cells),
        |search| search.trials().clone(),
    );
    let retry = Retry::of(arguments.retry_failed, &arguments.launch);
    if arguments.launch.launch.is_some() {
        let known = search.as_ref().map(|search| search.known_runs(&folder)).transpose()?;
        let (known, to_be_chosen) =
            known.as_ref().map_or((&cells, 0), |(known, to_come)| (known, *to_come as usize));
        let workers = Workers {
            folder: &folder,
            slurm: &spec.slurm,
            written_in: arguments.file(),
            missing: status::missing(known, &folder, |failure| retry.covers(failure))?
                + to_be_chosen,
            more: arguments.launch.more,
            question: question(arguments),
        };
        return if arguments.dry_run {
            workers.show(arguments.json)
        } else {
            workers.submit(arguments.json)
        };
    }
    let settle = || attempts::settle(&folder, Among::Folder, |_, counts| trials.count(counts));
    let runner = Runner::new(&folder, arguments.jobs, retry)?.telling(&settle);
    // Also before anything runs: a sweep that is killed has told its finished runs what it was about to begin.
    settle()?;
    let outcome = match search {
        Some(search) => search.run(&runner, &folder, arguments.choose_only),
        None => {
            let rows = |tally| (cells.iter().cloned().map(Row::of).collect(), tally);
            runner.run("sweep", &cells, None).map(rows)
        }
    };
    // However it went: what was begun counts in the certificates of all runs in the folder.
    let settled = settle();
    let (rows, tally) = outcome?;
    settled?;
    let table = record::write(&rows, &folder)?;
    if arguments.json {
        output::print(&files::json(&SweepOutput { folder: folder.clone(), tally })?)?;
    } else {
        output::print(&table.to_text())?;
    }
    finish(&tally, &folder, &runner)
}

/// What to type to see how a sweep stands.
fn question(arguments: &Sweep) -> String {
    let shown = |path: &Path| slurm::quote(&path.display().to_string());
    let out = arguments.out.as_ref().map_or(String::new(), |out| format!(" --out {}", shown(out)));
    format!("bandroot sweep status {}{out}", shown(arguments.file()))
}

/// An error that counts what is missing, if anything is.
pub(crate) fn finish(tally: &Tally, folder: &Path, runner: &Runner<'_>) -> anyhow::Result<()> {
    let Tally { cells, failed, left, refused, .. } = tally;
    let folder = folder.display();
    if runner.is_stopped() {
        bail!(Stopped(format!(
            "stopped with {left} of {cells} runs to go; the same command goes on with {folder}"
        )));
    }
    if runner.has_given_up() && *left > 0 {
        bail!(
            "{FAILURES} runs in a row failed before their first step with the same words, so {left} of {cells} were not begun \
             here: see failed.json in {folder}, mend what is missing on this machine and give the same command with \
             --retry-failed"
        );
    }
    if *refused > 0 {
        let and_failed = match failed {
            0 => String::new(),
            failed => format!("; {failed} failed: see failed.json in their folders"),
        };
        bail!(
            "{refused} of {cells} runs in {folder} were begun by another program, on another processor or with other data, \
             and are left as they are: the same command goes on with them where these are as they were; to begin one anew, remove its folder{and_failed}"
        );
    }
    if *failed > 0 {
        bail!(
            "{failed} of {cells} runs failed: see failed.json in their folders in {folder}; --retry-failed \
             tries them again"
        );
    }
    Ok(())
}

/// `runs/NAME`, with the name of the file.
fn default_folder(sweep: &Path) -> PathBuf {
    let name = sweep.file_stem().map_or("sweep".into(), |stem| stem.to_string_lossy());
    PathBuf::from("runs").join(name.as_ref())
}
