//! The aof column of the error tables: the certified optimum beside what the paper's solvers reached.

use std::ops::ControlFlow;
use std::time::Instant;

use mf_core::factorization::aof::{self, Certificate};
use mf_core::{Factorization, Workload};
use serde::Serialize;

use crate::cli::Aof;
use crate::published::{self, ErrorRow, Regime};
use crate::terminal::progress;
use cifar_convnet::factorizations::Solver;

/// The optimum of one row.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct OptimumCell {
    participation: Regime,
    alpha: f64,
    beta: f64,
    steps: usize,
    separation: usize,
    participations: usize,
    /// Of a factorization that was found: the optimum is at most this.
    pub(crate) expected_error: f64,
    /// The optimum is at least this.
    pub(crate) lower_bound: f64,
    /// Relative distance of the two.
    pub(crate) certified_gap: f64,
    iterations: usize,
    converged: bool,
    /// As printed, one decimal.
    pub(crate) paper: f64,
}

impl OptimumCell {
    /// Whether our factorization is as good as the printed digit allows, or better.
    fn is_at_or_below_print(&self) -> bool {
        self.expected_error <= self.paper + published::PRINTED
    }
}

/// What `--json` prints of the column.
#[derive(Debug, Serialize)]
pub(crate) struct OptimumAgreement<'a> {
    cells: usize,
    /// Cells where ours is at or below the paper's printed value.
    at_or_below_printed: usize,
    /// Cells where even the lower bound on the optimum is above the printed value: the paper's number would
    /// be impossible.
    impossible_in_print: usize,
    /// Cells whose gap reached the tolerance.
    converged: usize,
    tolerance: f64,
    largest_certified_gap: f64,
    rows: &'a [OptimumCell],
}

impl<'a> OptimumAgreement<'a> {
    pub(crate) fn of(rows: &'a [OptimumCell], tolerance: f64) -> Self {
        let count =
            |test: &dyn Fn(&OptimumCell) -> bool| rows.iter().filter(|row| test(row)).count();
        let above_print = |row: &OptimumCell| row.lower_bound > row.paper + published::PRINTED;
        Self {
            cells: rows.len(),
            at_or_below_printed: count(&OptimumCell::is_at_or_below_print),
            impossible_in_print: count(&above_print),
            converged: count(&|row| row.converged),
            tolerance,
            largest_certified_gap: rows.iter().map(|row| row.certified_gap).fold(0.0, f64::max),
            rows,
        }
    }

    /// The closing line under the table.
    pub(crate) fn to_text(&self) -> String {
        let Self {
            cells, at_or_below_printed, converged, tolerance, largest_certified_gap, ..
        } = self;
        let below =
            self.rows.iter().filter(|row| row.expected_error < row.paper - published::PRINTED);
        format!(
            "{cells} aof cells: {at_or_below_printed} at or below the printed value ({} below its last \
             digit), {converged} certified to {tolerance:.0e}, largest gap {largest_certified_gap:.1e}\n",
            below.count()
        )
    }
}

/// Solves every row. Repeated participation goes through the cache; single participation takes
/// milliseconds, because the value needs no factor.
pub(crate) fn solve(rows: &[ErrorRow], arguments: &Aof) -> anyhow::Result<Vec<OptimumCell>> {
    let cache = progress::cache(&arguments.cache)?;
    let options = progress::aof_options(arguments);
    let bar = progress::bar(rows.len() as u64);
    let start = Instant::now();
    let cells = rows
        .iter()
        .map(|row| {
            let workload = Workload::sgd(row.sgd()?, row.steps)?;
            let mut show = |progress: &aof::Progress| {
                bar.set_message(progress::describe(progress));
            };
            let certificate = match row.regime {
                Regime::Single => {
                    let inverse =
                        workload.inverse().ok_or(mf_core::Error::NotSgd { method: "aof" })?;
                    let mut show = |progress: aof::Progress| {
                        show(&progress);
                        ControlFlow::Continue(())
                    };
                    aof::solve_single(&inverse, &options, &mut show)?.certificate
                }
                Regime::Repeated => {
                    let mut solver = Solver::new(cache.clone(), &mut show);
                    certificate(&solver.aof(workload, row.separation, &options)?.factorization)?
                }
            };
            bar.inc(1);
            let expected_error = certificate.expected_error(row.steps, row.participations);
            Ok(OptimumCell {
                participation: row.regime,
                alpha: row.alpha,
                beta: row.beta,
                steps: row.steps,
                separation: row.separation,
                participations: row.participations,
                expected_error,
                lower_bound: expected_error * (1.0 - certificate.relative_gap),
                certified_gap: certificate.relative_gap,
                iterations: certificate.iterations,
                converged: certificate.converged,
                paper: row.aof,
            })
        })
        .collect();
    bar.finish_and_clear();
    eprintln!("aof column: {:.1} s", start.elapsed().as_secs_f64());
    cells
}

fn certificate(factorization: &Factorization) -> anyhow::Result<Certificate> {
    let certificate = factorization.certificate().cloned();
    certificate.ok_or_else(|| anyhow::anyhow!("the solver returned no certificate"))
}
