//! `bandroot bench sweep`: what sharing a sweep costs, with claims, attempts and processes as in any sweep and runs that
//! only sleep.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use cifar_convnet::run::folder;
use cifar_convnet::{BadArgument, files};
use serde::Serialize;
use serde_json::json;
use toml::Table;

use crate::cli::{BenchSweep, BenchSweepRun, BenchSweepWorker};
use crate::sweep::cell::Cell;
use crate::sweep::runner::{Retry, Runner};
use crate::terminal::output;

/// A config that is never trained.
const BASE: &str = "[data]\nname = 'textures'\n[model]\nname = 'convnet'\n[privacy]\nepsilon = 4.0\ndelta = 1e-5\n\
    clip_norm = 1.0\n[noise]\nmethod = 'bsr'\n[optimizer]\nlearning_rate = 0.5\n[training]\nepochs = 2\n\
    batch_size = 100\n";

/// Where the workers say that they are ready, and are told to begin.
const READY: &str = ".ready";
const GO: &str = "go";

/// How often is looked.
const POLL: Duration = Duration::from_millis(20);

/// What is measured.
#[derive(Debug, Serialize)]
struct Measured {
    workers: u32,
    cells: u32,
    seconds_per_cell: f64,
    /// From the start of all workers to the end of the last run.
    wall_seconds: f64,
    /// The same if sharing cost nothing.
    ideal_seconds: f64,
    /// What a run takes a worker besides its sleep: looking, claiming, starting a process, giving back.
    overhead_per_cell_seconds: f64,
    /// From the end of the last run until the workers have noticed: the mean, and the last.
    wait_at_the_end_seconds: f64,
    longest_wait_seconds: f64,
}

pub(super) fn run(arguments: &BenchSweep) -> anyhow::Result<()> {
    let BenchSweep { workers, cells, seconds, .. } = *arguments;
    duration(seconds)?;
    let folder = tempfile::tempdir().context("a folder for the runs")?;
    let program = std::env::current_exe().context("the path of this program")?;
    let ready = folder.path().join(READY);
    fs::create_dir(&ready).context("a folder for the start")?;
    let mut running = Vec::new();
    for _ in 0..workers {
        let mut command = Command::new(&program);
        command.args(["bench", "sweep-worker"]).arg(folder.path());
        command.args([cells.to_string(), seconds.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        running.push(command.spawn().context("could not start a worker")?);
    }
    // All at once, and not before each has read its configs: on a cluster they do that beside each other.
    while fs::read_dir(&ready)?.count() < running.len() {
        for worker in &mut running {
            let ended = worker.try_wait()?;
            ensure!(ended.is_none(), "a worker ended before the start");
        }
        std::thread::sleep(POLL);
    }
    let (start, began) = (Instant::now(), SystemTime::now());
    fs::write(ready.join(GO), "")?;
    let mut ends: Vec<Option<Duration>> = vec![None; running.len()];
    while ends.iter().any(Option::is_none) {
        for (worker, end) in running.iter_mut().zip(&mut ends).filter(|(_, end)| end.is_none()) {
            if let Some(status) = worker.try_wait()? {
                ensure!(status.success(), "a worker failed: {status}");
                *end = Some(start.elapsed());
            }
        }
        std::thread::sleep(POLL);
    }
    let mut last = began;
    for cell in cells_of(cells)? {
        let summary = cell.folder(folder.path()).join(folder::SUMMARY);
        let written = fs::metadata(&summary).and_then(|found| found.modified());
        last = last.max(written.with_context(|| format!("{} is missing", summary.display()))?);
    }
    let wall = last.duration_since(began).unwrap_or_default().as_secs_f64();
    let waits: Vec<f64> =
        ends.into_iter().flatten().map(|end| (end.as_secs_f64() - wall).max(0.0)).collect();
    let each = f64::from(cells.div_ceil(workers));
    let measured = Measured {
        workers,
        cells,
        seconds_per_cell: seconds,
        wall_seconds: wall,
        ideal_seconds: each * seconds,
        overhead_per_cell_seconds: wall / each - seconds,
        wait_at_the_end_seconds: waits.iter().sum::<f64>() / waits.len() as f64,
        longest_wait_seconds: waits.iter().copied().fold(0.0, f64::max),
    };
    if arguments.json {
        return output::print(&files::json(&measured)?);
    }
    let Measured { wall_seconds, ideal_seconds, overhead_per_cell_seconds, .. } = measured;
    output::print(&format!(
        "{workers} workers, {cells} runs of {seconds} s: {wall_seconds:.2} s, {ideal_seconds:.2} s without any cost, \
         {overhead_per_cell_seconds:.3} s more for a run; {:.1} s (at most {:.1} s) until workers notice the end",
        measured.wait_at_the_end_seconds, measured.longest_wait_seconds
    ))
}

pub(super) fn work(arguments: &BenchSweepWorker) -> anyhow::Result<()> {
    let asleep = duration(arguments.seconds)?;
    let runner = Runner::new(&arguments.folder, 1, Retry(None))?.sleeping(asleep);
    let cells = cells_of(arguments.cells)?;
    let ready = arguments.folder.join(READY);
    fs::write(ready.join(std::process::id().to_string()), "")?;
    while !ready.join(GO).exists() {
        std::thread::sleep(POLL);
    }
    runner.run("sleep", &cells, None).map(drop)
}

/// A run that learns nothing: as much of a run folder as a sweep looks at.
pub(super) fn sleep(arguments: &BenchSweepRun) -> anyhow::Result<()> {
    let folder = &arguments.folder;
    fs::create_dir(folder).with_context(|| format!("could not make {}", folder.display()))?;
    std::thread::sleep(duration(arguments.seconds)?);
    let summary = json!({"run": folder, "private": false, "steps": 0, "test_accuracy": 0.0});
    files::write(&folder.join(folder::SUMMARY), files::json(&summary)?.as_bytes())
}

fn cells_of(cells: u32) -> anyhow::Result<Vec<Cell>> {
    let base: Table = BASE.parse()?;
    let cell = |seed| Cell::new(Path::new("bench"), &base, "", Vec::new(), u64::from(seed), 1);
    (0..cells).map(cell).collect()
}

fn duration(seconds: f64) -> anyhow::Result<Duration> {
    let refuse = |_| BadArgument(format!("--seconds must be a time, but it is {seconds}"));
    Ok(Duration::try_from_secs_f64(seconds).map_err(refuse)?)
}
