//! `bandroot reproduce accuracy`: the cells of the paper's accuracy tables, as many as there is time for.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use indicatif::HumanDuration;
use toml::{Table, Value};

use crate::cli::Accuracy;
use crate::fetch::{self, FetchedFiles};
use crate::paper::report;
use crate::paper::report::comparison::{self, METHODS};
use crate::paper::report::record::{Record, Records};
use crate::paper::reproduce::cost::Calibration;
use crate::paper::reproduce::trials::{self, Trials};
use crate::paper::reproduce::tuned::{HyperParameters, Tuned};
use crate::published::{self, AccuracyRow, Regime};
use crate::sweep;
use crate::sweep::attempts::{self, Among};
use crate::sweep::cell::Cell;
use crate::sweep::runner::{Retry, Runner, Tally};
use crate::sweep::slurm::{self, Workers};
use crate::sweep::status;
use crate::terminal::output;
use cifar_convnet::BadArgument;
use cifar_convnet::config;
use cifar_convnet::data::Name;

/// A run that is missing.
#[derive(Debug, Clone)]
struct Missing {
    cell: Cell,
    row: AccuracyRow,
    /// Runs of its cell that come before it: those that exist, and those with earlier seeds.
    rank: usize,
    /// In how many cells it is.
    places: usize,
}

pub(crate) fn run(arguments: &Accuracy) -> anyhow::Result<()> {
    ensure!(arguments.jobs > 0, BadArgument("--jobs must be at least 1".into()));
    for method in &arguments.method {
        ensure!(
            METHODS.contains(&method.as_str()),
            BadArgument(format!("--method: the paper's tables have {METHODS:?}, not {method}"))
        );
    }
    let all = published::accuracy()?;
    let tuned = Tuned::read(&arguments.tuned, &all)?;
    let rows: Vec<AccuracyRow> =
        all.iter().filter(|row| is_selected(row, arguments)).cloned().collect();
    ensure!(
        !rows.is_empty(),
        BadArgument(
            "no cell of the paper's accuracy tables has this --participation, --epsilon, --method, --epochs \
             and --steps"
                .into()
        )
    );
    let recorded = recorded(arguments)?;
    let mut missing = plan(&rows, &tuned, &recorded, arguments)?;
    let wanted = rows.len() * arguments.seeds.len();
    if missing.is_empty() {
        if !arguments.dry_run && !arguments.status && arguments.out.join(".sweep").is_dir() {
            settle(&all, &tuned, &[], arguments)?;
        }
        return output::print(&format!("nothing is missing: all {wanted} runs are recorded"));
    }
    if arguments.status {
        let recorded = wanted - missing.iter().map(|missing| missing.places).sum::<usize>();
        let cells: Vec<Cell> = missing.into_iter().map(|missing| missing.cell).collect();
        return output::print(&status::text(&cells, recorded, &arguments.out)?);
    }
    bring_data(arguments)?;
    let cells: Vec<Cell> = missing.iter().map(|missing| missing.cell.clone()).collect();
    let calibration = Calibration::measure(&cells)?;
    // Most information first: a first seed everywhere before a second anywhere, short runs before long.
    missing.sort_by_cached_key(|missing| (missing.rank, calibration.cost(&missing.cell)));
    let cells: Vec<Cell> = missing.iter().map(|missing| missing.cell.clone()).collect();
    // Runs at once share the processor.
    let cost = |cell: &Cell| calibration.cost(cell) * arguments.jobs as u32;
    let costs: Vec<Duration> = cells.iter().map(cost).collect();
    eprintln!("{}", calibration.describe());
    let retry = Retry::of(arguments.retry_failed, &arguments.launch);
    let launched = arguments.launch.launch.is_some();
    if arguments.dry_run || !launched {
        output::print(&forecast(&missing, &costs, wanted, arguments))?;
    }
    if launched {
        return launch(&cells, retry, arguments);
    }
    if arguments.dry_run {
        return Ok(());
    }
    let planned: Vec<(String, AccuracyRow)> =
        missing.into_iter().map(|missing| (missing.cell.name, missing.row)).collect();
    let settle = || settle(&all, &tuned, &planned, arguments);
    let mut runner = Runner::new(&arguments.out, arguments.jobs, retry)?.telling(&settle);
    if let Some(budget) = arguments.budget {
        runner = runner.within(budget);
    }
    // Also before anything runs: if this is killed, what is recorded has been told what was about to begin.
    settle()?;
    let page = arguments.out.join("report");
    let writing = Mutex::new(());
    let refresh = || {
        let _one_at_a_time = writing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = report::refresh(&arguments.results, &arguments.out, &page) {
            eprintln!("bandroot: warning: the report could not be written: {error:#}");
        }
    };
    let outcome = runner.run_and_tell("accuracy", &cells, Some(&costs), &refresh);
    let settled = settle();
    let tally = outcome?;
    settled?;
    let Tally { done, failed, left, .. } = tally;
    output::print(&format!(
        "{done} done, {failed} failed, {left} left; beside the paper: {}; to keep them: bandroot results import {} --into \
         results/accuracy --by-table",
        page.join("index.html").display(),
        arguments.out.display()
    ))?;
    sweep::finish(&tally, &arguments.out, &runner)
}

/// Fetches CIFAR-10 if it is not there; a dry run only says so.
fn bring_data(arguments: &Accuracy) -> anyhow::Result<()> {
    if Name::Cifar10.verify(&arguments.data).is_ok() {
        return Ok(());
    }
    let folder = arguments.data.display();
    if arguments.dry_run {
        eprintln!("CIFAR-10 is not in {folder}: it would be fetched, about 160 MB");
        return Ok(());
    }
    eprintln!("CIFAR-10 is not in {folder}: fetching it");
    if let FetchedFiles::Fetched(_, source) = fetch::cifar10::fetch(&arguments.data, None)? {
        eprintln!("CIFAR-10 fetched from {source}, and checked");
    }
    Ok(())
}

/// Hands the runs to workers on a cluster, each of which is this command without `--launch`.
fn launch(cells: &[Cell], retry: Retry, arguments: &Accuracy) -> anyhow::Result<()> {
    let slurm = arguments.slurm.as_deref().map(slurm::read).transpose()?.unwrap_or_default();
    let workers = Workers {
        folder: &arguments.out,
        slurm: &slurm,
        written_in: arguments.slurm.as_deref().unwrap_or(Path::new("the file of --slurm")),
        missing: status::missing(cells, &arguments.out, |failure| retry.covers(failure))?,
        more: arguments.launch.more,
        question: format!("bandroot {} --status", slurm::question_arguments()?),
    };
    if arguments.dry_run { workers.show(false) } else { workers.submit(false) }
}

/// However it went: what was begun counts in the certificates of all runs in the folder.
fn settle(
    rows: &[AccuracyRow],
    tuned: &Tuned,
    planned: &[(String, AccuracyRow)],
    arguments: &Accuracy,
) -> anyhow::Result<()> {
    let recorded = &recorded(arguments)?;
    let trials = Trials { rows, tuned, recorded, planned };
    attempts::settle(&arguments.out, Among::Others, |cell, attempts| trials.of(cell, attempts))
}

/// The runs among the results and in the folder that is worked in.
fn recorded(arguments: &Accuracy) -> anyhow::Result<Vec<Record>> {
    let mut recorded = Vec::new();
    for folder in [&arguments.results, &arguments.out] {
        if folder.is_dir() {
            recorded.extend(Records::read(folder, Path::new(""))?.runs);
        }
    }
    Ok(recorded)
}

fn is_selected(row: &AccuracyRow, arguments: &Accuracy) -> bool {
    let any = |list: &[usize], value: usize| list.is_empty() || list.contains(&value);
    let place = match row.regime {
        // A list for one participation asks for nothing of the other.
        Regime::Single => arguments.epochs.is_empty() && any(&arguments.steps, row.steps),
        Regime::Repeated => {
            arguments.steps.is_empty() && any(&arguments.epochs, row.participations)
        }
    };
    place
        && arguments.participation.is_none_or(|regime| regime == row.regime)
        && (arguments.epsilon.is_empty() || arguments.epsilon.contains(&row.epsilon))
        && (arguments.method.is_empty() || arguments.method.contains(&row.method))
}

/// The runs that are not recorded yet with these hyper-parameters.
fn plan(
    rows: &[AccuracyRow],
    tuned: &Tuned,
    recorded: &[Record],
    arguments: &Accuracy,
) -> anyhow::Result<Vec<Missing>> {
    let mut missing: Vec<Missing> = Vec::new();
    for row in rows {
        let parameters = tuned.of(row)?;
        let mut exists: Vec<u64> = recorded
            .iter()
            .filter(|run| comparison::is_of_the_paper(run) && comparison::is_of(run, row))
            .filter(|run| has(run, &parameters))
            .map(|run| run.seed)
            .collect();
        exists.sort_unstable();
        // A run and its copy among the results are one.
        exists.dedup();
        let seeds: Vec<u64> =
            arguments.seeds.iter().copied().filter(|seed| !exists.contains(seed)).collect();
        let trials = parameters.searched + (exists.len() + seeds.len()) as u64;
        for (rank, seed) in (exists.len()..).zip(seeds) {
            let base = base(row, &parameters, arguments).ok_or_else(|| {
                anyhow::anyhow!("{}: the config could not be made", arguments.tuned.display())
            })?;
            let prefix = trials::prefix(row);
            let cell = Cell::new(&arguments.tuned, &base, &prefix, Vec::new(), seed, trials)?;
            // One epoch in batches of 500 is in both tables, and one run, however many it is chosen among.
            let canonical = cell.config.canonical()?;
            let same = |other: &Missing| {
                other.cell.config.canonical().is_ok_and(|other| other == canonical)
            };
            match missing.iter_mut().find(|other| same(other)) {
                Some(other) => other.places += 1,
                None => missing.push(Missing { cell, row: row.clone(), rank, places: 1 }),
            }
        }
    }
    Ok(missing)
}

/// Whether a run was made with these hyper-parameters.
fn has(run: &Record, parameters: &HyperParameters) -> bool {
    let is = |key: &str, value: f64| run.show(key).parse::<f64>().is_ok_and(|found| found == value);
    is("privacy.clip_norm", parameters.clip_norm)
        && is("optimizer.learning_rate", parameters.learning_rate)
        && is("optimizer.momentum", parameters.momentum)
        && is("optimizer.decay_factor", parameters.decay_factor)
}

/// The config of a cell, as far as it depends on neither seed nor trials.
fn base(row: &AccuracyRow, parameters: &HyperParameters, arguments: &Accuracy) -> Option<Table> {
    let text = |text: &str| Value::String(text.to_owned());
    let mut table = Table::new();
    let mut set = |key: &str, value: Value| config::file::set(&mut table, key, value);
    set("data.name", text("cifar10"))?;
    set("data.folder", text(&arguments.data.to_string_lossy()))?;
    set("model.name", text("convnet"))?;
    set("privacy.epsilon", Value::Float(row.epsilon))?;
    set("privacy.delta", Value::Float(row.delta))?;
    set("privacy.clip_norm", Value::Float(parameters.clip_norm))?;
    set("noise.method", text(&row.method))?;
    set("optimizer.learning_rate", Value::Float(parameters.learning_rate))?;
    set("optimizer.momentum", Value::Float(parameters.momentum))?;
    set("optimizer.decay_factor", Value::Float(parameters.decay_factor))?;
    set("training.epochs", Value::Integer(row.participations as i64))?;
    set("training.batch_size", Value::Integer(row.batch_size as i64))?;
    Some(table)
}

/// What is missing and what it will cost, in the order in which it is run.
fn forecast(
    missing: &[Missing],
    costs: &[Duration],
    wanted: usize,
    arguments: &Accuracy,
) -> String {
    let mut table = crate::terminal::table::Table::new(&[
        "participation",
        "epsilon",
        "method",
        "n",
        "k",
        "seed",
        "cost",
        "end",
    ]);
    let (mut end, mut total, mut fitting) = (Duration::ZERO, Duration::ZERO, 0);
    let jobs = arguments.jobs as u32;
    for (Missing { cell, row, .. }, &cost) in missing.iter().zip(costs) {
        let share = cost / jobs;
        total += share;
        let fits = arguments.budget.is_none_or(|budget| end + share <= budget);
        if fits {
            end += share;
            fitting += 1;
        }
        table.push(vec![
            row.regime.to_string(),
            row.epsilon.to_string(),
            row.method.clone(),
            row.steps.to_string(),
            row.participations.to_string(),
            cell.seed.to_string(),
            HumanDuration(cost).to_string(),
            if fits { HumanDuration(end).to_string() } else { "no time".to_owned() },
        ]);
    }
    let budget = arguments
        .budget
        .map_or(String::new(), |budget| format!("; {fitting} fit into {}", HumanDuration(budget)));
    let workers = [16, 64].map(|workers| {
        let end = HumanDuration(with_workers(costs.iter().map(|&cost| cost / jobs), workers));
        format!("{end} with {workers} workers")
    });
    format!(
        "{}\n{} of {wanted} runs are missing, about {} on this machine{budget}; on a cluster (--launch slurm), of nodes like \
         this one: {}\n",
        table.to_text(),
        missing.len(),
        HumanDuration(total),
        workers.join(", ")
    )
}

/// When the last of so many workers ends, each of which takes the next run when it is free.
fn with_workers(costs: impl Iterator<Item = Duration>, workers: usize) -> Duration {
    let mut ends = vec![Duration::ZERO; workers];
    for cost in costs {
        if let Some(first) = ends.iter_mut().min() {
            *first += cost;
        }
    }
    ends.into_iter().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_the_runs() {
        let costs = [3, 3, 2, 2, 2].map(Duration::from_secs);
        let end = |workers| with_workers(costs.into_iter(), workers).as_secs();
        assert_eq!((end(1), end(2), end(5), end(64)), (12, 7, 3, 3));
        assert_eq!(with_workers([].into_iter(), 4), Duration::ZERO);
    }
}
