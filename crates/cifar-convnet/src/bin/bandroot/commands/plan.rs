//! `bandroot plan` and `bandroot compare`: what a config promises, before any data is read.

use dp_train::comparison::{self, Comparison};
use dp_train::plan::{DpPlan, PlanRequest, Sampling, StrategyFor};
use mf_core::Method;
use serde::Serialize;

use crate::cli::{AofCache, Compare, ConfigFile, Plan};
use crate::terminal::output;
use crate::terminal::progress;
use cifar_convnet::BadArgument;
use cifar_convnet::config::privacy::{Guarantee, Privacy};
use cifar_convnet::config::{self, Config};
use cifar_convnet::files;

pub(crate) fn run(arguments: &Plan) -> anyhow::Result<()> {
    let file = &arguments.config;
    let config = config::file::read(&file.config, &file.set)?;
    let plan = from_config(&config, file, &arguments.aof)?;
    warn(&config, file);
    if arguments.json {
        return output::print(&files::json(plan.record())?);
    }
    output::print(&plan.to_string())
}

/// The plan of a config file; the optimum of aof comes from the cache if it is there.
pub(crate) fn from_file(file: &ConfigFile, cache: &AofCache) -> anyhow::Result<DpPlan> {
    from_config(&config::file::read(&file.config, &file.set)?, file, cache)
}

/// The plan of a config that was read.
pub(crate) fn from_config(
    config: &Config,
    file: &ConfigFile,
    cache: &AofCache,
) -> anyhow::Result<DpPlan> {
    let request = request(config, file)?;
    progress::solving(cache, |solver| {
        Ok(solver.plan(request).map_err(|error| bad_config(file, &error))?)
    })
}

/// Says of a config what makes its epsilon promise less than it seems to.
pub(crate) fn warn(config: &Config, file: &ConfigFile) {
    warn_of_delta(config, file);
    if let Some(seed) = config.privacy.noise_seed() {
        eprintln!(
            "bandroot: warning: {}: privacy.noise_seed = {seed} stands in place of a secret key, so the noise can be \
             subtracted: such a run is reproducible, not private, whatever its epsilon",
            file.config.display()
        );
    }
}

/// Says if delta is so large that it allows an example to be published: whoever picks one of `N` at random and
/// shows it is (0, 1/N)-differentially private.
pub(crate) fn warn_of_delta(config: &Config, file: &ConfigFile) {
    if let (Privacy::Guaranteed(Guarantee { delta, .. }), Ok(examples)) =
        (&config.privacy, config.data.training_examples())
        && *delta >= 1.0 / examples as f64
    {
        eprintln!(
            "bandroot: warning: {}: privacy.delta = {delta:e} is not below 1 / {examples}, one in the number of \
             training examples: that much would allow to publish one of them",
            file.config.display()
        );
    }
}

/// A refusal that names the config.
pub(crate) fn bad_config(file: &ConfigFile, error: &dyn std::fmt::Display) -> BadArgument {
    BadArgument(format!("{}: {error}", file.config.display()))
}

fn request(config: &Config, file: &ConfigFile) -> anyhow::Result<PlanRequest> {
    Ok(config.plan_request().map_err(|error| bad_config(file, &error))?)
}

/// What `compare --json` prints of one factorization.
#[derive(Debug, Serialize)]
struct CompareRow {
    method: String,
    /// Bands or buffers, as the method was given them.
    size: Option<usize>,
    strategy_for: StrategyFor,
    bands: usize,
    history_rows: u64,
    sensitivity: f64,
    sensitivity_exact: bool,
    expected_error: f64,
    final_error: f64,
    /// The noise over what the same sensitivity needs without secret batches; both errors have it as a factor.
    amplified: f64,
    history_bytes: u64,
    plan_seconds: f64,
    best: bool,
}

pub(crate) fn compare(arguments: &Compare) -> anyhow::Result<()> {
    let file = &arguments.config;
    let config = config::file::read(&file.config, &file.set)?;
    let mut request = request(&config, file)?;
    if !config::file::says(
        &config::file::read_table(&file.config, &file.set)?,
        "noise",
        "strategy_for",
    ) {
        // What is usual for its own method; some of the others know constant rates only.
        request.strategy_for = StrategyFor::ConstantRate;
    }
    // On cyclic Poisson batches the separation is the number of bands, which the contenders differ in.
    let widest = match request.sampling {
        Sampling::CyclicPoisson => config.steps()?.per_epoch,
        _ => request.min_separation,
    };
    let mut methods = comparison::usual_methods(request.steps, widest);
    methods.push(Method::Aof { bands: request.min_separation, tolerance: config.tolerance() });
    if !methods.contains(&request.method) {
        methods.push(request.method);
    }
    let limit = arguments.memory_limit.map(|mebibytes| mebibytes << 20);
    let compared = progress::solving(&arguments.aof, |solver| {
        let compared = Comparison::new(&request, &methods, limit, |request| solver.plan(request));
        Ok(compared.map_err(|error| bad_config(file, &error))?)
    })?;
    if !arguments.json {
        return output::print(&compared.to_string());
    }
    let best = compared.best();
    let rows: Vec<CompareRow> = compared
        .contenders
        .iter()
        .map(|contender| CompareRow {
            method: contender.method.to_string(),
            size: contender.method.size(),
            strategy_for: contender.strategy_for,
            bands: contender.bands,
            history_rows: contender.history_rows,
            sensitivity: contender.sensitivity.value,
            sensitivity_exact: contender.sensitivity.exact,
            expected_error: contender.expected_error,
            final_error: contender.final_error,
            amplified: contender.amplified,
            history_bytes: contender.history_bytes,
            plan_seconds: contender.plan_seconds,
            best: best == Some(contender),
        })
        .collect();
    output::print(&files::json(&rows)?)
}
