//! `bandroot factorize`: one factorization, its sensitivity, its errors and what theory says of them.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use mf_core::bounds::{self, Bound};
use mf_core::factorization::aof::{self, Certificate, DENSE_LIMIT};
use mf_core::sensitivity::{self, Sensitivity};
use mf_core::{Factorization, Loss, Method, Participation, Sgd, Strategy, Workload};
use serde::Serialize;

use crate::cli::Factorize;
use crate::method::Choice;
use crate::output::{self, BadArgument};
use crate::progress;

/// What `--json` prints, in full precision.
#[derive(Debug, Serialize)]
struct Report {
    method: String,
    alpha: f64,
    beta: f64,
    steps: usize,
    bands: usize,
    separation: usize,
    participations: usize,
    /// Rows of single-precision floats that the noise keeps from step to step.
    noise_rows: usize,
    sensitivity: f64,
    sensitivity_exact: bool,
    sensitivity_method: sensitivity::Method,
    expected_error: f64,
    /// Absent where only the value of the optimum was computed, not its factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    final_error: Option<f64>,
    bounds: Vec<Bound>,
    #[serde(flatten)]
    optimum: Option<Optimum>,
    seconds: f64,
}

/// How close to optimal a factorization by iteration is.
#[derive(Debug, Serialize)]
struct Optimum {
    /// Relative: the expected error is at most this far above the smallest one, with proof.
    certified_gap: f64,
    /// No `C` with unit columns and these bands has a smaller expected error.
    lower_bound: f64,
    iterations: usize,
    tolerance: f64,
    converged: bool,
    /// Whether the solution was found on disk; the seconds are then those of reading it.
    cached: bool,
}

/// A factorization measured, or only the value of one that is too large to form.
struct Outcome {
    bands: usize,
    noise_rows: usize,
    sensitivity: Sensitivity,
    expected_error: f64,
    rows: Option<Loss>,
    bounds: Vec<Bound>,
    certificate: Option<Certificate>,
    cached: bool,
}

pub(crate) fn run(arguments: &Factorize) -> anyhow::Result<()> {
    let sgd = Sgd::new(arguments.alpha, arguments.beta)?;
    let workload = workload(arguments, sgd)?;
    let participation = participation(arguments)?;
    let method = method(arguments, &participation)?;
    let start = Instant::now();
    let is_too_large = |bands: usize| bands == arguments.steps && bands > DENSE_LIMIT;
    let outcome = match method {
        Method::Aof { bands, .. } if is_too_large(bands) && arguments.csv.is_none() => {
            optimal_value(&workload, &participation, arguments)?
        }
        _ => outcome(workload, method, &participation, arguments)?,
    };
    let seconds = start.elapsed().as_secs_f64();
    let report = Report {
        method: method.to_string(),
        alpha: arguments.alpha,
        beta: arguments.beta,
        steps: arguments.steps,
        bands: outcome.bands,
        separation: participation.min_separation(),
        participations: participation.max_participations(),
        noise_rows: outcome.noise_rows,
        sensitivity: outcome.sensitivity.value,
        sensitivity_exact: outcome.sensitivity.exact,
        sensitivity_method: outcome.sensitivity.method,
        expected_error: outcome.expected_error,
        max_error: outcome.rows.map(|loss| loss.max_error),
        final_error: outcome.rows.map(|loss| loss.final_error),
        bounds: outcome.bounds,
        optimum: outcome.certificate.as_ref().map(|certificate| Optimum {
            certified_gap: certificate.relative_gap,
            lower_bound: outcome.expected_error * (1.0 - certificate.relative_gap),
            iterations: certificate.iterations,
            tolerance: arguments.aof.tolerance,
            converged: certificate.converged,
            cached: outcome.cached,
        }),
        seconds,
    };
    if arguments.json {
        output::print(&output::json(&report)?)?;
    } else {
        output::print(&text(&report))?;
    }
    match outcome.certificate {
        Some(certificate) if !certificate.converged => bail!(
            "the certified gap is {:.1e} after {} iterations, not the {:.1e} asked for: the result \
             above is valid but further from the optimum; raise --max-iterations or --tolerance",
            certificate.relative_gap,
            certificate.iterations,
            arguments.aof.tolerance
        ),
        _ => Ok(()),
    }
}

fn outcome(
    workload: Workload,
    method: Method,
    participation: &Participation,
    arguments: &Factorize,
) -> anyhow::Result<Outcome> {
    let (factorization, cached) = match method {
        Method::Aof { bands, .. } => {
            let options = progress::aof_options(&arguments.aof);
            progress::solve_aof(workload, bands, &options, &arguments.aof.cache)?
        }
        _ => (Factorization::for_participation(workload, method, participation)?, false),
    };
    if let Some(path) = &arguments.csv {
        output::write_file(path, strategy_csv(factorization.strategy())?.as_bytes())?;
    }
    let sensitivity = factorization.sensitivity(participation)?;
    let loss = factorization.decoder_norms()?.loss(&sensitivity, arguments.steps);
    Ok(Outcome {
        bands: factorization.strategy().bands(),
        noise_rows: factorization.strategy().noise_rows(),
        sensitivity,
        expected_error: loss.expected_error,
        rows: Some(loss),
        bounds: bounds::of(&factorization, participation),
        certificate: factorization.certificate().cloned(),
        cached,
    })
}

/// The optimum of single participation without its factor, which would be dense: unit columns, so the
/// sensitivity is 1.
fn optimal_value(
    workload: &Workload,
    participation: &Participation,
    arguments: &Factorize,
) -> anyhow::Result<Outcome> {
    let inverse = workload.inverse().ok_or(mf_core::Error::NotSgd { method: "aof" })?;
    let options = progress::aof_options(&arguments.aof);
    let mut go_on = |_| ControlFlow::Continue(());
    let certificate = aof::solve_single(&inverse, &options, &mut go_on)?.certificate;
    let lower = workload.as_constant_sgd().map(|sgd| Bound {
        theorem: 4,
        kind: "lower",
        value: bounds::any_factorization_lower(sgd, participation),
    });
    Ok(Outcome {
        bands: arguments.steps,
        noise_rows: arguments.steps - 1,
        sensitivity: Sensitivity {
            value: 1.0,
            exact: true,
            method: sensitivity::Method::DisjointColumns,
        },
        expected_error: certificate.expected_error(arguments.steps, 1),
        rows: None,
        bounds: lower.into_iter().collect(),
        certificate: Some(certificate),
        cached: false,
    })
}

fn workload(arguments: &Factorize, sgd: Sgd) -> anyhow::Result<Workload> {
    let Some(path) = &arguments.learning_rates else {
        return Ok(Workload::sgd(sgd, arguments.steps)?);
    };
    let rates = learning_rates(path)?;
    ensure!(
        rates.len() == arguments.steps,
        BadArgument(format!(
            "{} has {} learning rates, but --steps is {}: give one per step",
            path.display(),
            rates.len(),
            arguments.steps
        ))
    );
    Workload::scheduled(sgd, rates).with_context(|| path.display().to_string())
}

fn learning_rates(path: &Path) -> anyhow::Result<Vec<f64>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("could not read the learning rates from {}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            line.trim().parse().map_err(|_| {
                let place = format!("{}, line {}", path.display(), number + 1);
                BadArgument(format!("{place}: {:?} is not a number", line.trim())).into()
            })
        })
        .collect()
}

fn participation(arguments: &Factorize) -> anyhow::Result<Participation> {
    let steps = arguments.steps;
    let separation = arguments.separation.unwrap_or(steps);
    let participations = match arguments.participations {
        Some(participations) => participations,
        // Rounding k up or down in silence would be a guarantee for another training.
        None if separation > 0 && !steps.is_multiple_of(separation) => {
            return Err(BadArgument(format!(
                "separation {separation} does not divide {steps} steps: \
                 give --participations, the most uses of one example"
            ))
            .into());
        }
        None => steps.checked_div(separation).unwrap_or(1),
    };
    Ok(Participation::new(steps, separation, participations)?)
}

fn method(arguments: &Factorize, participation: &Participation) -> anyhow::Result<Method> {
    let choice = Choice {
        name: arguments.method,
        bands: arguments.bands,
        lambda: arguments.lambda,
        buffers: arguments.buffers,
        tolerance: arguments.aof.tolerance,
    };
    let method = choice.method(participation.steps(), participation.min_separation());
    Ok(method.map_err(|error| BadArgument(error.sentence("--")))?)
}

fn strategy_csv(strategy: &Strategy) -> anyhow::Result<String> {
    let mut text = String::new();
    if let Some(coefficients) = strategy.as_toeplitz() {
        text += "lag,coefficient\n";
        for (lag, coefficient) in coefficients.iter().enumerate() {
            writeln!(text, "{lag},{coefficient}")?;
        }
        return Ok(text);
    }
    text += "step";
    for lag in 0..strategy.bands() {
        write!(text, ",lag_{lag}")?;
    }
    text += "\n";
    for step in 0..strategy.steps() {
        write!(text, "{step}")?;
        let row = strategy.row(step);
        for lag in 0..strategy.bands() {
            write!(text, ",{}", row.get(lag).unwrap_or(&0.0))?;
        }
        text += "\n";
    }
    Ok(text)
}

fn text(report: &Report) -> String {
    let kind = if report.sensitivity_exact { "exact" } else { "upper bound" };
    let not_formed = || "not computed: C is too large to form".to_owned();
    let number = |value: Option<f64>| value.map_or_else(not_formed, |value| format!("{value:.6}"));
    let mut lines = vec![
        ("method", report.method.clone()),
        ("workload", format!("alpha {}, beta {}", report.alpha, report.beta)),
        ("steps n", report.steps.to_string()),
        ("bands p", report.bands.to_string()),
        ("separation b", report.separation.to_string()),
        ("participations k", report.participations.to_string()),
        ("rows of noise", report.noise_rows.to_string()),
        ("sensitivity", format!("{:.6} ({kind})", report.sensitivity)),
        ("expected error", format!("{:.6}", report.expected_error)),
        ("maximum error", number(report.max_error)),
        ("final error", number(report.final_error)),
    ];
    for Bound { theorem, kind, value } in &report.bounds {
        lines.push(("  bound", format!("{value:.6} ({kind}, Theorem {theorem})")));
    }
    if let Some(optimum) = &report.optimum {
        lines.push(("  optimum", format!("at least {:.6}", optimum.lower_bound)));
        lines.push(("  certified gap", format!("{:.2e}", optimum.certified_gap)));
        lines.push(("  iterations", optimum.iterations.to_string()));
    }
    lines.push(("seconds", format!("{:.6}", report.seconds)));
    lines.iter().map(|(name, value)| format!("{name:<18}{value}\n")).collect()
}
