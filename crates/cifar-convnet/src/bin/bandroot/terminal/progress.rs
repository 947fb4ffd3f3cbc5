//! Progress and warnings on the terminal.

use std::path::PathBuf;

use cifar_convnet::BadArgument;
use cifar_convnet::factorizations::Solver;
use cifar_convnet::run::session;
use indicatif::{ProgressBar, ProgressStyle};
use mf_core::factorization::aof::{Options, Progress};
use mf_core::factorization::cache::Cache;

use crate::cli::{Aof, AofCache};

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

/// Runs `work` with a solver that has the cache of the arguments and shows its iterations under a spinner.
pub(crate) fn solving<T>(
    arguments: &AofCache,
    work: impl FnOnce(&mut Solver<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let spinner = ProgressBar::new_spinner();
    let mut show = |progress: &Progress| {
        spinner.set_message(describe(progress));
        spinner.tick();
    };
    let solved = work(&mut Solver::new(cache(arguments)?, &mut show));
    spinner.finish_and_clear();
    solved
}

/// How far a run has got, behind its bar.
pub(crate) fn describe_training(progress: &session::Progress, judged_by: &str) -> String {
    let session::Progress { epoch, examples_per_second, accuracy, .. } = progress;
    let speed = examples_per_second.map(|speed| format!(", {speed:.0} examples/s"));
    let accuracy = accuracy.map(|share| format!(", {:.1} % on {judged_by}", 100.0 * share));
    format!("epoch {epoch}{}{}", speed.unwrap_or_default(), accuracy.unwrap_or_default())
}

/// Prints what the library warns of to standard error.
pub(crate) fn show_warnings() {
    // Only one logger can be set, and this is the only place that sets one.
    if log::set_logger(&Warnings).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

struct Warnings;

impl log::Log for Warnings {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("cifar_convnet")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let word = if record.level() == log::Level::Warn { "warning: " } else { "" };
            eprintln!("bandroot: {word}{}", record.args());
        }
    }

    fn flush(&self) {}
}
