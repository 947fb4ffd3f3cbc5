//! The chain of problems, the phases of the last one, and when to ask for a certificate.

use std::ops::ControlFlow;

use super::certificate::lower_bound;
use super::descent::{Descent, Step};
use super::dual::{band_of_dual, gram};
use super::objective::{Columns, Objective};
use super::preconditioner::Preconditioner;
use super::warm_start::{chain, shrink, square_root, stretch};
use super::workload::InverseWorkload;
use super::{Certificate, Options, Progress};
use crate::error::{Error, Result};

/// Full-length steps between two visits to the head.
const PHASE: usize = 10;
/// Rows of the shortest head, in units of the bandwidth: the residual is largest over the first
/// five.
const HEAD: usize = 10;
/// A longer head is this fraction of the problem, if that is at least twice the shortest one.
const LONG_HEAD: usize = 12;
/// Steps per visit to the head; one costs the head's share of a full one.
const HEAD_STEPS: usize = 60;
/// A shorter problem is left once its value falls by less than this fraction over [`LOOSE_STEPS`].
const LOOSE_DECREASE: f64 = 1e-5;
const LOOSE_STEPS: usize = 5;
/// The certified gap has been seen to exceed the predicted decrease by one to three orders of
/// magnitude; asking for a certificate earlier than this wastes it.
const CERTIFICATE_MARGIN: f64 = 50.0;
/// Least steps between two certificates.
const CERTIFICATE_INTERVAL: usize = 5;

/// Counts over all problems of the chain, and the caller's say.
pub(super) struct Session<'p> {
    pub(super) progress: &'p mut dyn FnMut(Progress) -> ControlFlow<()>,
    pub(super) iterations: usize,
    pub(super) evaluations: usize,
    pub(super) cancelled: bool,
}

/// How far to take one problem of the chain.
#[derive(Clone, Copy, PartialEq)]
enum Goal {
    Loose,
    Certified,
}

/// Solves the problem, through shorter ones unless a start is given.
pub(super) fn solve_chain(
    inverse: &InverseWorkload,
    bands: usize,
    options: &Options,
    start: Option<Columns>,
    session: &mut Session,
) -> Result<(Columns, Certificate)> {
    let n = inverse.steps();
    let mut warm = start.map(|columns| stretch(&columns, bands, n));
    if warm.is_none() {
        let lengths = chain(n, bands);
        for &length in &lengths[..lengths.len() - 1] {
            let short = shrink(inverse, bands, length);
            let from = match warm {
                Some(columns) => stretch(&columns, bands, length),
                None => square_root(&short, bands),
            };
            let (columns, _) = minimize(&short, bands, options, from, Goal::Loose, session)?;
            warm = Some(columns);
        }
    }
    let from = match warm {
        Some(columns) => stretch(&columns, bands, n),
        None => square_root(inverse, bands),
    };
    minimize(inverse, bands, options, from, Goal::Certified, session)
}

/// Refreshes at 0, 5, 15, 35, ... steps: often while the factor still moves, rarely later.
fn next_refresh(iteration: usize) -> usize {
    2 * iteration + 5
}

fn precondition(descent: &Descent, bands: usize) -> Preconditioner {
    let dual = band_of_dual(descent.factor(), descent.derivative(), bands);
    let gram = gram(descent.factor(), bands);
    let output = descent.objective().output_gram();
    Preconditioner::new(bands, &dual, &gram, &output, descent.objective().stride())
}

fn minimize(
    inverse: &InverseWorkload,
    bands: usize,
    options: &Options,
    start: Columns,
    goal: Goal,
    session: &mut Session,
) -> Result<(Columns, Certificate)> {
    let n = inverse.steps();
    let mut descent =
        Descent::new(Objective::new(inverse, bands), bands, n, start, options.history);
    if !descent.value().is_finite() {
        return Err(Error::Overflow { steps: n });
    }
    // The gap is asked of the root of f, hence twice it of f.
    let allowed = 2.0 * options.relative_gap;
    let mut preconditioner = precondition(&descent, bands);
    let mut refresh = next_refresh(0);
    let mut values = vec![descent.value()];
    let mut lower: f64 = 0.0;
    let mut certified_at = None;
    let mut iteration = 0;
    loop {
        let mut stalled = iteration >= options.max_iterations || session.cancelled;
        let mut predicted = f64::INFINITY;
        if !stalled {
            match descent.step(&preconditioner) {
                Step::Moved { predicted: decrease } => predicted = decrease,
                Step::Stalled => stalled = true,
            }
            iteration += 1;
            values.push(descent.value());
        }
        if !stalled && goal == Goal::Certified && iteration % PHASE == 0 {
            for rows in heads(n, bands) {
                session.evaluations +=
                    polish_head(&mut descent, inverse, bands, rows, options, &preconditioner);
            }
        }
        let due = predicted * CERTIFICATE_MARGIN < allowed
            && certified_at.is_none_or(|at| iteration >= at + CERTIFICATE_INTERVAL.max(at / 8));
        if goal == Goal::Certified && (stalled || due) && certified_at != Some(iteration) {
            let target = if stalled { 0.0 } else { (1.0 - allowed) * descent.value() };
            let bound = lower_bound(
                inverse,
                descent.factor(),
                descent.derivative(),
                descent.value(),
                bands,
                target,
            );
            lower = lower.max(bound.unwrap_or(0.0));
            certified_at = Some(iteration);
        }
        let relative_gap = relative_gap(descent.value(), lower);
        let certified_gap = (lower > 0.0).then_some(relative_gap);
        let report = Progress { iteration, steps: n, objective: descent.value(), certified_gap };
        session.cancelled |= (session.progress)(report).is_break();
        let converged = goal == Goal::Certified && relative_gap <= options.relative_gap;
        let settled = goal == Goal::Loose
            && iteration >= LOOSE_STEPS
            && values[iteration - LOOSE_STEPS] - descent.value() < LOOSE_DECREASE * descent.value();
        if converged || settled || stalled {
            session.iterations += iteration;
            session.evaluations += descent.evaluations();
            let certificate = Certificate {
                objective: descent.value(),
                lower_bound: lower,
                relative_gap,
                iterations: session.iterations,
                evaluations: session.evaluations,
                converged,
            };
            return Ok((descent.into_factor(), certificate));
        }
        if iteration == refresh {
            preconditioner = precondition(&descent, bands);
            descent.forget_scale();
            refresh = next_refresh(iteration);
        }
    }
}

/// `(E - E_lower)/E` for `E proportional to sqrt(f)`.
pub(in crate::factorization) fn relative_gap(value: f64, lower: f64) -> f64 {
    (1.0 - (lower / value).max(0.0).sqrt()).max(0.0)
}

/// Lengths of the heads visited for `n` steps, shortest first.
fn heads(n: usize, bands: usize) -> impl Iterator<Item = usize> {
    let short = HEAD * bands;
    let long = n / LONG_HEAD;
    [(short, n >= 2 * short), (long, long >= 2 * short)]
        .into_iter()
        .filter(|(_, wanted)| *wanted)
        .map(|(rows, _)| rows)
}

/// Descends in the leading columns alone, the rest of the sequence entering through its fixed
/// cost-to-go.
///
/// Convergence of the full problem is slowest there, and a step costs only the head's share of a
/// full one. Returns the number of evaluations of the head.
fn polish_head(
    descent: &mut Descent,
    inverse: &InverseWorkload,
    bands: usize,
    rows: usize,
    options: &Options,
    preconditioner: &Preconditioner,
) -> usize {
    let allowed = 2.0 * options.relative_gap;
    let free = rows + 1 - bands;
    let short = InverseWorkload { columns: inverse.columns[..rows].to_vec(), reach: inverse.reach };
    let objective = Objective::head(&short, bands, descent.objective().cost_to_go(rows));
    let start = descent.factor()[..rows * bands].to_vec();
    let mut head = Descent::new(objective, bands, free, start, options.history);
    for _ in 0..HEAD_STEPS {
        match head.step(preconditioner) {
            Step::Moved { predicted } if predicted * 1e3 * CERTIFICATE_MARGIN > allowed => {}
            _ => break,
        }
    }
    descent.replace_head(&head.factor()[..free * bands]);
    head.evaluations()
}
