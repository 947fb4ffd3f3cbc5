//! The batch script of the workers, for sbatch and for people.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;

use super::Workers;
use crate::terminal::output::STOPPED;
use cifar_convnet::BadArgument;

/// The script of `tasks` workers that run `program`.
pub(super) fn text(
    workers: &Workers<'_>,
    notes: &Path,
    program: &Path,
    tasks: usize,
) -> anyhow::Result<String> {
    let here = std::env::current_dir().context("the folder that this was called in")?;
    let logs = std::path::absolute(notes)?;
    let name = workers.folder.file_name().map_or("sweep".into(), |name| name.to_string_lossy());
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let slurm = workers.slurm;
    let mut options = vec![
        format!("--job-name=bandroot-{name}"),
        format!("--array=1-{tasks}"),
        "--nodes=1".to_owned(),
        "--ntasks=1".to_owned(),
        format!("--cpus-per-task={}", slurm.cpus),
    ];
    options.extend(slurm.named().map(|(_, option, value)| format!("{option}={value}")));
    options.extend([
        format!("--signal=B:USR1@{}", slurm.warning(time_of_environment().as_deref()).as_secs()),
        "--requeue".to_owned(),
        "--open-mode=append".to_owned(),
        format!("--chdir={}", in_option(&here)?),
        format!("--output={}/%A_%a.log", in_pattern(&logs)?),
    ]);
    options.extend(slurm.options.iter().cloned());
    let options: String = options.iter().map(|option| format!("#SBATCH {option}\n")).collect();
    let setup: String = slurm.setup.iter().map(|line| format!("{line}\n")).collect();
    let command = format!("{} {}", in_shell(program)?, worker_arguments()?);
    let restarts = slurm.restarts;
    Ok(format!(
        r#"#!/bin/bash
# Workers of the sweep in {folder}, written by bandroot. Each takes runs that are missing until there are none.
{options}
# Ahead of the time limit Slurm sends USR1 to this shell, and to nobody else. scancel and preemption send TERM to the
# worker too. In both cases it writes a checkpoint and ends with {STOPPED}; only after USR1 this task goes back to the queue.
at_limit=no
stopped=no
worker=
trap 'at_limit=yes; [ -z "$worker" ] || kill -USR1 "$worker"' USR1
trap 'stopped=yes; [ -z "$worker" ] || kill -TERM "$worker"' TERM

{setup}# Whatever these lines chose: the end of the worker is looked at below.
set +eu

if [ "$at_limit" = yes ]; then
    code={STOPPED}
elif [ "$stopped" = yes ]; then
    echo "stopped before the worker began"
    exit {STOPPED}
else
    echo "worker ${{SLURM_ARRAY_TASK_ID:-}} on ${{SLURMD_NODENAME:-$(hostname)}}, restart ${{SLURM_RESTART_COUNT:-0}}, $(date '+%F %T')"
    {command} &
    worker=$!
    # What came while it was being started.
    [ "$at_limit" = no ] || kill -USR1 "$worker"
    [ "$stopped" = no ] || kill -TERM "$worker"
    # A trapped signal ends wait, but not the worker.
    wait "$worker"; code=$?
    while kill -0 "$worker" 2>/dev/null; do wait "$worker"; code=$?; done
    worker=
fi

if [ "$at_limit" = yes ] && [ "$code" -ge {STOPPED} ]; then
    if [ "${{SLURM_RESTART_COUNT:-0}}" -ge {restarts} ]; then
        echo "at the time limit, after {restarts} restarts (slurm.restarts): submit the sweep again to go on"
    else
        echo "at the time limit: back to the queue"
        scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" ||
            echo "the cluster did not take it back: submit the sweep again to go on"
    fi
fi
exit "$code"
"#,
        folder = workers.folder.display().to_string().replace(['\n', '\r'], " "),
    ))
}

/// The words of this command, as a worker is to run it: without what only concerns the submission.
fn worker_arguments() -> anyhow::Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    arguments(Some(now))
}

/// The words of this command without what only concerns the submission or what is run: with a question added, what to type to
/// have it answered.
pub(crate) fn question_arguments() -> anyhow::Result<String> {
    arguments(None)
}

fn arguments(retry_before: Option<f64>) -> anyhow::Result<String> {
    let mut given = Vec::new();
    for argument in std::env::args_os().skip(1) {
        let text = argument.into_string().map_err(|argument| {
            BadArgument(format!(
                "{}: --launch needs arguments in UTF-8",
                argument.to_string_lossy()
            ))
        })?;
        given.push(text);
    }
    let words: Vec<String> =
        of_worker(given, retry_before).iter().map(|word| quote(word)).collect();
    Ok(words.join(" "))
}

/// A failure is tried again if it is from before the submission: workers that start later would try it once more each,
/// and each is one more trial.
fn of_worker(given: Vec<String>, retry_before: Option<f64>) -> Vec<String> {
    let mut words = Vec::new();
    let mut given = given.into_iter();
    while let Some(word) = given.next() {
        match word.as_str() {
            "--launch" | "--slurm" => drop(given.next()),
            "--dry-run" | "--more" | "--json" => {}
            "--retry-failed" => {
                words.extend(retry_before.map(|time| format!("--retry-failed-before={time}")));
            }
            word if word.starts_with("--launch=") || word.starts_with("--slurm=") => {}
            _ => words.push(word),
        }
    }
    words
}

/// The time limit that sbatch takes in place of that in the script.
fn time_of_environment() -> Option<String> {
    std::env::var("SBATCH_TIMELIMIT").ok()
}

fn in_shell(path: &Path) -> anyhow::Result<String> {
    let text = path
        .to_str()
        .ok_or_else(|| BadArgument(format!("{}: --launch needs paths in UTF-8", path.display())))?;
    Ok(quote(text))
}

/// A word as the shell reads it back.
pub(crate) fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A path in the name of a log, in which a percent sign begins the number of the job and the like.
fn in_pattern(path: &Path) -> anyhow::Result<String> {
    Ok(in_option(path)?.replace('%', "%%"))
}

/// A path in a line of options, which sbatch reads by rules of its own.
fn in_option(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().filter(|text| {
        !text.chars().any(|c| c.is_whitespace() || c.is_control() || "'\"\\#".contains(c))
    });
    text.map(str::to_owned).ok_or_else(|| {
        let shown = path.display();
        BadArgument(format!("{shown}: --launch slurm needs paths without spaces and quotes")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_runs_the_same_command_without_what_submits_it() {
        let of = |line: &str, retry_before| {
            of_worker(line.split(' ').map(str::to_owned).collect(), retry_before).join(" ")
        };
        let words = |line: &str| of(line, Some(7.0));
        assert_eq!(words("sweep a.toml --launch slurm --out b --more"), "sweep a.toml --out b");
        assert_eq!(
            words("sweep --launch=slurm a.toml --dry-run --jobs 2 --json"),
            "sweep a.toml --jobs 2"
        );
        assert_eq!(
            words("reproduce accuracy --slurm s.toml --launch slurm --retry-failed --seeds 0,1"),
            "reproduce accuracy --retry-failed-before=7 --seeds 0,1"
        );
        assert_eq!(
            of("reproduce accuracy --retry-failed --launch slurm", None),
            "reproduce accuracy"
        );
    }

    #[test]
    fn words_survive_the_shell() {
        assert_eq!((quote("a/b-1.toml"), quote("")), ("a/b-1.toml".to_owned(), "''".to_owned()));
        assert_eq!(quote("it's $HOME"), r"'it'\''s $HOME'");
        assert!(in_option(Path::new("/a b")).is_err() && in_option(Path::new("/a/b")).is_ok());
        assert_eq!(in_pattern(Path::new("/50%j/a")).unwrap(), "/50%%j/a");
    }
}
