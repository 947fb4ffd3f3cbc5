//! `bandroot train`: a run, private or not, from a config to a folder that explains itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use cifar_convnet::experiment::Experiment;
use cifar_convnet::run::folder::{self, RunFolder};
use cifar_convnet::run::session::{Ending, Place, Session};
use cifar_convnet::run::summary::Summary;
use cifar_convnet::{BadArgument, config, files};

use super::plan;
use crate::cli::{ConfigFile, Train};
use crate::terminal::{output, progress};

pub(crate) fn run(arguments: &Train) -> anyhow::Result<()> {
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

    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    // A second handler in one process is refused; the first one stays, which is as good.
    drop(ctrlc::set_handler(move || seen.store(true, Ordering::SeqCst)));
    let judged_by = if experiment.config.data.holds_out() { "validation" } else { "test" };
    let bar = progress::training_bar(experiment.steps.total as u64, session.steps_taken() as u64);
    let ending = session.train(&stop, |progress| {
        bar.set_position(progress.step as u64);
        bar.set_message(progress::describe_training(progress, judged_by));
    })?;
    bar.finish_and_clear();
    match ending {
        Ending::Finished(summary) => print(&summary, arguments.json),
        Ending::Stopped { step, steps } => output::print(&format!(
            "stopped after {step} of {steps} steps; to go on: bandroot train --resume {}",
            folder.display()
        )),
    }
}

fn print(summary: &Summary, json: bool) -> anyhow::Result<()> {
    output::print(&if json { files::json(summary)? } else { summary.text() })
}

/// `runs/NAME-SECONDS`, with the name of the config and the time.
fn default_folder(config: &Path) -> PathBuf {
    let name = config.file_stem().map_or("run".into(), |stem| stem.to_string_lossy());
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    PathBuf::from("runs").join(format!("{name}-{seconds}"))
}
