//! `bandroot`: private training with matrix-factorization noise, from the command line.

mod interruption;
mod terminal;
mod published;
mod cli;
mod fetch;
mod commands;
mod sweep;
mod paper;

#[cfg(test)]
mod fuzz;

use std::process::ExitCode;

use cifar_convnet::{config, machine};
use clap::Parser;

use crate::cli::{Cli, Command};
use crate::commands::{
    audit, bench, calibrate, data, devices, eval, factorize, plan, predict, results, train, verify,
};
use crate::paper::{report, reproduce};
use crate::terminal::{output, progress};

fn main() -> ExitCode {
    sweep::child::live_no_longer_than_the_sweep();
    progress::show_warnings();
    if let Some(threads) = machine::allotted_threads() {
        // Refused only if there were threads already, and nothing has run yet.
        drop(rayon::ThreadPoolBuilder::new().num_threads(threads).build_global());
    }
    let Some(command) = Cli::parse().command else {
        return output::exit_code(output::print(cli::FIRST_STEPS));
    };
    let outcome = match command {
        Command::Factorize(arguments) => factorize::run(&arguments),
        Command::Reproduce(command) => reproduce::run(&command),
        Command::Calibrate(arguments) => calibrate::run(&arguments),
        Command::Train(arguments) => train::run(&arguments),
        Command::Eval(arguments) => eval::run(&arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Results(command) => results::run(&command),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Compare(arguments) => plan::compare(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Audit(arguments) => audit::audit(&arguments),
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Bench(command) => bench::run(&command),
        Command::Data(command) => data::run(&command),
        Command::ConfigReference => output::print(&config::page::reference()),
        Command::Completions { shell } => output::print(&cli::completions(shell)),
    };
    output::exit_code(outcome)
}
