//! `bandroot sweep status`: how a sweep stands, from its run folders and claims. Nothing is written, run or locked.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use indicatif::HumanDuration;
use serde::Serialize;

use super::cell::{Cell, CellState, Failure};
use super::claim::Claims;
use super::selection::Search;
use super::slurm::queue::{self, Task};
use super::spec::Spec;
use super::{attempts, default_folder, stopping};
use crate::cli::SweepStatus;
use crate::terminal::output;
use crate::terminal::table::Table;
use cifar_convnet::{BadArgument, files};

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Done,
    Running,
    Failed,
    /// Not begun, or stopped and to be continued.
    Missing,
}

/// One run.
#[derive(Debug, Serialize)]
struct RunStatus {
    run: String,
    state: State,
    epochs_done: usize,
    epochs: usize,
    /// Of a run that is done.
    accuracy: Option<f64>,
    /// Where it is running, and by which task of Slurm.
    host: Option<String>,
    job: Option<String>,
    /// Since when, in seconds since 1970.
    since: Option<u64>,
    /// Seconds since its process was last seen alive.
    silent_seconds: Option<u64>,
    /// Why it failed.
    reason: Option<String>,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Status {
    folder: PathBuf,
    done: usize,
    running: usize,
    failed: usize,
    missing: usize,
    /// Runs of a search that are not known yet, because they depend on what others show.
    to_be_chosen: u64,
    runs: Vec<RunStatus>,
    /// The workers in Slurm's queue; none if none was submitted.
    queue: Option<Vec<Task>>,
    /// Why the queue could not be asked.
    queue_error: Option<String>,
}

pub(super) fn run(arguments: &SweepStatus) -> anyhow::Result<()> {
    let spec = Spec::read(&arguments.sweep)?;
    let folder = arguments.out.clone().unwrap_or_else(|| default_folder(&arguments.sweep));
    ensure!(
        !stopping::is_at(&folder),
        BadArgument(format!(
            "{} belongs to a search with --random-stopping, which shows nothing before its end",
            folder.display()
        ))
    );
    let begun = attempts::counts(&folder)?;
    let (cells, to_be_chosen) = match &spec.select {
        Some(_) => Search::new(&spec, &begun)?.known_runs(&folder)?,
        None => (spec.cells(&begun)?, 0),
    };
    let status = Status::of(&cells, to_be_chosen, &folder)?;
    output::print(&if arguments.json { files::json(&status)? } else { status.text() })
}

/// How some runs stand that are not those of a sweep's file, in words. `recorded` are done besides.
pub(crate) fn text(cells: &[Cell], recorded: usize, folder: &Path) -> anyhow::Result<String> {
    let mut status = Status::of(cells, 0, folder)?;
    status.done += recorded;
    Ok(status.text())
}

/// How many of some runs need a worker: neither done nor failed for good. Done ones do too whose checkpoints a crash left, which
/// hold noise keys.
pub(crate) fn missing(
    cells: &[Cell],
    folder: &Path,
    is_retried: impl Fn(&Failure) -> bool,
) -> anyhow::Result<usize> {
    let mut missing = 0;
    for cell in cells {
        missing += usize::from(match cell.state(folder)? {
            CellState::Done { leftovers } => leftovers,
            CellState::Failed(failure) => is_retried(&failure),
            CellState::Open | CellState::Started => true,
        });
    }
    Ok(missing)
}

impl Status {
    fn of(cells: &[Cell], to_be_chosen: u64, folder: &Path) -> anyhow::Result<Self> {
        let notes = folder.join(".sweep");
        let claims = Claims::new(&notes);
        let claimed = if notes.is_dir() { claims.listing()? } else { Default::default() };
        let mut runs = Vec::new();
        for cell in cells {
            let holder =
                claimed.get(&cell.name).and_then(|&highest| claims.holder(&cell.name, highest));
            let mut run = RunStatus {
                run: cell.name.clone(),
                state: State::Missing,
                epochs_done: cell.epochs_done(folder),
                epochs: cell.config.training.epochs,
                accuracy: None,
                host: None,
                job: None,
                since: None,
                silent_seconds: None,
                reason: None,
            };
            match (cell.state(folder)?, holder) {
                (CellState::Done { .. }, _) => {
                    run.state = State::Done;
                    run.accuracy = Some(cell.result(folder)?.accuracy);
                }
                (CellState::Failed(failure), _) => {
                    run.state = State::Failed;
                    let last = failure.stderr.last().map_or("", |line| line.as_str());
                    run.reason = Some(format!("{}: {last}", failure.status));
                }
                (_, Some((owner, silence))) => {
                    run.state = State::Running;
                    (run.host, run.job, run.since) = (owner.host, owner.job, owner.since);
                    run.silent_seconds = Some(silence.as_secs());
                }
                (_, None) => {}
            }
            runs.push(run);
        }
        let count = |state| runs.iter().filter(|run| run.state == state).count();
        let (queue, queue_error) = match queue::of(folder)? {
            None => (None, None),
            Some(Ok(tasks)) => (Some(tasks), None),
            Some(Err(error)) => (None, Some(error)),
        };
        Ok(Self {
            folder: folder.to_owned(),
            done: count(State::Done),
            running: count(State::Running),
            failed: count(State::Failed),
            missing: count(State::Missing),
            to_be_chosen,
            runs,
            queue,
            queue_error,
        })
    }

    fn text(&self) -> String {
        let Self { done, running, failed, missing, to_be_chosen, .. } = self;
        let mut text = format!(
            "{}: {done} done, {running} running, {failed} failed, {missing} missing",
            self.folder.display()
        );
        if *to_be_chosen > 0 {
            text += &format!(", about {to_be_chosen} more to be chosen");
        }
        text.push('\n');
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let mut table = Table::new(&["run", "state", "epoch", "where", "for"]);
        let shown = |run: &&RunStatus| match run.state {
            State::Running | State::Failed => true,
            State::Done => false,
            State::Missing => run.epochs_done > 0,
        };
        for run in self.runs.iter().filter(shown) {
            let host = run.host.clone().unwrap_or_default();
            let job = run.job.as_ref().map_or(String::new(), |job| format!(" (job {job})"));
            let since = run.since.map(|since| Duration::from_secs(now.saturating_sub(since)));
            table.push(vec![
                run.run.clone(),
                match run.state {
                    State::Running => "running",
                    State::Failed => "failed",
                    _ => "stopped",
                }
                .to_owned(),
                format!("{} of {}", run.epochs_done, run.epochs),
                format!("{host}{job}"),
                since.map_or(String::new(), |since| HumanDuration(since).to_string()),
            ]);
        }
        if self.runs.iter().any(|run| shown(&run)) {
            text += &format!("\n{}", table.to_text());
        }
        for run in self.runs.iter().filter(|run| run.reason.is_some()) {
            text += &format!("{}: {}\n", run.run, run.reason.as_deref().unwrap_or_default());
        }
        if let Some(tasks) = &self.queue {
            text += &queue::describe(tasks);
        }
        if let Some(error) = &self.queue_error {
            text += &format!("queue: {error}\n");
        }
        text
    }
}
