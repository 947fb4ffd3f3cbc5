//! Progress on the terminal, and the cache of what took long.

use std::ops::ControlFlow;
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use mf_core::factorization::aof::{Options, Progress};
use mf_core::factorization::cache::Cache;
use mf_core::{Factorization, Workload};

use crate::cli::{Aof, AofCache};
use crate::output::BadArgument;

/// A bar that counts `len` pieces of work and says what it is at. Hidden where standard error is not a
/// terminal.
pub(crate) fn bar(len: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed:>4} {wide_bar} {pos}/{len} {msg:>54}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style)
}

/// A bar for the steps of a run that has taken some already, with the time that is left.
pub(crate) fn training_bar(steps: u64, taken: u64) -> ProgressBar {
    let template = "{elapsed:>4} {wide_bar} {pos}/{len} {msg}, {eta} left";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(steps).with_style(style).with_position(taken);
    // What was done before this session says nothing about the time that is left.
    bar.reset_eta();
    bar
}

/// A bar for many runs, which says itself how long they will take.
pub(crate) fn sweep_bar(len: u64, title: &str) -> ProgressBar {
    let template = format!("{{elapsed:>4}} {title} {{wide_bar}} {{msg}}");
    let style =
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style)
}

/// One line for an iteration of the solver.
pub(crate) fn describe(progress: &Progress) -> String {
    let gap = progress.certified_gap.map_or("none yet".to_owned(), |gap| format!("{gap:.1e}"));
    let Progress { iteration, steps, objective, .. } = progress;
    let error = (objective / *steps as f64).sqrt();
    format!("aof n {steps} iteration {iteration} error {error:.4} gap {gap}")
}

/// The options of the solver that the arguments ask for.
pub(crate) fn aof_options(arguments: &Aof) -> Options {
    Options {
        relative_gap: arguments.tolerance,
        max_iterations: arguments.max_iterations,
        ..Options::default()
    }
}

/// The cache that the arguments ask for: none, a folder, or the user's.
///
/// # Errors
/// If no folder is given and the environment names none.
pub(crate) fn cache(arguments: &AofCache) -> anyhow::Result<Option<Cache>> {
    if arguments.no_cache {
        return Ok(None);
    }
    let named =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = arguments
        .cache
        .clone()
        .or_else(|| named("BANDROOT_CACHE"))
        .or_else(|| named("XDG_CACHE_HOME").map(|folder| folder.join("bandroot")))
        .or_else(|| named("HOME").map(|home| home.join(".cache/bandroot")));
    match folder {
        Some(folder) => Ok(Some(Cache::new(folder))),
        None => Err(BadArgument(
            "no folder for solved factorizations: give --cache DIR, set BANDROOT_CACHE, or use --no-cache"
                .into(),
        )
        .into()),
    }
}

/// The approximately optimal factorization, found in the cache or solved under a spinner; and whether it
/// was found.
pub(crate) fn solve_aof(
    workload: Workload,
    bands: usize,
    options: &Options,
    arguments: &AofCache,
) -> anyhow::Result<(Factorization, bool)> {
    let spinner = ProgressBar::new_spinner();
    let mut show = |progress: Progress| {
        spinner.set_message(describe(&progress));
        spinner.tick();
        ControlFlow::Continue(())
    };
    let solved = match cache(arguments)? {
        None => (Factorization::aof(workload, bands, options, &mut show)?, false),
        Some(cache) => {
            let cached = cache.aof(workload, bands, options, &mut show)?;
            if let Some(warning) = cached.warning {
                spinner.suspend(|| eprintln!("bandroot: warning: {warning}"));
            }
            (cached.factorization, cached.found)
        }
    };
    spinner.finish_and_clear();
    Ok(solved)
}
