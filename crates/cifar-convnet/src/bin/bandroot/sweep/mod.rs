//! `bandroot sweep`: a grid over any keys of a config, run until nothing is missing.
//!
//! The folder of a sweep holds one run folder per cell, `sweep.csv` with all of them, and in `.sweep` the claims,
//! attempts, configs and logs of the runs. Any number of processes may work on it at once, and may be killed and
//! started again at any moment.

mod spec;
mod selection;
pub(crate) mod cell;
pub(crate) mod attempts;
mod name;
mod claim;
pub(crate) mod child;
pub(crate) mod runner;

#[cfg(test)]
mod fuzz;

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use serde::Serialize;

use crate::cli::Sweep;
use crate::terminal::output;
use crate::terminal::table::Table;
use cell::{Cell, CellState};
use cifar_convnet::BadArgument;
use cifar_convnet::files;
use runner::{Runner, Tally};
use selection::Search;
use spec::Spec;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct SweepOutput {
    folder: PathBuf,
    #[serde(flatten)]
    tally: Tally,
}

pub(crate) fn run(arguments: &Sweep) -> anyhow::Result<()> {
    ensure!(arguments.jobs > 0, BadArgument("--jobs must be at least 1".into()));
    let spec = Spec::read(&arguments.sweep)?;
    let folder = arguments.out.clone().unwrap_or_else(|| default_folder(&arguments.sweep));
    // Both before the folder is made: what cannot run leaves nothing behind.
    let search = spec.select.as_ref().map(|_| Search::new(&spec)).transpose()?;
    let cells = if search.is_none() { spec.cells()? } else { Vec::new() };
    let runner = Runner::new(&folder, arguments.jobs, arguments.retry_failed)?;
    let planned = search.as_ref().map_or(cells.len() as u64, Search::trials);
    let settle =
        || attempts::settle(&folder, |_, counts| counts.values().sum::<u64>().max(planned));
    // Also before anything runs: a sweep that is killed has told its finished runs what it was about to begin.
    settle()?;
    let outcome = match search {
        Some(search) => search.run(&runner, &folder),
        None => runner.run("sweep", &cells, None).map(|tally| (cells, tally)),
    };
    // However it went: what was begun counts in the certificates of all runs in the folder.
    let settled = settle();
    let (cells, tally) = outcome?;
    settled?;
    let table = table(&cells, &folder)?;
    files::write(&folder.join("sweep.csv"), table.to_csv()?.as_bytes())?;
    if arguments.json {
        output::print(&files::json(&SweepOutput { folder: folder.clone(), tally })?)?;
    } else {
        output::print(&table.to_text())?;
    }
    finish(&tally, &folder, &runner)
}

/// An error that counts what is missing, if anything is.
pub(crate) fn finish(tally: &Tally, folder: &Path, runner: &Runner) -> anyhow::Result<()> {
    let Tally { cells, failed, left, .. } = tally;
    let folder = folder.display();
    if runner.is_stopped() {
        bail!("stopped with {left} of {cells} runs to go; the same command goes on with {folder}");
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

/// One line per cell, in the order of the grid.
fn table(cells: &[Cell], folder: &Path) -> anyhow::Result<Table> {
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in cells.iter().flat_map(|cell| &cell.setting) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let mut header = vec!["run"];
    header.extend(&keys);
    header.extend(["seed", "judged_by", "accuracy", "loss", "seconds", "state"]);
    let mut table = Table::new(&header);
    for cell in cells {
        let mut line = vec![cell.name.clone()];
        line.extend(keys.iter().map(|key| {
            let found = cell.setting.iter().find(|(found, _)| found == key);
            found.map_or(String::new(), |(_, value)| name::plain(value))
        }));
        let judged_by =
            if cell.config.data.holds_out() { "validation (not private)" } else { "test" };
        line.extend([cell.seed.to_string(), judged_by.to_owned()]);
        match cell.state(folder)? {
            CellState::Done { .. } => {
                let outcome = cell.result(folder)?;
                line.push(format!("{:.4}", outcome.accuracy));
                line.push(outcome.loss.map_or(String::new(), |loss| format!("{loss:.4}")));
                line.push(outcome.seconds.map_or(String::new(), |seconds| format!("{seconds:.1}")));
                line.push("done".to_owned());
            }
            state => {
                line.extend([String::new(), String::new(), String::new()]);
                line.push(match state {
                    CellState::Failed(_) => "failed".to_owned(),
                    _ => "missing".to_owned(),
                });
            }
        }
        table.push(line);
    }
    Ok(table)
}
