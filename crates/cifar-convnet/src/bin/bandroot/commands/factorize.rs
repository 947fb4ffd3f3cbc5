//! `bandroot factorize`: one factorization, its sensitivity, its errors and what theory says of them.

mod output;
mod request;

use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::bail;
use mf_core::bounds::{self, Bound};
use mf_core::factorization::aof::{self, Certificate, DENSE_LIMIT};
use mf_core::sensitivity::{self, Sensitivity};
use mf_core::{Factorization, Loss, Method, Participation, Sgd, Workload};

use self::output::{FactorizeOutput, Optimum, strategy_csv, text};
use self::request::{method, participation, workload};
use crate::cli::Factorize;
use crate::terminal::{output as terminal, progress};
use cifar_convnet::files;

/// A factorization measured, or only the value of one that is too large to form.
struct Measured {
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
    let report = FactorizeOutput {
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
        terminal::print(&files::json(&report)?)?;
    } else {
        terminal::print(&text(&report))?;
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
) -> anyhow::Result<Measured> {
    let (factorization, cached) = match method {
        Method::Aof { bands, .. } => {
            let options = progress::aof_options(&arguments.aof);
            let solved = progress::solving(&arguments.aof.cache, |solver| {
                Ok(solver.aof(workload, bands, &options)?)
            })?;
            (solved.factorization, solved.found)
        }
        _ => (Factorization::for_participation(workload, method, participation)?, false),
    };
    if let Some(path) = &arguments.csv {
        files::write(path, strategy_csv(factorization.strategy())?.as_bytes())?;
    }
    let sensitivity = factorization.sensitivity(participation)?;
    let loss = factorization.decoder_norms()?.loss(&sensitivity, arguments.steps);
    Ok(Measured {
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
) -> anyhow::Result<Measured> {
    let inverse = workload.inverse().ok_or(mf_core::Error::NotSgd { method: "aof" })?;
    let options = progress::aof_options(&arguments.aof);
    let mut go_on = |_| ControlFlow::Continue(());
    let certificate = aof::solve_single(&inverse, &options, &mut go_on)?.certificate;
    let lower = workload.as_constant_sgd().map(|sgd| Bound {
        theorem: 4,
        kind: "lower",
        value: bounds::any_factorization_lower(sgd, participation),
    });
    Ok(Measured {
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
