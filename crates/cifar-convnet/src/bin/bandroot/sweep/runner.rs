//! Runs the cells that are missing, some at a time, beside other processes that do the same.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use indicatif::{HumanDuration, ProgressBar};
use serde::Serialize;

use super::attempts;
use super::cell::{Cell, CellState, Failure};
use super::child::{self, Ending, Work};
use super::claim::Claims;
use crate::cli::Launch;
use crate::interruption;
use crate::terminal::progress;
use cifar_convnet::files;
use cifar_convnet::run::folder;

/// How often the bar on a terminal is drawn.
const REDRAW: Duration = Duration::from_millis(200);

/// How long to wait for cells that others run before looking again, where somebody watches.
const WATCHED_PAUSE: Duration = Duration::from_secs(1);

/// The same where nobody does: many workers on one file server, each for hours. Drawn between the two.
const PAUSE: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(6));

/// So many runs in a row that fail before their first step with the same words say that data or something else is missing
/// here: a worker would fail all cells in a second, which others could run.
pub(crate) const FAILURES: usize = 3;

/// Brings the certificates of finished runs up to date.
type Tell<'a> = &'a (dyn Fn() -> anyhow::Result<()> + Sync);

/// What runs cells in one folder.
pub(crate) struct Runner<'a> {
    folder: PathBuf,
    /// Claims, configs and logs.
    notes: PathBuf,
    jobs: usize,
    retry: Retry,
    /// No cell is started that would not end by then.
    deadline: Option<Instant>,
    /// Nothing is said of the runs, their number included.
    silent: bool,
    /// How long a run sleeps in place of a training.
    asleep: Option<Duration>,
    stop: Arc<AtomicBool>,
    /// No more cells are taken: see [`FAILURES`].
    given_up: AtomicBool,
    /// Called when more was begun than the certificates of finished runs say.
    tell: Tell<'a>,
}

/// Failures from before a moment, in seconds since 1970, which are tried again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Retry(pub(crate) Option<f64>);

impl Retry {
    /// All failures so far.
    pub(crate) fn so_far() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs_f64()))
    }

    /// What the arguments ask for.
    pub(crate) fn of(retry_failed: bool, launch: &Launch) -> Self {
        if retry_failed { Self::so_far() } else { Self(launch.retry_failed_before) }
    }

    /// Whether a failure counts no longer.
    pub(crate) fn covers(self, failure: &Failure) -> bool {
        self.0.is_some_and(|before| failure.unix_time < before)
    }
}

/// How the cells stand at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Tally {
    pub(crate) cells: usize,
    pub(crate) done: usize,
    pub(crate) failed: usize,
    /// Stopped, or not started because the time would not do.
    pub(crate) left: usize,
    /// Of those that are left: begun by another program, on another processor or with other data.
    pub(crate) refused: usize,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.cells += other.cells;
        self.done += other.done;
        self.failed += other.failed;
        self.left += other.left;
        self.refused += other.refused;
    }
}

/// What is known about a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// To do, or done by others.
    Open,
    /// Run by one of our threads.
    Ours,
    Done,
    Failed,
    Left,
    /// Begun with something that this process is not or has not; left as it was.
    Refused,
}

/// What the threads share.
struct Board<'a> {
    cells: &'a [Cell],
    costs: Option<&'a [Duration]>,
    after_each: &'a (dyn Fn() + Sync),
    standing: Mutex<Vec<Standing>>,
    claims: Claims,
    bar: ProgressBar,
    silent: bool,
    start: Instant,
    work_before: u64,
    /// The last words of the runs that failed before their first step, the same ones, since something else happened.
    failures: Mutex<Vec<String>>,
    /// Whether one refused checkpoint was told of.
    refusal_is_told: AtomicBool,
}

impl<'a> Runner<'a> {
    /// Makes the folder if it is not there.
    pub(crate) fn new(folder: &Path, jobs: usize, retry: Retry) -> anyhow::Result<Self> {
        let notes = folder.join(".sweep");
        // Checkpoints are in it, which hold noise keys.
        files::create_closed_folder(folder)?;
        files::create_closed_folder(&notes)?;
        let stop = interruption::flag();
        let folder = folder.to_owned();
        let tell: Tell<'a> = &|| Ok(());
        let (deadline, silent, asleep) = (None, false, None);
        let given_up = AtomicBool::new(false);
        Ok(Self { folder, notes, jobs, retry, deadline, silent, asleep, stop, given_up, tell })
    }

    /// The same, which calls this before a training is begun once more than planned, and after runs that end from then on.
    pub(crate) fn telling(self, tell: Tell<'a>) -> Self {
        Self { tell, ..self }
    }

    /// The same with runs that only sleep, to measure what the sweep itself costs.
    pub(crate) fn sleeping(self, asleep: Duration) -> Self {
        Self { asleep: Some(asleep), ..self }
    }

    /// The same, which shows nothing of the runs.
    pub(crate) fn in_silence(self) -> Self {
        Self { silent: true, ..self }
    }

    /// No cell is started that would not end within this time from now.
    pub(crate) fn within(self, budget: Duration) -> Self {
        Self { deadline: Some(Instant::now() + budget), ..self }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Whether so many runs failed alike before their first step that no more were taken.
    pub(crate) fn has_given_up(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }

    /// Runs all cells that are missing, in their order, and waits for those that other processes run.
    /// `costs` says how long each will take, for the deadline.
    ///
    /// # Errors
    /// If the folder cannot be used. A run that fails is no error: its `failed.json` says why.
    pub(crate) fn run(
        &self,
        title: &str,
        cells: &[Cell],
        costs: Option<&[Duration]>,
    ) -> anyhow::Result<Tally> {
        self.run_and_tell(title, cells, costs, &|| {})
    }

    /// The same; `after_each` is called after every run that this process made.
    pub(crate) fn run_and_tell(
        &self,
        title: &str,
        cells: &[Cell],
        costs: Option<&[Duration]>,
        after_each: &(dyn Fn() + Sync),
    ) -> anyhow::Result<Tally> {
        let all = cells.iter().map(Cell::examples).sum();
        let mut board = Board {
            cells,
            costs,
            after_each,
            standing: Mutex::new(vec![Standing::Open; cells.len()]),
            claims: Claims::new(&self.notes),
            bar: match self.silent {
                true => ProgressBar::hidden(),
                false => progress::sweep_bar(all, title),
            },
            silent: self.silent,
            start: Instant::now(),
            work_before: 0,
            failures: Mutex::default(),
            refusal_is_told: AtomicBool::new(false),
        };
        if !board.bar.is_hidden() {
            board.work_before = board.work(&self.folder);
        }
        let board = &board;
        let outcome = thread::scope(|scope| {
            let workers: Vec<_> =
                (0..self.jobs.max(1)).map(|_| scope.spawn(|| self.work(board))).collect();
            // Nobody sees a hidden bar, and it would be read from all run folders.
            while !board.bar.is_hidden() && workers.iter().any(|worker| !worker.is_finished()) {
                board.show(&self.folder);
                thread::sleep(REDRAW);
            }
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        });
        board.bar.finish_and_clear();
        outcome?;
        Ok(board.tally())
    }

    /// One thread: takes cells until none is open.
    fn work(&self, board: &Board<'_>) -> anyhow::Result<()> {
        let outcome = self.take_cells(board);
        if outcome.is_err() {
            // The other threads would go on for hours before the message is seen.
            self.stop.store(true, Ordering::SeqCst);
        }
        outcome
    }

    fn take_cells(&self, board: &Board<'_>) -> anyhow::Result<()> {
        loop {
            let (mut busy, mut ran) = (false, false);
            let claimed = board.claims.listing()?;
            for index in 0..board.cells.len() {
                if self.is_stopped() || self.has_given_up() {
                    return Ok(());
                }
                if !board.take(index) {
                    continue;
                }
                let highest = claimed.get(&board.cells[index].name).copied().unwrap_or(0);
                let standing = self.attend(board, index, highest)?;
                board.lock()[index] = standing;
                busy |= standing == Standing::Open;
                // After a run the first open cells come first again.
                ran = matches!(standing, Standing::Done | Standing::Failed);
                if ran {
                    break;
                }
            }
            if !ran && !busy {
                return Ok(());
            }
            if !ran {
                self.wait(board);
            }
        }
    }

    /// Waits before the next look at what others have, or until this is to stop.
    fn wait(&self, board: &Board<'_>) {
        let pause = match board.bar.is_hidden() {
            // All workers of a round begin to wait at the same moment, and are to look at different ones.
            true => PAUSE.0 + (PAUSE.1 - PAUSE.0).mul_f64(random_share()),
            false => WATCHED_PAUSE,
        };
        let end = Instant::now() + pause;
        while !self.is_stopped() && Instant::now() < end {
            thread::sleep(REDRAW.min(end - Instant::now()));
        }
    }

    /// Looks after one cell, whose highest claim is known: what it stands at afterwards. `Open` if another process has it.
    fn attend(&self, board: &Board<'_>, index: usize, highest: u32) -> anyhow::Result<Standing> {
        let cell = &board.cells[index];
        if highest > 0 && !board.claims.is_dead(&cell.name, highest)? {
            return Ok(Standing::Open);
        }
        if let Some(standing) = self.settled(cell)? {
            return Ok(standing);
        }
        let late = |deadline: Instant| {
            let cost = board.costs.map_or(Duration::ZERO, |costs| costs[index]);
            Instant::now() + cost > deadline
        };
        if self.deadline.is_some_and(late) {
            return Ok(Standing::Left);
        }
        let Some(claim) = board.claims.claim_after(&cell.name, highest)? else {
            return Ok(Standing::Open);
        };
        // It may have been settled before it was ours.
        if let Some(standing) = self.settled(cell)? {
            claim.give_back()?;
            return Ok(standing);
        }
        attempts::remember(&self.folder, &cell.name)?;
        match cell.state(&self.folder)? {
            CellState::Done { .. } => {
                cell.sweep_up(&self.folder, true)?;
                claim.give_back()?;
                return Ok(Standing::Done);
            }
            // A continuation that failed would fail again.
            CellState::Failed(failure) if failure.resumed => cell.clear(&self.folder)?,
            CellState::Failed(_) => {
                let path = cell.folder(&self.folder).join(folder::FAILED);
                std::fs::remove_file(&path)
                    .with_context(|| format!("could not remove {}", path.display()))?;
            }
            CellState::Open | CellState::Started => {}
        }
        let ending = child::train(
            cell,
            &self.folder,
            &self.notes,
            self.work_of_a_run(),
            &claim,
            &self.stop,
            self.tell,
        )?;
        claim.give_back()?;
        Ok(match ending {
            Ending::Done => {
                board.failures().clear();
                let accuracy = 100.0 * cell.result(&self.folder)?.accuracy;
                board.say(index, &format!("{accuracy:.2} %"));
                (board.after_each)();
                Standing::Done
            }
            Ending::Failed(failure, took_no_step) => {
                let last = failure.stderr.last().map_or("", |line| line.as_str());
                board.say(index, &format!("failed ({}): {last}", failure.status));
                if board.counts_to_give_up(took_no_step.then_some(last)) {
                    self.given_up.store(true, Ordering::SeqCst);
                }
                Standing::Failed
            }
            Ending::Refused(why) => {
                // The others would say the same.
                if !board.refusal_is_told.swap(true, Ordering::SeqCst) {
                    board.say(index, &format!("left as it is: {}", without_program(&why)));
                }
                Standing::Refused
            }
            Ending::Stopped => Standing::Open,
        })
    }

    /// What a cell stands at if there is nothing left to do.
    fn settled(&self, cell: &Cell) -> anyhow::Result<Option<Standing>> {
        Ok(match cell.state(&self.folder)? {
            CellState::Done { leftovers: false } => Some(Standing::Done),
            CellState::Failed(failure) if !self.retry.covers(&failure) => Some(Standing::Failed),
            _ => None,
        })
    }

    /// What a run is; of a training, its threads if there are several at once and the user has not said.
    fn work_of_a_run(&self) -> Work {
        if let Some(asleep) = self.asleep {
            return Work::Sleep(asleep);
        }
        let free = self.jobs > 1 && std::env::var_os("RAYON_NUM_THREADS").is_none();
        Work::Train { threads: free.then(|| (rayon::current_num_threads() / self.jobs).max(1)) }
    }
}

/// What a run said, without the name of the program before it.
fn without_program(line: &str) -> &str {
    line.strip_prefix("bandroot: ").unwrap_or(line)
}

/// A number from 0 to 1; if the system has no random ones, that of the process.
fn random_share() -> f64 {
    let mut bytes = std::process::id().to_le_bytes();
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

impl Board<'_> {
    fn lock(&self) -> MutexGuard<'_, Vec<Standing>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self) -> MutexGuard<'_, Vec<String>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure, with its last words if it came before the first step: whether there were so many in a row with the
    /// same words that this machine, and not the runs, is to blame. What a config is refused for names the config.
    fn counts_to_give_up(&self, words: Option<&str>) -> bool {
        let mut failures = self.failures();
        failures.retain(|other| Some(other.as_str()) == words);
        failures.extend(words.map(str::to_owned));
        failures.len() >= FAILURES
    }

    /// Takes an open cell for the calling thread.
    fn take(&self, index: usize) -> bool {
        let mut standing = self.lock();
        let open = standing[index] == Standing::Open;
        if open {
            standing[index] = Standing::Ours;
        }
        open
    }

    /// Examples that are behind us, ours and others'.
    fn work(&self, folder: &Path) -> u64 {
        let standing = self.lock().clone();
        let work = |(cell, standing): (&Cell, Standing)| {
            let all = cell.examples();
            let done = match standing {
                Standing::Done | Standing::Failed => return all,
                _ if cell.folder(folder).join(folder::SUMMARY).exists() => return all,
                _ => cell.epochs_done(folder) as u64,
            };
            all * done / cell.config.training.epochs.max(1) as u64
        };
        self.cells.iter().zip(standing).map(work).sum()
    }

    fn show(&self, folder: &Path) {
        let work = self.work(folder);
        self.bar.set_position(work);
        let tally = self.tally();
        let failed =
            if tally.failed > 0 { format!(", {} failed", tally.failed) } else { String::new() };
        let left = self.time_left(work).map_or(String::new(), |left| format!(", {left} left"));
        self.bar.set_message(format!("{}/{} runs{failed}{left}", tally.done, tally.cells));
    }

    /// At the speed so far; nothing before there is one.
    fn time_left(&self, work: u64) -> Option<HumanDuration> {
        let all: u64 = self.cells.iter().map(Cell::examples).sum();
        let made = work.saturating_sub(self.work_before);
        let left = all.saturating_sub(work) as f64 / made as f64;
        (made > 0).then(|| HumanDuration(self.start.elapsed().mul_f64(left)))
    }

    /// One line for a run that ended, above the bar or in the log.
    fn say(&self, index: usize, what: &str) {
        if !self.silent {
            self.bar.suspend(|| eprintln!("{}: {what}", self.cells[index].name));
        }
    }

    fn tally(&self) -> Tally {
        let standing = self.lock();
        let count = |wanted| standing.iter().filter(|&&found| found == wanted).count();
        let (cells, done, failed) =
            (standing.len(), count(Standing::Done), count(Standing::Failed));
        let refused = count(Standing::Refused);
        Tally { cells, done, failed, left: cells - done - failed, refused }
    }
}
