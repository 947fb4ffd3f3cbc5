//! `bandroot train`: a run, private or not, from a config to a folder that explains itself.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};

mod state;

pub(crate) mod metrics;

mod events;

mod session;

mod summary;

use crate::cli::{ConfigFile, Train};
use crate::config;
use crate::config::privacy::Privacy;
use crate::output::{self, BadArgument};
use crate::plan;
use crate::run_folder::RunFolder;
use session::{Place, Session};
use state::Request;
use summary::Summary;

pub(crate) fn run(arguments: &Train) -> anyhow::Result<()> {
    let (file, folder) = match (&arguments.config, &arguments.resume) {
        (Some(config), None) => {
            let file = ConfigFile { config: config.clone(), set: arguments.set.clone() };
            (file, arguments.out.clone().unwrap_or_else(|| default_folder(config)))
        }
        (None, Some(run)) => {
            (ConfigFile { config: run.join("config.toml"), set: Vec::new() }, run.clone())
        }
        _ => bail!(BadArgument("give a config, or --resume with the folder of a run".into())),
    };
    let config = config::file::read(&file.config, &file.set)?;
    let resumed = arguments.resume.as_deref().map(RunFolder::open).transpose()?;
    if let Some(run) = &resumed
        && let Some(summary) = run.tidy_up()?
    {
        // It had ended; only its secrets were still there, or may have been.
        let summary = String::from_utf8(summary)?;
        let parsed: Summary = serde_json::from_str(&summary)
            .with_context(|| format!("{} is damaged", run.file("summary.json").display()))?;
        return output::print(&if arguments.json { summary } else { parsed.text() });
    }
    // The plan stands before any data is read.
    let request = match config.privacy {
        Privacy::Guaranteed(_) => {
            let plan = plan::from_config(&config, &file, &arguments.aof)?;
            plan::warn_of_delta(&config, &file);
            Request::Private(Box::new(plan), config.optimizer.learning_rate as f32)
        }
        Privacy::None => {
            let request = config.open_request().map_err(|error| plan::bad_config(&file, &error))?;
            Request::Open(request)
        }
    };
    let architecture = config.model.architecture(config.data.name);
    let architecture = architecture.map_err(|error| plan::bad_config(&file, &error))?;
    let engine = config.engine.build(&architecture);
    let engine = engine.map_err(|error| plan::bad_config(&file, &error))?;
    let data = config.load_data()?;
    let place = resumed.map_or_else(|| Place::New(folder), Place::Resumed);
    let session = Session::start(&config, request, &data, (&architecture, engine), place)?;
    session.train(arguments.json)
}

/// `runs/NAME-SECONDS`, with the name of the config and the time.
fn default_folder(config: &Path) -> PathBuf {
    let name = config.file_stem().map_or("run".into(), |stem| stem.to_string_lossy());
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    PathBuf::from("runs").join(format!("{name}-{seconds}"))
}
