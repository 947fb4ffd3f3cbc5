//! `--launch slurm`: one array of workers on a cluster, each of which is the same command without `--launch`.
//!
//! What belongs to it is in `.sweep/slurm` of the sweep's folder: the script, the program as it was when it was submitted,
//! the jobs, and the logs of the workers. What of the sweep is done is nowhere but in the run folders.

mod program;
pub(super) mod queue;
mod script;
mod submission;

use std::fs::{self, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::terminal::output;
use cifar_convnet::config::slurm::Slurm;
use cifar_convnet::{BadArgument, config, files};
use queue::Jobs;
pub(crate) use script::{question_arguments, quote};

/// What is to be submitted.
#[derive(Debug)]
pub(crate) struct Workers<'a> {
    /// The folder of the sweep, which they share.
    pub(crate) folder: &'a Path,
    /// What they ask for.
    pub(crate) slurm: &'a Slurm,
    /// The file that says so, for messages.
    pub(crate) written_in: &'a Path,
    /// How many runs are missing, as far as that is known.
    pub(crate) missing: usize,
    /// Whether to submit although there are workers in the queue.
    pub(crate) more: bool,
    /// What to type to see how the sweep stands.
    pub(crate) question: String,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Submitted<'a> {
    /// None if nothing is missing, or nothing is to be submitted.
    job: Option<&'a str>,
    tasks: usize,
    missing: usize,
    folder: &'a Path,
    script: Option<PathBuf>,
    /// What is in it, if it is only to be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// The table `[slurm]` of a file that holds nothing else.
///
/// # Errors
/// The file and the key are named.
pub(crate) fn read(path: &Path) -> anyhow::Result<Slurm> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Written {
        slurm: Slurm,
    }
    let text =
        fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
    let written: Written = toml::from_str(&text).map_err(|error| {
        let line = config::file::line_of(&text, error.span());
        BadArgument(format!("{}, line {line}: {}", path.display(), error.message()))
    })?;
    let refuse = |what| BadArgument(format!("{}: {what}", path.display()));
    written.slurm.check().map_err(refuse)?;
    Ok(written.slurm)
}

/// The script of the workers, among their files.
const SCRIPT: &str = "workers.sh";

/// Where the files of the workers are.
fn notes(folder: &Path) -> PathBuf {
    folder.join(".sweep").join("slurm")
}

impl Workers<'_> {
    /// The script and what it is for, with nothing submitted and nothing written.
    pub(crate) fn show(&self, json: bool) -> anyhow::Result<()> {
        submission::refuse_clusters()?;
        let program = program::place(&notes(self.folder))?;
        let script = self.script(&program)?;
        if json {
            return self.print_json(None, None, Some(script));
        }
        output::print(&format!("{script}\n{}", self.describe()))
    }

    /// Submits them, and says what to type next.
    ///
    /// # Errors
    /// If there are workers in the queue already, there is no Slurm, or it refuses.
    pub(crate) fn submit(&self, json: bool) -> anyhow::Result<()> {
        if self.missing == 0 {
            return match json {
                true => self.print_json(None, None, None),
                false => output::print(&self.describe()),
            };
        }
        submission::find("sbatch")?;
        submission::refuse_clusters()?;
        let notes = notes(self.folder);
        // Before the folder is made: what no script can be made of leaves nothing behind.
        self.script(&program::place(&notes)?)?;
        files::create_closed_folder(self.folder)?;
        files::create_closed_folder(&self.folder.join(".sweep"))?;
        files::create_closed_folder(&notes)?;
        let _lock = alone(&notes)?;
        let jobs = Jobs::of(self.folder)?;
        if !self.more {
            self.refuse_twice(&jobs)?;
        }
        let program = program::pin(&notes)?;
        let path = notes.join(SCRIPT);
        files::write_secret(&path, self.script(&program)?.as_bytes())?;
        // Its whole path is how the queue tells that it is ours.
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        let job = submission::sbatch(&path, self.slurm, self.written_in)?;
        jobs.add(&job)?;
        if json {
            return self.print_json(Some(&job), Some(path), None);
        }
        output::print(&format!(
            "submitted job {job}: {}\n\nnext:\n  {}  how it stands\n  squeue --job {job}  what the cluster says\n  \
             tail -f {}/{job}_*.log  what the workers say\n  scancel {job}  stops them; checkpoints are kept, and the same command \
             goes on\n",
            self.describe(),
            self.question,
            quote(&notes.display().to_string())
        ))
    }

    fn print_json(
        &self,
        job: Option<&str>,
        script: Option<PathBuf>,
        text: Option<String>,
    ) -> anyhow::Result<()> {
        let tasks = if job.is_some() || text.is_some() { self.tasks() } else { 0 };
        let (missing, folder) = (self.missing, self.folder);
        output::print(&files::json(&Submitted { job, tasks, missing, folder, script, text })?)
    }

    fn script(&self, program: &Path) -> anyhow::Result<String> {
        script::text(self, &notes(self.folder), program, self.tasks())
    }

    /// No more workers than runs.
    fn tasks(&self) -> usize {
        self.slurm.tasks.min(self.missing.max(1))
    }

    fn describe(&self) -> String {
        let folder = self.folder.display();
        match self.missing {
            0 => format!("nothing is missing in {folder}: there is nothing to submit"),
            missing => format!("{} workers for {missing} missing runs in {folder}", self.tasks()),
        }
    }

    fn refuse_twice(&self, jobs: &Jobs) -> anyhow::Result<()> {
        let waiting = jobs.in_queue()?;
        ensure!(
            waiting.is_empty(),
            BadArgument(format!(
                "job {} works on {} already, see {}; --more submits more workers all the same, and scancel {} ends \
                 those",
                waiting.join(" and job "),
                self.folder.display(),
                self.question,
                waiting.join(" ")
            ))
        );
        Ok(())
    }
}

/// A lock against a second submission at the same moment.
fn alone(notes: &Path) -> anyhow::Result<fs::File> {
    let path = notes.join("submission.lock");
    let context = || format!("could not lock {}", path.display());
    let lock = OpenOptions::new().create(true).append(true).open(&path).with_context(context)?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => bail!("another process is submitting this sweep"),
        Err(TryLockError::Error(error)) if !files::has_no_locks(&error) => {
            return Err(error).with_context(context);
        }
        _ => {}
    }
    Ok(lock)
}
