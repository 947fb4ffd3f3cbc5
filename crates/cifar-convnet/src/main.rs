//! `bandroot`: private training with matrix-factorization noise, from the command line.

mod cli;

mod config;

mod calibrate;

mod method;

mod factorize;

mod plan;

mod train;

mod evaluation;

mod eval;

mod parameters;

mod memory;

mod run_folder;

mod sweep;

mod verify;

mod audit;

mod bench;

mod dataset;

mod data;

mod paper;

mod reproduce;

mod report;

mod results;

mod progress;

mod table;

mod figure;

mod environment;

mod output;

#[cfg(test)]
mod fuzz;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, Reproduce};

fn main() -> ExitCode {
    sweep::child::live_no_longer_than_the_sweep();
    let outcome = match Cli::parse().command {
        Command::Factorize(arguments) => factorize::run(&arguments),
        Command::Reproduce(Reproduce::Errors(arguments)) => reproduce::errors::run(&arguments),
        Command::Reproduce(Reproduce::Runtimes(arguments)) => reproduce::runtimes::run(&arguments),
        Command::Reproduce(Reproduce::Accuracy(arguments)) => reproduce::accuracy::run(&arguments),
        Command::Reproduce(Reproduce::Frontier(arguments)) => reproduce::frontier::run(&arguments),
        Command::Calibrate(arguments) => calibrate::run(&arguments),
        Command::Train(arguments) => train::run(&arguments),
        Command::Eval(arguments) => eval::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Results(command) => results::run(&command),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Compare(arguments) => plan::compare(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Audit(arguments) => audit::audit(&arguments),
        Command::Bench(command) => bench::run(&command),
        Command::Data(command) => data::run(&command),
        Command::ConfigReference => output::print(&config::page::reference()),
        Command::Completions { shell } => cli::print_completions(shell),
    };
    output::exit_code(outcome)
}
