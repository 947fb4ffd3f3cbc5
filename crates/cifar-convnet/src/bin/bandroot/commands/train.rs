//! `bandroot train`: a run, private or not, from a config to a folder that explains itself.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use cifar_convnet::experiment::Experiment;
use cifar_convnet::run::folder::{self, RunFolder};
use cifar_convnet::run::memory;
use cifar_convnet::run::session::{Ending, Place, Progress, Session};
use cifar_convnet::run::summary::Summary;
use cifar_convnet::{BadArgument, config, files};
use indicatif::ProgressBar;

use super::plan;
use crate::cli::{ConfigFile, Train};
use crate::interruption;
use crate::terminal::output::{self, Stopped};
use crate::terminal::progress;

pub(crate) fn run(arguments: &Train) -> anyhow::Result<()> {
    if arguments.resume.is_some() {
        interruption::end_at_once();
    }
    let (file, folder) = match (&arguments.config, &arguments.resume) {
        (Some(config), None) => {
            let file = ConfigFile { config: config.clone(), set: arguments.set.clone() };
            (file, arguments.out.clone().unwrap_or_else(|| default_folder(config)))
        }
        (None, Some(run)) => {
            (ConfigFile { config: run.join(folder::CONFIG), set: Vec::new() }, run.clone())
        }
        _ => bail!(BadArgument("give a config, or --resume with the folder of a run".into())),
    };
    let config = config::file::read(&file.config, &file.set)?;
    let resumed = arguments.resume.as_deref().map(RunFolder::open).transpose()?;
    if let Some(run) = &resumed
        && let Some(summary) = run.tidy_up()?
    {
        // It had ended; only its secrets were still there, or may have been.
        let summary: Summary = serde_json::from_slice(&summary)
            .with_context(|| format!("{} is damaged", run.file(folder::SUMMARY).display()))?;
        return print(&summary, arguments.json);
    }
    // The plan stands before any data is read.
    let refuse = |error: &dyn std::fmt::Display| plan::bad_config(&file, error);
    let experiment = progress::solving(&arguments.aof, |solver| {
        Ok(Experiment::new(config, solver).map_err(|error| refuse(&error))?)
    })?;
    plan::warn_of_delta(&experiment.config, &file);
    let engine = experiment.config.engine.build(&experiment.architecture);
    let engine = engine.map_err(|error| refuse(&error))?;
    let data = experiment.config.load_data()?;
    let place = resumed.map_or_else(|| Place::New(folder.clone()), Place::Resumed);
    let session = Session::start(&experiment, &data, engine, place)?;

    // Not before: until the first step there is nothing to keep that is not on the disk, and planning would not look at the
    // flag.
    let stop = interruption::flag();
    let shown = Shown::new(&experiment, session.steps_taken(), arguments.json);
    let mut last = None;
    let ending = session.train(&stop, |progress| shown.step(progress, &mut last))?;
    shown.bar.finish_and_clear();
    match ending {
        Ending::Finished(summary) => {
            print(&summary, arguments.json)?;
            if arguments.json { Ok(()) } else { output::print(&next_commands(&file, &summary)) }
        }
        Ending::Stopped { step, steps } => bail!(Stopped(format!(
            "stopped after {step} of {steps} steps; to go on: bandroot train --resume {}",
            folder.display()
        ))),
    }
}

/// What is seen of a run under way: a bar on a terminal, else a line for every epoch.
struct Shown {
    bar: ProgressBar,
    epochs: usize,
    judged_by: &'static str,
    lines: bool,
}

impl Shown {
    fn new(experiment: &Experiment, taken: usize, json: bool) -> Self {
        let bar = progress::training_bar(experiment.steps.total as u64, taken as u64);
        let lines = bar.is_hidden() && !json;
        let judged_by = if experiment.config.data.holds_out() { "validation" } else { "test" };
        Self { bar, epochs: experiment.config.training.epochs, judged_by, lines }
    }

    fn step(&self, progress: &Progress, last: &mut Option<usize>) {
        self.bar.set_position(progress.step as u64);
        let text = progress::describe_training(progress, self.judged_by);
        // Accuracy is known once the epoch is over, if it was evaluated.
        let ended = last.replace(progress.epoch).filter(|&epoch| epoch < progress.epoch);
        let ended = ended.filter(|_| ended == progress.evaluated);
        if let (true, Some(epoch), Some(accuracy)) = (self.lines, ended, progress.accuracy) {
            let (epochs, judged_by) = (self.epochs, self.judged_by);
            eprintln!("epoch {epoch} of {epochs}: {:.1} % on {judged_by}", 100.0 * accuracy);
        }
        self.bar.set_message(text);
    }
}

fn print(summary: &Summary, json: bool) -> anyhow::Result<()> {
    output::print(&if json { files::json(summary)? } else { text(summary) })
}

/// What a run reached and claims, and what that means.
fn text(summary: &Summary) -> String {
    let mut text = String::new();
    if let Some(accuracy) = summary.test_accuracy {
        let percent = 100.0 * accuracy;
        text += &format!("test accuracy  {percent:.2} % of examples that were not trained on\n");
    }
    if let Some(accuracy) = summary.validation_accuracy {
        let percent = 100.0 * accuracy;
        text += &format!(
            "validation     {percent:.2} % of held-out training examples, which is not private\n"
        );
    }
    if let Some(accuracy) = summary.last_iterate_accuracy() {
        let percent = 100.0 * accuracy;
        text +=
            &format!("last iterate   {percent:.2} %; the result is the average of the iterates\n");
    }
    let statement = summary.statement.as_deref().unwrap_or("no statement");
    text += &format!("privacy        {statement}\n");
    if let Some(epsilon) = summary.epsilon.filter(|_| summary.private) {
        text += &format!(
            "meaning        an outcome is at most e^{epsilon} times as likely on one neighbour as on the other, up to \
             delta\n"
        );
    }
    if let Some(speed) = summary.examples_per_second {
        text += &format!("speed          {speed:.0} examples/s\n");
        text += &format!("peak memory    {}\n", memory::describe(summary.peak_memory_bytes));
    }
    text + &format!("run folder     {}\n", summary.run.display())
}

/// What to try after a run.
fn next_commands(file: &ConfigFile, summary: &Summary) -> String {
    let (config, run) = (file.config.display(), summary.run.display());
    let mut commands = Vec::new();
    if summary.epsilon.is_some() {
        commands.push((
            format!("bandroot plan {config}"),
            "what was promised before any data was read",
        ));
        commands
            .push((format!("bandroot verify {run}"), "whether the claim follows from its numbers"));
    }
    let runs = summary.run.parent().filter(|parent| !parent.as_os_str().is_empty());
    let runs = runs.unwrap_or(Path::new("."));
    let report = format!("bandroot report --results {}", runs.display());
    commands.push((report, "all runs there as one web page"));
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let lines = commands.iter().map(|(command, what)| format!("  {command:width$}  {what}\n"));
    format!("\nnext:\n{}", lines.collect::<String>())
}

/// `runs/NAME-SECONDS`, with the name of the config and the time.
fn default_folder(config: &Path) -> PathBuf {
    let name = config.file_stem().map_or("run".into(), |stem| stem.to_string_lossy());
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    PathBuf::from("runs").join(format!("{name}-{seconds}"))
}
