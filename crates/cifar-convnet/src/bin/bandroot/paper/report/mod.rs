//! `bandroot report`: everything that was recorded, beside the paper, at any moment.

pub(crate) mod record;
pub(crate) mod comparison;
mod measures;
mod amplification;
mod best;
mod page;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::cli::Report;
use crate::published::{self, Regime};
use crate::terminal::figure::{self, Panel};
use crate::terminal::output;
use crate::terminal::table::Table;
use cifar_convnet::BadArgument;
use cifar_convnet::files;
use comparison::{Compared, EPSILONS, METHODS};
use record::{Record, Records};

/// The paper's number of seeds.
const SEEDS: usize = 5;

/// All that a report shows.
pub(crate) struct Findings<'a> {
    cells: Vec<Compared<'a>>,
    runs: Vec<&'a Record>,
    searches: Vec<&'a Record>,
    failed: &'a [(PathBuf, String)],
    unreadable: &'a [(PathBuf, String)],
    errors: Vec<(Panel, Table)>,
    agreement: Option<(usize, usize)>,
    runtimes: Vec<(Panel, Table)>,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Counts {
    page: PathBuf,
    cells: usize,
    recorded: usize,
    reached: usize,
    below: Vec<String>,
    order_compared: usize,
    order_wrong: Vec<String>,
    runs: usize,
    searches: usize,
    failed: usize,
    unreadable: Vec<String>,
}

pub(crate) fn run(arguments: &Report) -> anyhow::Result<()> {
    let results = &arguments.results;
    ensure!(
        results.is_dir(),
        BadArgument(format!("--results: there is no folder {}", results.display()))
    );
    let out = arguments.out.clone().unwrap_or_else(|| results.join("report"));
    std::fs::create_dir_all(&out)
        .with_context(|| format!("could not make the folder {}", out.display()))?;
    let records = Records::read(results, &out)?;
    for (folder, why) in &records.unreadable {
        eprintln!("bandroot: warning: {} is left out: {why}", results.join(folder).display());
    }
    let findings = Findings::of(results, &records)?;
    findings.write(&out)?;
    let counts = findings.counts(out.join("index.html"));
    if arguments.json {
        return output::print(&files::json(&counts)?);
    }
    let Counts { cells, recorded, reached, below, order_wrong, runs, searches, failed, .. } =
        &counts;
    let mut text = format!(
        "{recorded} of {cells} accuracy cells recorded, {reached} of these reach the paper; {runs} final \
         runs, {searches} tuning runs, {failed} failed\n"
    );
    below.iter().for_each(|line| text += &format!("below the paper: {line}\n"));
    order_wrong.iter().for_each(|line| text += &format!("not the paper's order: {line}\n"));
    output::print(&format!("{text}{}\n", counts.page.display()))
}

/// Writes the report of what is below `results` and of the runs below `runs`, which need not be imported yet; the page.
pub(crate) fn refresh(results: &Path, runs: &Path, out: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(out)
        .with_context(|| format!("could not make the folder {}", out.display()))?;
    let mut records = match results.is_dir() {
        true => Records::read(results, out)?,
        false => Records::default(),
    };
    let new = Records::read(runs, out)?;
    // A run and its copy among the results are one.
    let known = |run: &Record| records.runs.iter().any(|other| other.name() == run.name());
    let new_runs: Vec<Record> = new.runs.into_iter().filter(|run| !known(run)).collect();
    records.runs.extend(new_runs);
    records.failed.extend(new.failed);
    records.unreadable.extend(new.unreadable);
    Findings::of(results, &records)?.write(out)?;
    Ok(out.join("index.html"))
}

impl<'a> Findings<'a> {
    fn of(results: &Path, records: &'a Records) -> anyhow::Result<Self> {
        let errors = measures::read(&results.join("expected-error/errors.csv"))?;
        let runtimes = measures::read(&results.join("runtimes/measurements.csv"))?;
        let (searches, runs) = records.runs.iter().partition(|run: &&Record| run.validation > 0.0);
        Ok(Self {
            cells: comparison::compare(&published::accuracy()?, &records.runs),
            runs,
            searches,
            failed: &records.failed,
            unreadable: &records.unreadable,
            agreement: errors.as_deref().map(measures::agreement),
            errors: errors.as_deref().map_or(Vec::new(), measures::expected_errors),
            runtimes: measures::runtimes(runtimes.as_deref().unwrap_or_default())?,
        })
    }

    fn write(&self, out: &Path) -> anyhow::Result<()> {
        let write = |name: &str, text: &str| files::write(&out.join(name), text.as_bytes());
        let (mut markdown, mut latex) = (
            String::from(
                "Test accuracy on CIFAR-10 in percent: mean \u{b1} standard deviation (seeds) here, and the \
                 paper's over 5 seeds. A star: below the paper's mean minus two of its standard deviations.\n",
            ),
            String::new(),
        );
        for epsilon in EPSILONS {
            for regime in [Regime::Repeated, Regime::Single] {
                let table = comparison::table(&self.cells, regime, epsilon);
                let title = format!("{regime} participation, epsilon = {epsilon}");
                markdown += &format!("\n{title}\n\n{}", table.to_markdown());
                latex += &format!("% {title}\n{}\n", table.to_latex());
            }
            let panels = [Regime::Repeated, Regime::Single]
                .map(|regime| comparison::panel(&self.cells, regime, epsilon));
            figure::write(out, &format!("accuracy-epsilon-{epsilon}"), &panels)?;
        }
        write("accuracy.md", &markdown)?;
        write("accuracy.tex", &latex)?;
        write("accuracy.csv", &self.accuracy_csv()?)?;
        write("runs.csv", &self.runs_table().to_csv()?)?;
        write("searches.csv", &table_of(self.searches.iter().copied()).to_csv()?)?;
        write("missing.md", &self.missing_table().to_markdown())?;
        let best = self.best().into_iter().map(|part| {
            format!("{}\n\n{}\n\n{}", part.title, part.words, part.table.to_markdown())
        });
        write("best.md", &best.collect::<Vec<_>>().join("\n"))?;
        write("index.html", &page::html(self)?)
    }

    /// One line per cell that was recorded, in full precision.
    fn accuracy_csv(&self) -> anyhow::Result<String> {
        let mut table = Table::new(&[
            "participation",
            "epsilon",
            "n",
            "k",
            "method",
            "mean",
            "std",
            "seeds",
            "paper_mean",
            "paper_std",
            "reaches_paper",
            "other_settings",
        ]);
        for cell in &self.cells {
            let Some(ours) = &cell.ours else { continue };
            table.push(vec![
                cell.row.regime.to_string(),
                cell.row.epsilon.to_string(),
                cell.row.steps.to_string(),
                cell.row.participations.to_string(),
                cell.row.method.clone(),
                ours.mean.to_string(),
                ours.std.map_or(String::new(), |std| std.to_string()),
                ours.runs.len().to_string(),
                cell.row.mean.to_string(),
                cell.row.std.to_string(),
                (cell.is_reached() == Some(true)).to_string(),
                cell.others.to_string(),
            ]);
        }
        table.to_csv()
    }

    fn best(&self) -> Vec<best::Part> {
        best::parts(&self.cells, &self.runs)
    }

    fn runs_table(&self) -> Table {
        table_of(self.runs.iter().copied())
    }

    /// The tuning runs of every epsilon, method and length, best first.
    fn searches_tables(&self) -> Vec<(String, Table)> {
        let title = |run: &Record| {
            let Record { data, epsilon, method, participations, separation, .. } = run;
            format!("{data}, epsilon {epsilon}, {method}, {participations} epochs of {separation}")
        };
        let mut runs = self.searches.clone();
        runs.sort_by(|a, b| title(a).cmp(&title(b)).then(b.accuracy.total_cmp(&a.accuracy)));
        runs.chunk_by(|a, b| title(a) == title(b))
            .map(|group| {
                let table = table_of(group.iter().copied());
                (format!("{}: {} runs", title(group[0]), group.len()), table)
            })
            .collect()
    }

    /// What of the paper's tables has no run, and what has fewer than five seeds.
    fn missing_table(&self) -> Table {
        let mut table = Table::new(&["table", "method", "without a run", "fewer than five seeds"]);
        for regime in [Regime::Repeated, Regime::Single] {
            for epsilon in EPSILONS {
                for method in METHODS {
                    let cells = self.cells.iter().filter(|cell| {
                        let row = &cell.row;
                        row.regime == regime && row.epsilon == epsilon && row.method == method
                    });
                    let (mut none, mut few) = (Vec::new(), Vec::new());
                    for cell in cells {
                        let place = match regime {
                            Regime::Single => cell.row.steps,
                            Regime::Repeated => cell.row.participations,
                        };
                        match cell.ours.as_ref().map_or(0, |ours| ours.runs.len()) {
                            0 => none.push(place.to_string()),
                            seeds if seeds < SEEDS => few.push(place.to_string()),
                            _ => {}
                        }
                    }
                    if !none.is_empty() || !few.is_empty() {
                        let over = if regime == Regime::Single { "n" } else { "epochs" };
                        table.push(vec![
                            format!("{regime}, epsilon {epsilon}, by {over}"),
                            method.to_owned(),
                            none.join(", "),
                            few.join(", "),
                        ]);
                    }
                }
            }
        }
        table
    }

    fn counts(&self, page: PathBuf) -> Counts {
        let below = self.cells.iter().filter(|cell| cell.is_reached() == Some(false));
        let show = |cell: &Compared<'_>| {
            let ours = cell.ours.as_ref().map_or(String::new(), comparison::Group::show);
            format!("{}: {ours}, paper {}", cell.title(), cell.show_paper())
        };
        let (order_compared, order_wrong) = comparison::disorder(&self.cells);
        let count = |test: &dyn Fn(&Compared<'_>) -> bool| {
            self.cells.iter().filter(|cell| test(cell)).count()
        };
        Counts {
            page,
            cells: self.cells.len(),
            recorded: count(&|cell| cell.ours.is_some()),
            reached: count(&|cell| cell.is_reached() == Some(true)),
            below: below.map(show).collect(),
            order_compared,
            order_wrong,
            runs: self.runs.len(),
            searches: self.searches.len(),
            failed: self.failed.len(),
            unreadable: self
                .unreadable
                .iter()
                .map(|(path, _)| path.display().to_string())
                .collect(),
        }
    }
}

/// The columns of a table of runs.
const COLUMNS: [&str; 20] = [
    "run",
    "data",
    "epsilon",
    "method",
    "n",
    "k",
    "batch",
    "clip norm",
    "rate",
    "momentum",
    "decay",
    "seed",
    "accuracy",
    "seconds",
    "private",
    "trials",
    "commit",
    "machine",
    "threads",
    "unlike the paper",
];

/// One row per run.
pub(crate) fn table_of<'a>(runs: impl Iterator<Item = &'a Record>) -> Table {
    let mut table = Table::new(&COLUMNS);
    runs.for_each(|run| table.push(line(run)));
    table
}

fn line(run: &Record) -> Vec<String> {
    let folder = run.folder.display().to_string();
    vec![
        if folder.is_empty() { ".".to_owned() } else { folder },
        run.data.clone(),
        run.epsilon.to_string(),
        run.method.clone(),
        run.steps.to_string(),
        run.participations.to_string(),
        run.batch_size.to_string(),
        run.show("privacy.clip_norm"),
        run.show("optimizer.learning_rate"),
        run.show("optimizer.momentum"),
        run.show("optimizer.decay_factor"),
        run.seed.to_string(),
        format!("{:.2}", run.accuracy),
        run.seconds.map_or(String::new(), |seconds| format!("{seconds:.1}")),
        if run.private { "yes" } else { "no: fixed seed" }.to_owned(),
        run.trials.map_or(String::new(), |trials| trials.to_string()),
        run.show("commit"),
        run.show("cpu"),
        run.show("threads"),
        run.deviations.join("; "),
    ]
}
