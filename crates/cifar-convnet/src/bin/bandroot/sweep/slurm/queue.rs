//! The jobs of a sweep, and what the queue says of them. One `squeue` answers for all; a job that it does not know is
//! one that has ended, and how a run ended is in the folder of the run.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Serialize;

use super::submission;

/// How long squeue may take: a controller that is busy answers late, one that is gone never.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a command answers, which is ended if it does not.
fn answer(command: &mut Command, patience: Duration) -> anyhow::Result<Output> {
    let pipes = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().context("could not start squeue")?;
    let (stdout, stderr) = (all_of(child.stdout.take()), all_of(child.stderr.take()));
    let end = Instant::now() + patience;
    // The pipes are closed at the end, and read meanwhile so that it never waits for us.
    let read =
        |pipe: Receiver<Vec<u8>>| pipe.recv_timeout(end.saturating_duration_since(Instant::now()));
    if let (Ok(stdout), Ok(stderr)) = (read(stdout), read(stderr)) {
        let status = child.wait().context("could not wait for squeue")?;
        return Ok(Output { status, stdout, stderr });
    }
    // It may have ended just now.
    drop(child.kill());
    drop(child.wait());
    bail!("squeue did not answer within {} s", patience.as_secs())
}

/// Everything that a pipe holds, once it is closed.
fn all_of(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        // A pipe that breaks has said what it has.
        drop(pipe.map(|mut pipe| pipe.read_to_end(&mut all)));
        drop(send.send(all));
    });
    receive
}

/// The jobs that were submitted for a folder.
#[derive(Debug)]
pub(super) struct Jobs {
    path: PathBuf,
    ids: Vec<String>,
    /// The script of the workers; none if there is none.
    script: Option<PathBuf>,
}

impl Jobs {
    /// Those that are written down.
    pub(super) fn of(folder: &Path) -> anyhow::Result<Self> {
        let path = super::notes(folder).join("jobs");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("could not read {}", path.display()))?,
        };
        let script = super::notes(folder).join(super::SCRIPT).canonicalize().ok();
        Ok(Self { path, ids: text.lines().map(str::to_owned).collect(), script })
    }

    /// Writes one more down.
    pub(super) fn add(&self, job: &str) -> anyhow::Result<()> {
        let context = || format!("could not note job {job} in {}", self.path.display());
        let file = OpenOptions::new().create(true).append(true).open(&self.path);
        let mut file = file.with_context(context)?;
        file.write_all(format!("{job}\n").as_bytes()).with_context(context)
    }

    /// Those that are still in the queue.
    ///
    /// # Errors
    /// If the queue cannot be asked: they might be.
    pub(super) fn in_queue(&self) -> anyhow::Result<Vec<String>> {
        let mut found: Vec<String> = self
            .tasks()
            .context("--more submits without asking")?
            .into_iter()
            .map(|task| task.job)
            .collect();
        found.dedup();
        Ok(found)
    }

    fn tasks(&self) -> anyhow::Result<Vec<Task>> {
        if self.ids.is_empty() {
            return Ok(Vec::new());
        }
        // All of the user's: a question for a job that is forgotten is an error.
        let arguments = ["--noheader", "--me", "--all", "--array", "--format=%F|%K|%T|%r|%o"];
        let mut command = Command::new(submission::find("squeue")?);
        // What the user chose to look at, such as one partition, would hide workers.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SQUEUE_") {
                command.env_remove(name);
            }
        }
        // Workers are submitted to this cluster only.
        command.env_remove("SLURM_CLUSTERS");
        let output = answer(command.args(arguments), PATIENCE)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("squeue did not answer: {}", said.trim().lines().last().unwrap_or_default());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let mut tasks: Vec<Task> = text
            .lines()
            .filter_map(Task::parse)
            .filter(|(_, command)| self.is_ours(command))
            .map(|(task, _)| task)
            .collect();
        tasks.retain(|task| self.ids.contains(&task.job));
        tasks.sort();
        Ok(tasks)
    }

    /// Whether a job with this command can be of the sweep. Numbers of jobs begin again with a new cluster: a job with another
    /// script is another job, though it may be of another sweep.
    fn is_ours(&self, command: &str) -> bool {
        let Some(script) = self.script.as_ref().filter(|_| command.starts_with('/')) else {
            return true;
        };
        // By way of a link, or gone since.
        let command = Path::new(command);
        command.canonicalize().as_deref().unwrap_or(command) == script
    }
}

/// A worker in the queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Task {
    job: String,
    task: String,
    state: String,
    reason: String,
}

impl Task {
    /// With the command of its job.
    fn parse(line: &str) -> Option<(Self, String)> {
        let mut parts = line.trim().splitn(5, '|').map(str::to_owned);
        let task = Self {
            job: parts.next()?,
            task: parts.next()?,
            state: parts.next()?,
            reason: parts.next()?,
        };
        Some((task, parts.next().unwrap_or_default()))
    }

    /// What it waits for, in plain words.
    fn explain(&self) -> String {
        let words = match self.reason.as_str() {
            "None" | "" => return String::new(),
            "Priority" => "others are before it",
            "Resources" => "the nodes it needs are busy",
            "BeginTime" => "it was sent back and starts again soon",
            "Dependency" => "another job must end first",
            "JobHeldUser" | "JobHeldAdmin" => "it is held: scontrol release",
            "PartitionTimeLimit" => "slurm.time is more than the partition allows",
            "PartitionDown" | "PartitionInactive" => "the partition is closed",
            "ReqNodeNotAvail" => "its nodes are down or reserved",
            reason if reason.contains("Limit") || reason.contains("Max") => {
                "a limit of the user or group is reached"
            }
            _ => return self.reason.clone(),
        };
        format!("{}: {words}", self.reason)
    }
}

/// What the queue says of the workers of a folder: nothing if none was ever submitted.
pub(crate) fn of(folder: &Path) -> anyhow::Result<Option<Result<Vec<Task>, String>>> {
    let jobs = Jobs::of(folder)?;
    if jobs.ids.is_empty() {
        return Ok(None);
    }
    Ok(Some(jobs.tasks().map_err(|error| format!("{error:#}"))))
}

/// The same in some lines.
pub(crate) fn describe(tasks: &[Task]) -> String {
    if tasks.is_empty() {
        return "queue: no worker of this sweep is in it\n".to_owned();
    }
    let mut text = String::new();
    let key = |task: &Task| (task.job.clone(), task.state.clone(), task.explain());
    let mut sorted: Vec<_> = tasks.iter().map(key).collect();
    sorted.sort();
    for group in sorted.chunk_by(|a, b| a == b) {
        let (job, state, reason) = &group[0];
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        text += &format!(
            "queue: job {job}, {} workers {}{reason}\n",
            group.len(),
            state.to_lowercase()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_the_same_number_with_another_script_is_another_job() {
        let folder = tempfile::tempdir().unwrap();
        let script = |sweep: &str| {
            let notes = super::super::notes(&folder.path().join(sweep));
            fs::create_dir_all(&notes).unwrap();
            fs::write(notes.join("workers.sh"), "").unwrap();
            notes.join("workers.sh").display().to_string()
        };
        let (ours, other) = (script("b|c"), script("other"));
        let jobs = Jobs::of(&folder.path().join("b|c")).unwrap();
        let is_ours = |command: &str| {
            let (task, command) = Task::parse(&format!("7|1|RUNNING|None|{command}")).unwrap();
            assert_eq!((&*task.job, &*task.task), ("7", "1"));
            jobs.is_ours(&command)
        };
        assert!(is_ours(&ours) && is_ours(&ours.replace("/.sweep/", "/./.sweep/")));
        assert!(is_ours("(null)") && is_ours(""), "not known");
        assert!(!is_ours(&other), "of another sweep");
        assert!(!is_ours("/gone/b|c/.sweep/slurm/workers.sh") && !is_ours("/a/other.sh"));
    }

    #[cfg(unix)]
    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let shell = |line: &str, patience| {
            let mut command = Command::new("sh");
            answer(command.args(["-c", line]), Duration::from_millis(patience))
        };
        let said = shell("echo a; echo b >&2; exit 3", 60_000).unwrap();
        assert_eq!(
            (&said.stdout[..], &said.stderr[..], said.status.code()),
            (&b"a\n"[..], &b"b\n"[..], Some(3))
        );
        let start = Instant::now();
        assert!(shell("sleep 60; true", 200).unwrap_err().to_string().contains("did not answer"));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn the_queue_is_summed_up_in_words() {
        let lines = [
            "7|1|RUNNING|None",
            "7|2|PENDING|Priority",
            "7|3|PENDING|Priority",
            "9|1|PENDING|QOSMaxCpuPerUserLimit",
        ];
        let tasks: Vec<Task> = lines.iter().filter_map(|line| Some(Task::parse(line)?.0)).collect();
        assert_eq!(
            describe(&tasks),
            "queue: job 7, 2 workers pending (Priority: others are before it)\nqueue: job 7, 1 workers running\n\
             queue: job 9, 1 workers pending (QOSMaxCpuPerUserLimit: a limit of the user or group is reached)\n"
        );
        assert!(describe(&[]).contains("no worker") && Task::parse("nonsense").is_none());
    }
}
