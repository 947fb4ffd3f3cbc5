//! One cell, trained by a process of its own: a crash there is a failure here, and no more.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;

use super::attempts;
use super::cell::{Cell, CellState, Failure};
use super::claim::{Claim, HEARTBEAT};
use crate::terminal::output;
use cifar_convnet::files;
use cifar_convnet::run::folder;

/// Names the process without which this one is not to live.
const PARENT: &str = "BANDROOT_PARENT";

/// Lines of standard error that a failure keeps.
const LINES: usize = 20;

/// How often the process is looked after.
const POLL: Duration = Duration::from_millis(20);

/// What a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A training, with so many threads if that is said.
    Train { threads: Option<usize> },
    /// Nothing, to measure all the rest.
    Sleep(Duration),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ending {
    Done,
    /// With whether that was before its first step.
    Failed(Failure, bool),
    /// It was told to stop, or another machine has taken the cell.
    Stopped,
    /// Its checkpoint was begun by another program, on another processor or with other data, and is as it was: what the run
    /// said of it.
    Refused(String),
}

/// Trains a cell whose claim is ours, from the start or from its last checkpoint. `tell` brings the certificates of finished
/// runs up to date.
///
/// # Errors
/// If the folder cannot be written or the process not be started: nothing that has to do with this cell alone.
pub(crate) fn train(
    cell: &Cell,
    sweep: &Path,
    notes: &Path,
    work: Work,
    claim: &Claim<'_>,
    stop: &AtomicBool,
    tell: &dyn Fn() -> anyhow::Result<()>,
) -> anyhow::Result<Ending> {
    let folder = cell.folder(sweep);
    cell.sweep_up(sweep, false)?;
    let resumed = cell.state(sweep)? == CellState::Started;
    let mut arguments = vec!["train".into()];
    if resumed {
        arguments.extend(["--resume".into(), folder.clone().into_os_string()]);
    } else {
        // Before it can show anything: this process may be killed, and no other come after it.
        if attempts::note(sweep, &cell.name)? {
            tell()?;
        }
        cell.clear(sweep)?;
        let config = notes.join(format!("{}.toml", cell.name));
        files::write(&config, cell.toml()?.as_bytes())?;
        arguments.push(config.into_os_string());
        arguments.extend(["--out".into(), folder.clone().into_os_string()]);
    }
    arguments.push("--json".into());
    if let Work::Sleep(time) = work {
        arguments = vec!["bench".into(), "sweep-run".into(), folder.clone().into_os_string()];
        arguments.push(time.as_secs_f64().to_string().into());
    }
    let log = notes.join(format!("{}.stderr", cell.name));
    let stderr =
        File::create(&log).with_context(|| format!("could not write {}", log.display()))?;
    let program = std::env::current_exe().context("the path of this program")?;
    let mut command = Command::new(program);
    command.args(&arguments).stdin(claim.lock()?).stdout(Stdio::null()).stderr(stderr);
    command.env(PARENT, std::process::id().to_string());
    if let Work::Train { threads: Some(threads) } = work {
        command.env("RAYON_NUM_THREADS", threads.to_string());
    }
    let before = checkpoints(&folder)?;
    let mut child = command.spawn().context("could not start this program again")?;
    let Some(status) = look_after(&mut child, claim, stop)? else {
        return Ok(Ending::Stopped);
    };
    // The summary is the last thing that a run writes: with it the run is done, whatever came after.
    if folder.join(folder::SUMMARY).exists() {
        cell.sweep_up(sweep, true)?;
        if attempts::was_any_begun_again(sweep) {
            tell()?;
        }
        return Ok(Ending::Done);
    }
    // Slurm and terminals signal all processes at once: the run may have heard it before us, and whoever asks one run
    // to stop does not want the next one to begin.
    if stop.load(Ordering::SeqCst) || was_asked_to_stop(status) {
        stop.store(true, Ordering::SeqCst);
        return Ok(Ending::Stopped);
    }
    let text = fs::read(&log).with_context(|| format!("could not read {}", log.display()))?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // Nothing is wrong with the run, and a failure would be tried again from the start: other workers can go on with it.
    if resumed && status.code() == Some(output::REFUSED.into()) {
        return Ok(Ending::Refused(lines.last().cloned().unwrap_or_default()));
    }
    // The folder of a new run has its config once the data are read and the model is made.
    let took_no_step = match resumed {
        // One that was killed may have gone far since its last checkpoint.
        true => status.code().is_some() && checkpoints(&folder)? == before,
        false => !folder.join(folder::CONFIG).exists(),
    };
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let failure = Failure {
        command: format!("bandroot {}", words.join(" ")),
        exit_code: status.code(),
        status: status.to_string(),
        stderr: lines[lines.len().saturating_sub(LINES)..].to_vec(),
        resumed,
        unix_time: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |time| time.as_secs_f64()),
    };
    fs::create_dir_all(&folder)
        .with_context(|| format!("could not make the folder {}", folder.display()))?;
    files::write(&folder.join(folder::FAILED), files::json(&failure)?.as_bytes())?;
    Ok(Ending::Failed(failure, took_no_step))
}

/// The names of the states in the folder of a run.
fn checkpoints(run: &Path) -> anyhow::Result<BTreeSet<String>> {
    let names = attempts::names(run)?.into_iter();
    Ok(names.filter(|name| folder::is_checkpoint(name)).collect())
}

/// Waits for the end, and keeps the claim alive meanwhile; `None` if the cell was lost.
fn look_after(
    child: &mut Child,
    claim: &Claim<'_>,
    stop: &AtomicBool,
) -> anyhow::Result<Option<ExitStatus>> {
    let (mut touched, mut told) = (Instant::now(), false);
    loop {
        if let Some(status) = child.try_wait().context("could not wait for a run")? {
            return Ok(Some(status));
        }
        if touched.elapsed() >= HEARTBEAT {
            touched = Instant::now();
            // A claim that cannot be touched is about to look dead: better no run than two.
            if !claim.touch().unwrap_or(false) {
                child.kill().context("could not end a run")?;
                child.wait().context("could not wait for a run")?;
                return Ok(None);
            }
        }
        if stop.load(Ordering::SeqCst) && !told {
            told = true;
            ask_to_stop(child);
        }
        std::thread::sleep(POLL);
    }
}

/// Whether a run says that it can go on later, or was ended by a request to stop before it could say anything.
fn was_asked_to_stop(status: ExitStatus) -> bool {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
        return [SIGINT, SIGTERM, SIGUSR1].contains(&signal);
    }
    status.code() == Some(output::STOPPED.into())
}

/// Asks a run to write a checkpoint and end. It may have ended by itself.
#[cfg(target_os = "linux")]
fn ask_to_stop(child: &Child) {
    use rustix::process::{Pid, Signal, kill_process};
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// On a terminal the run gets the same interrupt as we do.
#[cfg(not(target_os = "linux"))]
fn ask_to_stop(_: &Child) {}

/// Ends this process when the sweep that started it ends, however that happens. Elsewhere than on Linux the
/// run goes on by itself, and its claim with it.
pub(crate) fn live_no_longer_than_the_sweep() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        let Ok(parent) = std::env::var(PARENT) else { return };
        let set = set_parent_process_death_signal(Some(Signal::KILL));
        let alive = getppid().is_some_and(|pid| pid.as_raw_nonzero().to_string() == parent);
        // It may have ended before the signal was set.
        if set.is_err() || !alive {
            eprintln!("bandroot: the sweep that started this run is gone");
            std::process::exit(1);
        }
    }
}
