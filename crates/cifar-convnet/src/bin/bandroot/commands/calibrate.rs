//! `bandroot calibrate`: from (epsilon, delta) to the noise and back, for every sampling that has an accountant.

use anyhow::{Context, ensure};
use dp_train::Neighbouring;
use dp_train::accounting::gram::Gram;
use dp_train::accounting::poisson::Poisson;
use dp_train::accounting::{AccountingError, Directions, verified};
use dp_train::calibration::{self, CalibrationError};
use dp_train::plan::Sampling;
use mf_core::{Factorization, Participation, Sgd, Workload};
use serde::Serialize;

use crate::cli::Calibrate;
use crate::terminal::output;
use cifar_convnet::BadArgument;
use cifar_convnet::factorizations::Choice;
use cifar_convnet::files;

/// What `--json` prints of a multiplier.
#[derive(Debug, Serialize)]
struct Multiplier {
    noise_multiplier: f64,
    epsilon: f64,
    delta: f64,
    /// Where the two directions differ: the epsilon of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon_remove: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon_add: Option<f64>,
}

/// What `--json` prints of noise for secret batches, at clip norm 1.
#[derive(Debug, Serialize)]
struct Slots {
    /// Verified by sampling, or the deterministic one if that is as good.
    noise_std: f64,
    /// By the bound without sampling.
    deterministic_noise_std: f64,
    /// In a fixed order.
    unamplified_noise_std: f64,
    epsilon: f64,
    delta: f64,
    /// Upper bounds of delta at `noise_std`.
    upper_remove: f64,
    upper_add: f64,
    /// Samples that verified it; none where the bound without sampling was as good.
    samples: u64,
    /// The probability that the samples deceive, which is part of delta.
    failure: f64,
}

pub(crate) fn run(arguments: &Calibrate) -> anyhow::Result<()> {
    refuse_unused(arguments)?;
    match arguments.sampling {
        Sampling::FixedOrder => fixed_order(arguments),
        Sampling::BallsInBins => balls_in_bins(arguments),
        Sampling::Poisson | Sampling::CyclicPoisson => poisson(arguments),
    }
}

fn bad(error: AccountingError) -> BadArgument {
    BadArgument(error.to_string())
}

/// What a sampling has no use for would be taken for part of the answer.
fn refuse_unused(arguments: &Calibrate) -> Result<(), BadArgument> {
    let Calibrate { probability, steps, method, bands, separation, sampling, .. } = arguments;
    let given = [
        ("probability", probability.is_some(), &[Sampling::Poisson, Sampling::CyclicPoisson][..]),
        ("bands", bands.is_some(), &[Sampling::BallsInBins, Sampling::CyclicPoisson]),
        ("method", method.is_some(), &[Sampling::BallsInBins]),
        ("separation", separation.is_some(), &[Sampling::BallsInBins]),
        (
            "steps",
            steps.is_some(),
            &[Sampling::BallsInBins, Sampling::Poisson, Sampling::CyclicPoisson],
        ),
    ];
    match given.iter().find(|(_, is_given, users)| *is_given && !users.contains(sampling)) {
        Some((name, ..)) => Err(BadArgument(format!(
            "--{name} has no use for {sampling}: leave it out, or give another --sampling"
        ))),
        None => Ok(()),
    }
}

/// An argument that a sampling needs.
fn needed<T>(value: Option<T>, name: &str, what: &str) -> Result<T, BadArgument> {
    value.ok_or_else(|| BadArgument(format!("this sampling needs --{name}, {what}")))
}

fn fixed_order(arguments: &Calibrate) -> anyhow::Result<()> {
    let delta = arguments.delta;
    let bad = |error: CalibrationError| BadArgument(error.to_string());
    let (epsilon, noise_multiplier) = match (arguments.epsilon, arguments.noise_multiplier) {
        (Some(epsilon), None) => (epsilon, calibration::multiplier(epsilon, delta).map_err(bad)?),
        (None, Some(multiplier)) => {
            (calibration::epsilon(multiplier, delta).map_err(bad)?, multiplier)
        }
        _ => return Err(BadArgument("give --epsilon or --noise-multiplier".into()).into()),
    };
    let (epsilon_remove, epsilon_add) = (None, None);
    show(arguments, &Multiplier { noise_multiplier, epsilon, delta, epsilon_remove, epsilon_add })
}

/// Poisson batches; cyclic ones are the same with fewer rounds.
fn poisson(arguments: &Calibrate) -> anyhow::Result<()> {
    let probability =
        needed(arguments.probability, "probability", "that of a step for an example")?;
    let steps = needed(arguments.steps, "steps", "their number")?;
    let groups = match arguments.sampling {
        Sampling::CyclicPoisson => {
            let bands = needed(arguments.bands, "bands", "the diagonals of C")?;
            ensure!(bands > 0, BadArgument("--bands must be at least 1".into()));
            bands
        }
        _ => 1,
    };
    let rounds = steps.div_ceil(groups) as u64;
    let delta = arguments.delta;
    let account = Poisson::new(Neighbouring::ZeroOut, probability, rounds).map_err(bad)?;
    let noise_multiplier = match (arguments.epsilon, arguments.noise_multiplier) {
        (Some(epsilon), None) => account.multiplier(epsilon, delta).map_err(bad)?,
        (None, Some(multiplier)) => multiplier,
        _ => return Err(BadArgument("give --epsilon or --noise-multiplier".into()).into()),
    };
    let found = account.epsilon(noise_multiplier, delta).map_err(bad)?;
    let epsilon = arguments.epsilon.unwrap_or(found.worst());
    // The noise was found such that both directions have the epsilon asked for at delta. Searched for again, it may come out
    // above by the last digits of a grid: both are bounds, and the lesser holds.
    let Directions { remove, add } = found;
    let (epsilon_remove, epsilon_add) = (Some(remove.min(epsilon)), Some(add.min(epsilon)));
    show(arguments, &Multiplier { noise_multiplier, epsilon, delta, epsilon_remove, epsilon_add })
}

fn show(arguments: &Calibrate, report: &Multiplier) -> anyhow::Result<()> {
    if arguments.json {
        return output::print(&files::json(report)?);
    }
    let mut text = format!(
        "noise multiplier  {}\nepsilon           {}\ndelta             {:e}\n",
        report.noise_multiplier, report.epsilon, report.delta
    );
    if let (Some(remove), Some(add)) = (report.epsilon_remove, report.epsilon_add) {
        text += &format!("remove, add       {remove}, {add}\n");
    }
    output::print(&text)
}

fn balls_in_bins(arguments: &Calibrate) -> anyhow::Result<()> {
    let Some(epsilon) = arguments.epsilon else {
        return Err(BadArgument("balls-in-bins needs --epsilon".into()).into());
    };
    let delta = arguments.delta;
    let name = needed(arguments.method, "method", "how C is chosen")?;
    let steps = needed(arguments.steps, "steps", "their number")?;
    let separation = needed(arguments.separation, "separation", "the steps of one epoch")?;
    let participation = Participation::new(steps, separation, steps.div_ceil(separation.max(1)))?;
    let choice =
        Choice { name, bands: arguments.bands, lambda: None, buffers: None, tolerance: 1e-4 };
    let method = choice.method(steps, separation);
    let method = method.map_err(|error| BadArgument(error.sentence("--")))?;
    let workload = Workload::sgd(Sgd::new(arguments.alpha, arguments.beta)?, steps)?;
    let factorization = Factorization::for_participation(workload, method, &participation)?;
    let gram = Gram::of(Neighbouring::ZeroOut, factorization.strategy(), &participation);
    let gram = gram.map_err(bad)?;
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)
        .map_err(|error| anyhow::anyhow!("no random bytes to sample with: {error}"))?;
    let found = verified::noise_std(&gram, epsilon, delta, seed, verified::USUAL_SAMPLES);
    let found = found.map_err(bad)?;
    let multiplier = calibration::multiplier(epsilon, delta).context("the unamplified noise")?;
    let certain = found.deterministic.bound.delta;
    let report = Slots {
        noise_std: found.noise_std,
        deterministic_noise_std: found.deterministic.noise_std,
        unamplified_noise_std: multiplier * gram.largest_diagonal().sqrt(),
        epsilon,
        delta,
        upper_remove: found.bound.map_or(certain.remove, |bound| bound.remove.upper),
        upper_add: found.bound.map_or(certain.add, |bound| bound.add.upper),
        samples: found.bound.map_or(0, |bound| bound.samples),
        failure: found.failure,
    };
    if arguments.json {
        return output::print(&files::json(&report)?);
    }
    output::print(&format!(
        "noise std, verified       {}\nnoise std, deterministic  {}\nnoise std, fixed order    {}\n\
         epsilon                   {epsilon}\ndelta                     {delta:e}\n\
         delta at most             {:e} (remove), {:e} (add), by {} samples that deceive with probability {:e}\n",
        report.noise_std,
        report.deterministic_noise_std,
        report.unamplified_noise_std,
        report.upper_remove,
        report.upper_add,
        report.samples,
        report.failure
    ))
}
