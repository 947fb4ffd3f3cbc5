//! The tables of expected error and of time to factorize, from the CSV files that `bandroot reproduce`
//! left.

use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::published::{self, Regime};
use crate::terminal::figure::{self, Curve, Panel, Scale};
use crate::terminal::table::Table;

/// One line of `errors.csv`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ErrorLine {
    participation: Regime,
    alpha: f64,
    beta: f64,
    n: usize,
    method: String,
    expected_error: f64,
    paper: f64,
}

/// One line of `measurements.csv`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RuntimeLine {
    participation: Regime,
    alpha: f64,
    beta: f64,
    steps: usize,
    bsr_seconds: f64,
    aof_seconds: f64,
    certified_gap: f64,
}

/// The lines of a CSV file; `None` if there is no such file.
///
/// # Errors
/// If there is one that cannot be read.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Option<Vec<T>>> {
    if !path.exists() {
        return Ok(None);
    }
    let context = || format!("could not read {}", path.display());
    let mut reader = csv::Reader::from_path(path).with_context(context)?;
    reader.deserialize().collect::<Result<_, _>>().map(Some).with_context(context)
}

/// A combination of participation, alpha and beta: one table of the paper.
type Setting = (Regime, f64, f64);

fn settings(all: impl Iterator<Item = Setting>) -> Vec<Setting> {
    let mut found = Vec::new();
    for setting in all {
        if !found.contains(&setting) {
            found.push(setting);
        }
    }
    // The setting of the paper's main figure with momentum and decay first.
    found.sort_by_key(|&(_, alpha, beta)| !(alpha == 0.999 && beta == 0.9));
    found
}

fn title((regime, alpha, beta): Setting) -> String {
    format!("{regime}, alpha = {alpha}, beta = {beta}")
}

/// Every setting as a figure and a table.
pub(crate) fn expected_errors(lines: &[ErrorLine]) -> Vec<(Panel, Table)> {
    let of = |line: &ErrorLine| (line.participation, line.alpha, line.beta);
    let methods = [
        ("aof", "AOF (certified)", figure::PURPLE),
        ("bsr", "BSR", figure::BLUE),
        ("identity", "identity", figure::ORANGE),
        ("input", "input", figure::RED),
    ];
    let part = |setting: Setting| {
        let lines: Vec<&ErrorLine> = lines.iter().filter(|line| of(line) == setting).collect();
        let points = |method: &str, value: &dyn Fn(&ErrorLine) -> f64| -> Vec<(f64, f64)> {
            let found = lines.iter().filter(|line| line.method == method);
            found.map(|line| (line.n as f64, value(line))).collect()
        };
        let mut curves =
            vec![Curve::marks("AOF (paper)", figure::BLACK, points("aof", &|line| line.paper))];
        for (method, name, color) in methods {
            curves.push(Curve::line(name, color, points(method, &|line| line.expected_error)));
        }
        let mut table = Table::new(&[
            "n", "bsr", "paper", "sqrt", "paper", "aof", "paper", "identity", "paper", "input",
            "paper",
        ]);
        let mut steps: Vec<usize> = lines.iter().map(|line| line.n).collect();
        steps.dedup();
        for n in steps {
            let mut row = vec![n.to_string()];
            for method in ["bsr", "sqrt", "aof", "identity", "input"] {
                let line = lines.iter().find(|line| line.n == n && line.method == method);
                row.push(line.map_or(String::new(), |line| format!("{:.2}", line.expected_error)));
                row.push(line.map_or(String::new(), |line| format!("{:.1}", line.paper)));
            }
            table.push(row);
        }
        (log_panel(title(setting), "expected error", curves), table)
    };
    settings(lines.iter().map(of)).into_iter().map(part).collect()
}

/// Cells of the error tables, and those that agree with the printed digit or are below it.
pub(crate) fn agreement(lines: &[ErrorLine]) -> (usize, usize) {
    let agrees = |line: &&ErrorLine| line.expected_error <= line.paper + 0.05 + 1e-9;
    (lines.len(), lines.iter().filter(agrees).count())
}

/// Every setting as a figure and a table.
pub(crate) fn runtimes(lines: &[RuntimeLine]) -> anyhow::Result<Vec<(Panel, Table)>> {
    let rows = published::runtimes()?;
    let of = |line: &RuntimeLine| (line.participation, line.alpha, line.beta);
    let part = |setting: Setting| {
        let lines: Vec<&RuntimeLine> = lines.iter().filter(|line| of(line) == setting).collect();
        let ours = |value: &dyn Fn(&RuntimeLine) -> f64| -> Vec<(f64, f64)> {
            lines.iter().map(|line| (line.steps as f64, value(line))).collect()
        };
        let rows: Vec<_> =
            rows.iter().filter(|row| (row.regime, row.alpha, row.beta) == setting).collect();
        let theirs = |value: &dyn Fn(&published::RuntimeRow) -> &String| -> Vec<(f64, f64)> {
            let seconds = |row: &&published::RuntimeRow| {
                Some((row.steps as f64, value(row).parse::<f64>().ok()?))
            };
            rows.iter().filter_map(seconds).collect()
        };
        let curves = vec![
            Curve::line("AOF (certified)", figure::PURPLE, ours(&|line| line.aof_seconds)),
            Curve::line("BSR", figure::BLUE, ours(&|line| line.bsr_seconds)),
            Curve::pale("L-BFGS on an H100 (paper)", figure::GREEN, theirs(&|row| &row.lbfgs_h100)),
            Curve::pale("CVX to 1e-4 (paper)", figure::RED, theirs(&|row| &row.cvx_1e4)),
        ];
        let mut table = Table::new(&[
            "n",
            "bsr",
            "aof",
            "gap",
            "paper bsr",
            "paper gd",
            "paper l-bfgs",
            "paper cvx 1e-4",
        ]);
        for line in &lines {
            let row = rows.iter().find(|row| row.steps == line.steps);
            let printed = |value: &dyn Fn(&published::RuntimeRow) -> &String| {
                row.map_or(String::new(), |row| value(row).replace('_', " "))
            };
            table.push(vec![
                line.steps.to_string(),
                format!("{:.5}", line.bsr_seconds),
                format!("{:.2}", line.aof_seconds),
                format!("{:.0e}", line.certified_gap),
                printed(&|row| &row.bsr),
                printed(&|row| &row.gd_h100),
                printed(&|row| &row.lbfgs_h100),
                printed(&|row| &row.cvx_1e4),
            ]);
        }
        (log_panel(title(setting), "seconds", curves), table)
    };
    Ok(settings(lines.iter().map(of)).into_iter().map(part).collect())
}

fn log_panel(title: String, y_label: &'static str, curves: Vec<Curve>) -> Panel {
    Panel { title, x_label: "steps n", y_label, y_scale: Scale::Logarithmic, curves }
}
