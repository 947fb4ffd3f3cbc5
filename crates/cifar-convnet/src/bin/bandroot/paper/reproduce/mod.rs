//! `bandroot reproduce`: the paper's tables and figures, computed here and set beside it.

mod errors;
mod optimum;
mod runtimes;
mod accuracy;
mod trials;
mod tuned;
mod cost;
mod frontier;

use crate::cli::Reproduce;

/// Runs one of the commands.
pub(crate) fn run(command: &Reproduce) -> anyhow::Result<()> {
    match command {
        Reproduce::Errors(arguments) => errors::run(arguments),
        Reproduce::Runtimes(arguments) => runtimes::run(arguments),
        Reproduce::Accuracy(arguments) => accuracy::run(arguments),
        Reproduce::Frontier(arguments) => frontier::run(arguments),
    }
}
