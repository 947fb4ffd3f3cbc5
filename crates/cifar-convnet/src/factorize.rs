//! `bandroot factorize`: one factorization, its sensitivity, its errors and what theory says of them.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use mf_core::sensitivity::{self, Sensitivity};
use mf_core::{Factorization, Loss, Method, Participation, Sgd, Strategy, Workload, bounds};
use serde::Serialize;

use crate::cli::{Factorize, MethodName};
use crate::output::{self, BadArgument};

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
    sensitivity: f64,
    sensitivity_exact: bool,
    sensitivity_method: sensitivity::Method,
    #[serde(flatten)]
    loss: Loss,
    bounds: Vec<Bound>,
    seconds: f64,
}

/// What a theorem says of the expected error.
#[derive(Debug, Serialize)]
struct Bound {
    theorem: u8,
    kind: &'static str,
    value: f64,
}

pub(crate) fn run(arguments: &Factorize) -> anyhow::Result<()> {
    let sgd = Sgd::new(arguments.alpha, arguments.beta)?;
    let workload = workload(arguments, sgd)?;
    let participation = participation(arguments)?;
    let method = method(arguments, &participation)?;
    let start = Instant::now();
    let factorization = Factorization::new(workload, method)?;
    let sensitivity = factorization.sensitivity(&participation)?;
    let loss = factorization
        .decoder_norms()?
        .loss(&sensitivity, arguments.steps);
    let seconds = start.elapsed().as_secs_f64();
    if let Some(path) = &arguments.csv {
        output::write_file(path, strategy_csv(factorization.strategy())?.as_bytes())?;
    }
    let report = Report {
        method: method.to_string(),
        alpha: arguments.alpha,
        beta: arguments.beta,
        steps: arguments.steps,
        bands: factorization.strategy().bands(),
        separation: participation.min_separation(),
        participations: participation.max_participations(),
        sensitivity: sensitivity.value,
        sensitivity_exact: sensitivity.exact,
        sensitivity_method: sensitivity.method,
        loss,
        bounds: theorems(&factorization, &participation),
        seconds,
    };
    if arguments.json {
        output::print(&serde_json::to_string_pretty(&report)?)
    } else {
        output::print(&text(&report, &sensitivity))
    }
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
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
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
    let (method, only) = match arguments.method {
        MethodName::Bsr => {
            let bands = arguments.bands.unwrap_or(participation.min_separation());
            return Ok(Method::Bsr { bands });
        }
        MethodName::Sqrt => (Method::SquareRoot, arguments.steps),
        MethodName::Identity => (Method::Identity, 1),
        MethodName::Input => (Method::Input, arguments.steps),
    };
    match arguments.bands {
        Some(bands) if bands > arguments.steps || bands == 0 => Err(mf_core::Error::Bands {
            bands,
            steps: arguments.steps,
        }
        .into()),
        Some(bands) if bands != only => Err(BadArgument(format!(
            "method {method} has {only} bands, not {bands}: leave --bands out, or use method bsr"
        ))
        .into()),
        _ => Ok(method),
    }
}

/// The bounds that apply to this method and pattern; none for a schedule, which no theorem covers.
fn theorems(factorization: &Factorization, participation: &Participation) -> Vec<Bound> {
    let Some(sgd) = factorization.workload().as_toeplitz() else {
        return Vec::new();
    };
    let steps = participation.steps();
    let single = participation.max_participations() == 1;
    let (lower, upper, leading) = ("lower", "upper", "leading term");
    let bound = |theorem, kind, value| Bound {
        theorem,
        kind,
        value,
    };
    let any = if single { 4 } else { 8 };
    let mut found = vec![bound(
        any,
        lower,
        bounds::any_factorization_lower(sgd, participation),
    )];
    match factorization.method() {
        Method::SquareRoot if single => {
            let interval = bounds::square_root_single(sgd, steps);
            found.push(bound(3, lower, interval.lower));
            found.push(bound(3, upper, interval.upper));
        }
        Method::SquareRoot => {
            if let Some(interval) = bounds::square_root_repeated(sgd, participation) {
                found.push(bound(7, lower, interval.lower));
                found.push(bound(7, upper, interval.upper));
            }
        }
        Method::Bsr { bands } if bands <= participation.min_separation() => {
            found.push(bound(
                6,
                leading,
                bounds::bsr_leading_term(sgd, bands, participation),
            ));
        }
        Method::Identity => {
            found.push(bound(9, lower, bounds::identity_lower(sgd, participation)));
            if single {
                found.push(bound(5, upper, bounds::identity_single_upper(sgd, steps)));
            }
        }
        Method::Input => {
            found.push(bound(9, lower, bounds::input_lower(sgd, participation)));
            if single {
                found.push(bound(5, upper, bounds::input_single_upper(sgd, steps)));
            }
        }
        _ => {}
    }
    found
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

fn text(report: &Report, sensitivity: &Sensitivity) -> String {
    let kind = if sensitivity.exact {
        "exact"
    } else {
        "upper bound"
    };
    let mut lines = vec![
        ("method", report.method.clone()),
        (
            "workload",
            format!("alpha {}, beta {}", report.alpha, report.beta),
        ),
        ("steps n", report.steps.to_string()),
        ("bands p", report.bands.to_string()),
        ("separation b", report.separation.to_string()),
        ("participations k", report.participations.to_string()),
        ("sensitivity", format!("{:.6} ({kind})", report.sensitivity)),
        (
            "expected error",
            format!("{:.6}", report.loss.expected_error),
        ),
        ("maximum error", format!("{:.6}", report.loss.max_error)),
        ("final error", format!("{:.6}", report.loss.final_error)),
    ];
    for bound in &report.bounds {
        lines.push((
            "  bound",
            format!(
                "{:.6} ({}, Theorem {})",
                bound.value, bound.kind, bound.theorem
            ),
        ));
    }
    lines.push(("seconds", format!("{:.6}", report.seconds)));
    lines
        .iter()
        .map(|(name, value)| format!("{name:<18}{value}\n"))
        .collect()
}
