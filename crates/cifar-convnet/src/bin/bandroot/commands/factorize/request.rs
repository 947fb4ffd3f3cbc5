//! What the arguments of `bandroot factorize` ask for.

use std::path::Path;

use anyhow::{Context, ensure};
use cifar_convnet::BadArgument;
use cifar_convnet::factorizations::Choice;
use mf_core::{Method, Participation, Sgd, Workload};

use crate::cli::Factorize;

/// `A`, with the learning rates of the file if there is one.
pub(super) fn workload(arguments: &Factorize, sgd: Sgd) -> anyhow::Result<Workload> {
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

/// `n`, `b` and `k`.
pub(super) fn participation(arguments: &Factorize) -> anyhow::Result<Participation> {
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

/// How `C` is chosen.
pub(super) fn method(
    arguments: &Factorize,
    participation: &Participation,
) -> anyhow::Result<Method> {
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
