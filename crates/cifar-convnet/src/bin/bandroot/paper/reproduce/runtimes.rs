//! `bandroot reproduce runtimes`: the 16 tables of time to factorize, measured here.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use mf_core::factorization::aof::{self, Options};
use mf_core::{Factorization, Method, Sgd, Workload};
use serde::{Deserialize, Serialize};

use crate::cli::Runtimes;
use crate::published::{self, Regime, RuntimeRow};
use crate::terminal::figure::{self, Curve, Panel};
use crate::terminal::output;
use crate::terminal::progress;
use crate::terminal::table::Table;
use cifar_convnet::BadArgument;
use cifar_convnet::files;
use cifar_convnet::run::environment::Environment;
use cifar_convnet::run::folder;

/// One row measured on this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Measurement {
    participation: Regime,
    alpha: f64,
    beta: f64,
    steps: usize,
    tolerance: f64,
    /// Coefficients, sensitivity and expected error of BSR.
    bsr_seconds: f64,
    bsr_error: f64,
    /// From nothing to the factor `C` and its certificate.
    aof_seconds: f64,
    aof_error: f64,
    certified_gap: f64,
    iterations: usize,
    converged: bool,
}

impl Measurement {
    fn is_of(&self, row: &RuntimeRow, tolerance: f64) -> bool {
        self.participation == row.regime
            && self.alpha == row.alpha
            && self.beta == row.beta
            && self.steps == row.steps
            && self.tolerance == tolerance
    }
}

pub(crate) fn run(arguments: &Runtimes) -> anyhow::Result<()> {
    let rows: Vec<RuntimeRow> =
        published::runtimes()?.into_iter().filter(|row| is_selected(row, arguments)).collect();
    ensure!(
        !rows.is_empty(),
        BadArgument(
            "no row of the paper's runtime tables has these --alpha, --beta and --steps".into()
        )
    );
    let folder = &arguments.out;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("could not make the folder {}", folder.display()))?;
    let path = folder.join("measurements.csv");
    let mut measured = read(&path)?;
    let is_missing =
        |row: &&RuntimeRow| !measured.iter().any(|m| m.is_of(row, arguments.tolerance));
    let missing: Vec<&RuntimeRow> = rows.iter().filter(is_missing).collect();
    let bar = progress::bar(missing.len() as u64);
    for row in missing {
        let mut show = |progress: aof::Progress| {
            bar.set_message(progress::describe(&progress));
            ControlFlow::Continue(())
        };
        measured.push(measure(row, arguments.tolerance, &mut show)?);
        // After every row, so that nothing measured is lost.
        write(&path, &measured)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let pairs: Vec<(&RuntimeRow, &Measurement)> = rows
        .iter()
        .filter_map(|row| Some((row, measured.iter().find(|m| m.is_of(row, arguments.tolerance))?)))
        .collect();
    let markdown = tables(&pairs, Table::to_markdown);
    files::write(&folder.join("runtimes.md"), markdown.as_bytes())?;
    let environment = files::json(&Environment::current())?;
    files::write(&folder.join(folder::ENVIRONMENT), environment.as_bytes())?;
    for regime in [Regime::Repeated, Regime::Single] {
        let panels = panels(&pairs, regime);
        if !panels.is_empty() {
            figure::write(folder, &format!("optimizers-{regime}"), &panels)?;
        }
    }
    if arguments.json {
        let measurements: Vec<&Measurement> = pairs.iter().map(|pair| pair.1).collect();
        return output::print(&files::json(&measurements)?);
    }
    output::print(&tables(&pairs, Table::to_text))
}

fn is_selected(row: &RuntimeRow, arguments: &Runtimes) -> bool {
    arguments.participation.is_none_or(|regime| regime == row.regime)
        && (arguments.alpha.is_empty() || arguments.alpha.contains(&row.alpha))
        && (arguments.beta.is_empty() || arguments.beta.contains(&row.beta))
        && (arguments.steps.is_empty() || arguments.steps.contains(&row.steps))
}

fn measure(
    row: &RuntimeRow,
    tolerance: f64,
    show: &mut dyn FnMut(aof::Progress) -> ControlFlow<()>,
) -> anyhow::Result<Measurement> {
    let workload = Workload::sgd(Sgd::new(row.alpha, row.beta)?, row.steps)?;
    let participation = row.regime.participation(row.steps)?;
    let bands = participation.min_separation();
    let start = Instant::now();
    let bsr = Factorization::new(workload.clone(), Method::Bsr { bands })?;
    let bsr_error = bsr.loss(&participation)?.expected_error;
    let bsr_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let options = Options { relative_gap: tolerance, ..Options::default() };
    let aof = Factorization::aof(workload, bands, &options, show)?;
    let aof_seconds = start.elapsed().as_secs_f64();
    let certificate = aof.certificate().context("the solver returned no certificate")?;
    Ok(Measurement {
        participation: row.regime,
        alpha: row.alpha,
        beta: row.beta,
        steps: row.steps,
        tolerance,
        bsr_seconds,
        bsr_error,
        aof_seconds,
        aof_error: certificate.expected_error(row.steps, participation.max_participations()),
        certified_gap: certificate.relative_gap,
        iterations: certificate.iterations,
        converged: certificate.converged,
    })
}

/// What was measured before; nothing if there is no file yet.
fn read(path: &Path) -> anyhow::Result<Vec<Measurement>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let remedy = || format!("could not read {}; move it away to measure again", path.display());
    let mut reader = csv::Reader::from_path(path).with_context(remedy)?;
    reader.deserialize().collect::<Result<_, _>>().with_context(remedy)
}

fn write(path: &Path, measured: &[Measurement]) -> anyhow::Result<()> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for measurement in measured {
        writer.serialize(measurement)?;
    }
    files::write(path, &writer.into_inner()?)
}

/// The settings of the pairs in order, each with its pairs: one table of the paper each.
fn by_setting<'a>(
    pairs: &'a [(&'a RuntimeRow, &'a Measurement)],
) -> impl Iterator<Item = &'a [(&'a RuntimeRow, &'a Measurement)]> {
    let setting = |row: &RuntimeRow| (row.regime, row.alpha, row.beta);
    pairs.chunk_by(move |(a, _), (b, _)| setting(a) == setting(b))
}

fn tables(pairs: &[(&RuntimeRow, &Measurement)], render: impl Fn(&Table) -> String) -> String {
    let mut text = String::from(
        "Seconds to factorize. Ours: all threads of this machine, AOF to the certified gap shown. Paper: BSR and \
         CVX on one CPU core, GD and L-BFGS on an H100.\n",
    );
    for group in by_setting(pairs) {
        let row = group[0].0;
        let mut table = Table::new(&[
            "n",
            "bsr",
            "aof",
            "gap",
            "iterations",
            "paper bsr",
            "paper gd",
            "paper l-bfgs",
            "paper cvx 1e-2",
            "paper cvx 1e-3",
            "paper cvx 1e-4",
        ]);
        for (row, measured) in group {
            let star = if measured.converged { "" } else { " not reached" };
            table.push(vec![
                row.steps.to_string(),
                format!("{:.5}", measured.bsr_seconds),
                format!("{:.2}", measured.aof_seconds),
                format!("{:.0e}{star}", measured.certified_gap),
                measured.iterations.to_string(),
                row.bsr.clone(),
                row.gd_h100.clone(),
                row.lbfgs_h100.clone(),
                row.cvx_1e2.clone(),
                row.cvx_1e3.clone(),
                row.cvx_1e4.clone(),
            ]);
        }
        let title =
            format!("{} participation, alpha = {}, beta = {}", row.regime, row.alpha, row.beta);
        text += &format!("\n{title}\n\n{}", render(&table));
    }
    text
}

/// The error of BSR and of the optimum over `n`, one panel per setting.
fn panels(pairs: &[(&RuntimeRow, &Measurement)], regime: Regime) -> Vec<Panel> {
    by_setting(pairs)
        .filter(|group| group[0].0.regime == regime)
        .map(|group| {
            let row = group[0].0;
            let curve = |error: &dyn Fn(&Measurement) -> f64| {
                group.iter().map(|(row, m)| (row.steps as f64, error(m))).collect()
            };
            Panel {
                title: format!(
                    "{regime} participation, alpha = {}, beta = {}",
                    row.alpha, row.beta
                ),
                x_label: "steps n",
                y_label: "expected error",
                y_scale: figure::Scale::Logarithmic,
                curves: vec![
                    Curve::line("AOF (certified)", figure::PURPLE, curve(&|m| m.aof_error)),
                    Curve::line("BSR", figure::BLUE, curve(&|m| m.bsr_error)),
                ],
            }
        })
        .collect()
}
