//! `bandroot reproduce errors`: the 16 tables of expected error.

use std::path::Path;

use anyhow::Context;
use mf_core::{Factorization, Method, Workload, reference};
use rayon::prelude::*;
use serde::Serialize;

use crate::cli::{Errors, Format};
use crate::paper::reproduce::optimum::{self, OptimumAgreement, OptimumCell};
use crate::published::{self, ErrorRow, Regime};
use crate::terminal::figure::{self, Curve, Panel};
use crate::terminal::output;
use crate::terminal::table::Table;
use cifar_convnet::files;
use cifar_convnet::run::environment::Environment;
use cifar_convnet::run::folder;

/// Fast and slow evaluation agree to this relative error or something is wrong.
const EXACT: f64 = 1e-9;

/// One method in one row of one table.
#[derive(Debug, Clone, Serialize)]
struct ErrorCell {
    participation: String,
    alpha: f64,
    beta: f64,
    steps: usize,
    separation: usize,
    participations: usize,
    method: String,
    /// From the closed forms, by the fast path.
    expected_error: f64,
    /// The same from the definitions, by `mf_core::reference`.
    reference: f64,
    /// As printed, one decimal.
    paper: f64,
    /// Why the printed digit differs, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl ErrorCell {
    /// What the cell is about, for the first columns of a table.
    fn key(&self) -> Vec<String> {
        let numbers = [self.steps, self.separation, self.participations];
        [self.participation.clone(), self.alpha.to_string(), self.beta.to_string()]
            .into_iter()
            .chain(numbers.map(|number| number.to_string()))
            .collect()
    }

    fn agrees_exactly(&self) -> bool {
        (self.expected_error / self.reference - 1.0).abs() < EXACT
    }

    fn agrees_with_print(&self) -> bool {
        (self.expected_error - self.paper).abs() <= published::PRINTED
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Agreement<'a> {
    cells: usize,
    agree_exact: usize,
    agree_printed: usize,
    mismatches: Vec<&'a ErrorCell>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aof: Option<OptimumAgreement<'a>>,
}

impl<'a> Agreement<'a> {
    fn of(cells: &'a [ErrorCell], aof: Option<OptimumAgreement<'a>>) -> Self {
        Self {
            aof,
            cells: cells.len(),
            agree_exact: cells.iter().filter(|cell| cell.agrees_exactly()).count(),
            agree_printed: cells.iter().filter(|cell| cell.agrees_with_print()).count(),
            mismatches: cells.iter().filter(|cell| !cell.agrees_with_print()).collect(),
        }
    }

    /// The closing lines under the table.
    fn to_text(&self) -> String {
        let Self { cells, agree_exact, agree_printed, mismatches, aof } = self;
        let mut text = String::new();
        for cell in mismatches {
            text += &format!(
                "{} {} alpha {} beta {} n {}: {:.4} here, {:.1} printed; {}\n",
                cell.method,
                cell.participation,
                cell.alpha,
                cell.beta,
                cell.steps,
                cell.expected_error,
                cell.paper,
                cell.reason.as_deref().unwrap_or("no reason known"),
            );
        }
        text += &format!(
            "{cells} cells: {agree_exact} agree with the exact value, {agree_printed} with the \
             printed digit, {} differ from it\n",
            mismatches.len()
        );
        text + &aof.as_ref().map(OptimumAgreement::to_text).unwrap_or_default()
    }
}

pub(crate) fn run(arguments: &Errors) -> anyhow::Result<()> {
    if let Some(folder) = &arguments.out {
        // Before the work: a folder that cannot be made should cost nothing.
        std::fs::create_dir_all(folder)
            .with_context(|| format!("could not make the folder {}", folder.display()))?;
    }
    let rows = published::expected_error()?;
    let cells: Vec<ErrorCell> = rows
        .par_iter()
        .map(evaluate)
        .collect::<anyhow::Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    let optima = match arguments.without_aof {
        true => None,
        false => Some(optimum::solve(&rows, &arguments.aof)?),
    };
    let optima = optima.as_deref();
    let aof = optima.map(|optima| OptimumAgreement::of(optima, arguments.aof.tolerance));
    let agreement = Agreement::of(&cells, aof);
    if let Some(folder) = &arguments.out {
        write_folder(folder, &rows, &cells, optima, &agreement)?;
    }
    if arguments.json {
        return output::print(&files::json(&agreement)?);
    }
    output::print(&match arguments.format {
        Format::Text => {
            format!("{}\n{}", side_by_side(&cells, optima).to_text(), agreement.to_text())
        }
        Format::Csv => full_precision(&cells, optima).to_csv()?,
        Format::Markdown => {
            format!("{}\n{}", side_by_side(&cells, optima).to_markdown(), agreement.to_text())
        }
    })
}

/// The four closed-form cells of one row, each evaluated twice.
fn evaluate(row: &ErrorRow) -> anyhow::Result<Vec<ErrorCell>> {
    let (sgd, participation) = (row.sgd()?, row.participation()?);
    let root = reference::square_root_coefficients(&sgd, row.steps);
    let input = reference::workload_coefficients(&sgd, row.steps);
    let methods = [
        (Method::Bsr { bands: row.separation }, &root[..row.separation], row.bsr),
        (Method::SquareRoot, &root, row.sqrt),
        (Method::Identity, &[1.0], row.identity),
        (Method::Input, &input, row.input),
    ];
    methods
        .into_iter()
        .map(|(method, c, paper)| {
            let factorization = Factorization::new(Workload::sgd(sgd, row.steps)?, method)?;
            let mut cell = ErrorCell {
                participation: row.regime.to_string(),
                alpha: row.alpha,
                beta: row.beta,
                steps: row.steps,
                separation: row.separation,
                participations: row.participations,
                method: method.to_string(),
                expected_error: factorization.loss(&participation)?.expected_error,
                reference: reference::expected_error(&sgd, c, &participation),
                paper,
                reason: None,
            };
            if !cell.agrees_with_print() {
                // The decoder of `input` is the identity, so its error is its sensitivity.
                let bound = reference::row_wise_bound(c, &participation);
                let printed_is_bound =
                    method == Method::Input && (bound - paper).abs() <= published::PRINTED;
                cell.reason = printed_is_bound.then(|| {
                    format!("the paper prints an upper bound on the sensitivity, {bound:.4}")
                });
            }
            Ok(cell)
        })
        .collect()
}

/// One line per row of the paper's tables, ours and the paper's number for every method; a star where
/// the printed digit differs.
fn side_by_side(cells: &[ErrorCell], optima: Option<&[OptimumCell]>) -> Table {
    let mut header = vec!["participation", "alpha", "beta", "n", "b", "k", "bsr", "paper", "sqrt"];
    header.extend(["paper", "identity", "paper", "input", "paper"]);
    if optima.is_some() {
        header.extend(["aof", "gap", "paper"]);
    }
    let mut table = Table::new(&header);
    for (index, row) in cells.chunks(4).enumerate() {
        let mut line = row[0].key();
        for cell in row {
            let star = if cell.agrees_with_print() { "" } else { "*" };
            line.push(format!("{:.4}", cell.expected_error));
            line.push(format!("{:.1}{star}", cell.paper));
        }
        if let Some(optima) = optima {
            let optimum = &optima[index];
            line.push(format!("{:.4}", optimum.expected_error));
            line.push(format!("{:.0e}", optimum.certified_gap));
            line.push(format!("{:.1}", optimum.paper));
        }
        table.push(line);
    }
    table
}

/// One line per cell in full precision, for programs. The reference of an optimum is its lower bound.
fn full_precision(cells: &[ErrorCell], optima: Option<&[OptimumCell]>) -> Table {
    let mut table = Table::new(&[
        "participation",
        "alpha",
        "beta",
        "n",
        "b",
        "k",
        "method",
        "expected_error",
        "reference",
        "paper",
    ]);
    let line = |key: Vec<String>, method: &str, numbers: [f64; 3]| -> Vec<String> {
        let numbers = numbers.map(|number| number.to_string());
        key.into_iter().chain([method.to_owned()]).chain(numbers).collect()
    };
    for (index, row) in cells.chunks(4).enumerate() {
        for cell in row {
            let numbers = [cell.expected_error, cell.reference, cell.paper];
            table.push(line(cell.key(), &cell.method, numbers));
        }
        if let Some(optima) = optima {
            let OptimumCell { expected_error, lower_bound, paper, .. } = optima[index];
            table.push(line(row[0].key(), "aof", [expected_error, lower_bound, paper]));
        }
    }
    table
}

fn write_folder(
    folder: &Path,
    rows: &[ErrorRow],
    cells: &[ErrorCell],
    optima: Option<&[OptimumCell]>,
    agreement: &Agreement<'_>,
) -> anyhow::Result<()> {
    let table = side_by_side(cells, optima);
    let write = |name: &str, text: String| files::write(&folder.join(name), text.as_bytes());
    write("errors.txt", format!("{}\n{}", table.to_text(), agreement.to_text()))?;
    write("errors.md", format!("{}\n{}", table.to_markdown(), agreement.to_text()))?;
    write("errors.csv", full_precision(cells, optima).to_csv()?)?;
    write("errors.json", files::json(agreement)?)?;
    write(folder::ENVIRONMENT, files::json(&Environment::current())?)?;
    for (name, panels) in figures(rows, cells, optima) {
        figure::write(folder, name, &panels)?;
    }
    Ok(())
}

/// The paper's Figure 1 and its two figures of all settings.
fn figures(
    rows: &[ErrorRow],
    cells: &[ErrorCell],
    optima: Option<&[OptimumCell]>,
) -> Vec<(&'static str, Vec<Panel>)> {
    let panel = |regime, alpha, beta| panel(rows, cells, optima, regime, alpha, beta);
    let settings = |regime: Regime| {
        let mut settings: Vec<(f64, f64)> = Vec::new();
        for row in rows.iter().filter(|row| row.regime == regime) {
            if !settings.contains(&(row.alpha, row.beta)) {
                settings.push((row.alpha, row.beta));
            }
        }
        settings.into_iter().map(|(alpha, beta)| panel(regime, alpha, beta)).collect()
    };
    let main = [(0.999, 0.0), (1.0, 0.9)].map(|(alpha, beta)| panel(Regime::Repeated, alpha, beta));
    vec![
        ("errors-main", main.into()),
        ("errors-repeated", settings(Regime::Repeated)),
        ("errors-single", settings(Regime::Single)),
    ]
}

fn panel(
    rows: &[ErrorRow],
    cells: &[ErrorCell],
    optima: Option<&[OptimumCell]>,
    regime: Regime,
    alpha: f64,
    beta: f64,
) -> Panel {
    let matches = |row: &ErrorRow| row.regime == regime && row.alpha == alpha && row.beta == beta;
    let points = |value: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
        let found = rows.iter().enumerate().filter(|(_, row)| matches(row));
        found.map(|(i, row)| (row.steps as f64, value(i))).collect()
    };
    let ours = |column: usize| points(&|i| cells[4 * i + column].expected_error);
    let (identity, input) = ("A = A I (identity)", "A = I A (input)");
    let mut curves = vec![Curve::marks("AOF (paper)", figure::BLACK, points(&|i| rows[i].aof))];
    if let Some(optima) = optima {
        let optimum = points(&|i| optima[i].expected_error);
        curves.push(Curve::line("AOF (certified)", figure::PURPLE, optimum));
    }
    curves.extend([
        Curve::line("BSR", figure::BLUE, ours(0)),
        Curve::wide("square root", figure::GREEN, ours(1)),
        Curve::line(identity, figure::ORANGE, ours(2)),
        Curve::line(input, figure::RED, ours(3)),
    ]);
    Panel {
        title: format!("{regime} participation, alpha = {alpha}, beta = {beta}"),
        x_label: "steps n",
        y_label: "expected error",
        y_scale: figure::Scale::Logarithmic,
        curves,
    }
}
