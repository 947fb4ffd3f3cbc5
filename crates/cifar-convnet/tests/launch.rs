//! `--launch slurm` with programs in place of sbatch, squeue and scontrol, which say what no cluster for tests can be made to
//! say. On a real Slurm: `slurm.rs`.

#![cfg(target_os = "linux")]

mod shell;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use shell::sweeps::{runs, tiny};

/// A folder with a sweep, and with programs that stand for those of Slurm.
struct Site {
    folder: tempfile::TempDir,
    sweep: PathBuf,
}

impl Site {
    fn new(slurm: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sweep = tiny(folder.path(), &format!("[slurm]\n{slurm}\n"));
        fs::create_dir(folder.path().join("bin")).unwrap();
        let site = Self { folder, sweep };
        site.program("sbatch", "echo 42");
        site.program("squeue", "exit 0");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str, lines: &str) {
        program(&self.path("bin").join(name), lines);
    }

    /// The command in the folder, with the site's programs.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        command.args(arguments).current_dir(self.folder.path());
        command
    }

    fn sweep(&self, arguments: &[&str]) -> Command {
        let program = assert_cmd::cargo::cargo_bin!("bandroot").to_str().unwrap();
        let mut command = self.command(program, &["sweep"]);
        command.arg(&self.sweep).args(arguments);
        command
    }

    fn launch(&self, arguments: &[&str]) -> Output {
        self.sweep(arguments).args(["--launch", "slurm"]).output().unwrap()
    }

    /// The script that would be submitted.
    fn script(&self, arguments: &[&str]) -> String {
        let output = self.launch(&[arguments, &["--dry-run"]].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// A program in the language of the shell.
fn program(path: &Path, lines: &str) {
    fs::write(path, format!("#!/bin/bash\n{lines}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_end_of_a_worker_is_seen_whatever_the_setup_lines_choose() {
    for (restarts, scontrol, words, requeued) in [
        ("0", "exit 0", "back to the queue", true),
        ("2", "exit 0", "after 2 restarts", false),
        ("0", "exit 1", "the cluster did not take it back", true),
    ] {
        let site = Site::new("restarts = 2\nsetup = ['set -euo pipefail']");
        let script = site.script(&["--out", "out"]);
        let line = script.lines().find(|line| line.ends_with(" &")).unwrap();
        let worker = line.split_once(" sweep ").unwrap().0.trim();
        fs::create_dir_all(Path::new(worker).parent().unwrap()).unwrap();
        let begun = site.path("begun");
        program(
            Path::new(worker),
            &format!(
                "trap 'exit 75' USR1\ntouch {}\nwhile :; do sleep 0.05; done",
                begun.display()
            ),
        );
        site.program("scontrol", &format!("echo \"$@\" >>requeued\n{scontrol}"));
        fs::write(site.path("script"), script).unwrap();
        let mut command = site.command("bash", &["script"]);
        command.env("SLURM_ARRAY_JOB_ID", "7").env("SLURM_ARRAY_TASK_ID", "3");
        command.env("SLURM_RESTART_COUNT", restarts).stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        let start = Instant::now();
        while !begun.exists() {
            assert!(start.elapsed() < Duration::from_secs(30), "the worker did not begin");
            sleep(Duration::from_millis(20));
        }
        sleep(Duration::from_millis(100));
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-USR1", &pid]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(75), "{text}");
        assert!(text.contains(words), "{text}");
        let asked = fs::read_to_string(site.path("requeued")).unwrap_or_default();
        assert_eq!(asked, if requeued { "requeue 7_3\n" } else { "" });
    }
}

#[test]
fn a_signal_during_the_setup_lines_ends_in_75_and_no_worker_begins() {
    for (signal, words, requeued) in
        [("-USR1", "back to the queue", true), ("-TERM", "stopped before the worker began", false)]
    {
        let lines = "setup = ['touch setting-up', 'while [ ! -e go ]; do sleep 0.05; done']";
        let site = Site::new(lines);
        let script = site.script(&["--out", "out"]);
        let line = script.lines().find(|line| line.ends_with(" &")).unwrap();
        let worker = Path::new(line.split_once(" sweep ").unwrap().0.trim());
        fs::create_dir_all(worker.parent().unwrap()).unwrap();
        program(worker, "touch begun");
        site.program("scontrol", "echo \"$@\" >>requeued");
        fs::write(site.path("script"), script).unwrap();
        let mut command = site.command("bash", &["script"]);
        command.env("SLURM_ARRAY_JOB_ID", "7").env("SLURM_ARRAY_TASK_ID", "3");
        let child =
            command.env_remove("SLURM_RESTART_COUNT").stdout(Stdio::piped()).spawn().unwrap();
        let start = Instant::now();
        while !site.path("setting-up").exists() {
            assert!(start.elapsed() < Duration::from_secs(30), "the lines did not begin");
            sleep(Duration::from_millis(20));
        }
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        sleep(Duration::from_millis(100));
        fs::write(site.path("go"), "").unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(75), "{signal}: {text}");
        assert!(text.contains(words) && !site.path("begun").exists(), "{signal}: {text}");
        let asked = fs::read_to_string(site.path("requeued")).unwrap_or_default();
        assert_eq!(asked, if requeued { "requeue 7_3\n" } else { "" });
    }
}

#[test]
fn a_request_without_an_answer_may_have_arrived() {
    let site = Site::new("");
    let why = "Batch job submission failed: Socket timed out on send/recv operation";
    site.program("sbatch", &format!("echo 'sbatch: error: {why}' >&2; exit 1"));
    let output = site.launch(&["--out", "out"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = said(&output);
    assert!(said.contains("may exist") && said.contains("squeue --me"), "{said}");
    assert!(!said.contains("refused") && said.contains("Socket timed out"), "{said}");
}

#[test]
fn workers_go_to_the_cluster_that_is_asked_about_them() {
    let site = Site::new("");
    for variable in ["SBATCH_CLUSTERS", "SLURM_CLUSTERS"] {
        let mut command = site.sweep(&["--out", "out", "--launch", "slurm"]);
        let output = command.env(variable, "far").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(said(&output).contains(variable) && !site.path("out").exists());
    }
}

#[test]
fn variables_of_sbatch_win_but_not_over_what_the_script_needs() {
    let site = Site::new("time = '1-00'");
    site.program("sbatch", "env >environment\ncp \"${@: -1}\" submitted\necho Welcome\necho 42");
    let mut command = site.sweep(&["--out", "out", "--launch", "slurm"]);
    for (name, value) in [
        ("SBATCH_PARTITION", "long"),
        ("SBATCH_TIMELIMIT", "4"),
        ("SBATCH_SIGNAL", "USR2@5"),
        ("SBATCH_OPEN_MODE", "truncate"),
        ("SBATCH_NO_REQUEUE", "1"),
        ("SBATCH_ARRAY_INX", "1-2"),
        ("SBATCH_WAIT", "1"),
        ("SBATCH_OUTPUT", "elsewhere"),
        ("SBATCH_ERROR", "elsewhere"),
    ] {
        command.env(name, value);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("submitted job 42"));
    let environment = fs::read_to_string(site.path("environment")).unwrap();
    let mut left: Vec<&str> =
        environment.lines().filter(|line| line.starts_with("SBATCH_")).collect();
    left.sort_unstable();
    assert_eq!(left, ["SBATCH_PARTITION=long", "SBATCH_TIMELIMIT=4"]);
    let script = fs::read_to_string(site.path("submitted")).unwrap();
    assert!(script.contains("--signal=B:USR1@60\n"), "a quarter of four minutes: {script}");
}

#[test]
fn a_folder_that_slurm_would_read_in_another_way_is_written_for_it_or_refused() {
    let site = Site::new("");
    let script = site.script(&["--out", "half%j"]);
    assert!(script.contains("half%%j/.sweep/slurm/%A_%a.log"), "{script}");
    for out in ["a b", "a\nb", "it's"] {
        let output = site.launch(&["--out", out]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(!site.path(out).exists(), "what is refused leaves nothing behind");
    }
}

#[test]
fn what_is_said_to_be_typed_next_can_be_typed() {
    let mut site = Site::new("");
    let name = site.path("it's $(touch typed).toml");
    fs::rename(&site.sweep, &name).unwrap();
    site.sweep = name;
    let output = site.launch(&["--out", "out$HOME"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("sweep status")).unwrap();
    let typed = line.split("  how").next().unwrap().trim();
    site.program("bandroot", "printf '%s\\n' \"$@\"");
    let heard = site.command("bash", &["-c", typed]).output().unwrap();
    let words = format!("sweep\nstatus\n{}\n--out\nout$HOME\n", site.sweep.display());
    assert_eq!(String::from_utf8(heard.stdout).unwrap(), words);
    assert!(!site.path("typed").exists());
    assert!(text.contains("tail -f 'out$HOME/.sweep/slurm'/42_*.log"), "{text}");
}

#[test]
fn a_second_submission_is_refused_whatever_the_user_looks_at() {
    let site = Site::new("");
    let line = |script: &Path| format!("echo '42|1|PENDING|Priority|{}'", script.display());
    let ours = line(&site.path("out/.sweep/slurm/workers.sh"));
    site.program("squeue", &format!("[ -n \"$SQUEUE_STATES\" ] || {ours}"));
    assert!(site.launch(&["--out", "out"]).status.success());
    let mut again = site.sweep(&["--out", "out", "--launch", "slurm"]);
    let output = again.env("SQUEUE_STATES", "RUNNING").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("job 42") && said(&output).contains("--more"));
    assert!(site.launch(&["--out", "out", "--more"]).status.success());
    // The number is another job's since, though it be of another sweep.
    for other in ["/x/other.sh", "/x/out/.sweep/slurm/workers.sh"] {
        site.program("squeue", &line(Path::new(other)));
        assert!(site.launch(&["--out", "out"]).status.success(), "{other}");
    }
}

#[test]
fn an_answer_without_a_number_says_that_there_may_be_workers() {
    let site = Site::new("");
    site.program("sbatch", "echo thanks");
    let output = site.launch(&["--out", "out"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("thanks") && said(&output).contains("squeue --me"));
}

#[test]
fn a_dry_run_as_json_holds_the_script() {
    let site = Site::new("");
    let output = site.launch(&["--out", "out", "--dry-run", "--json"]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["job"], &object["missing"]), (&Value::Null, &1.into()), "{object}");
    let text = object["text"].as_str().unwrap();
    assert!(text.starts_with("#!/bin/bash\n") && text.contains("#SBATCH --array=1-1\n"), "{text}");
    assert!(!site.path("out").exists());
}

#[test]
fn json_is_one_object_also_if_nothing_is_missing_and_forgotten_keys_are_missing_work() {
    let site = Site::new("");
    let done = site.sweep(&["--out", "out"]).output().unwrap();
    assert!(done.status.success(), "{}", said(&done));
    let output = site.launch(&["--out", "out", "--json"]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["job"], &object["tasks"]), (&Value::Null, &0.into()), "{object}");
    // A crash between the summary and the removal of the checkpoint, which holds the noise key.
    let run = site.path("out").join(&runs(&site.path("out"))[0]);
    fs::write(run.join("checkpoint-00000001.bin"), "").unwrap();
    let output = site.launch(&["--out", "out", "--json"]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["job"], &object["missing"]), (&"42".into(), &1.into()), "{object}");
}

#[test]
fn a_search_whose_runs_all_failed_waits_for_nothing() {
    let site = Site::new("");
    // There is no such folder: the runs begin and fail.
    let base = fs::read_to_string(site.path("base.toml")).unwrap();
    let base = base.replace("examples = 48\ntest_examples = 20", "folder = 'nowhere'");
    fs::write(site.path("base.toml"), base).unwrap();
    let search = "base = 'base.toml'\n[grid]\n'data.name' = ['fashion-mnist']\n[select]\nvalidation = 0.25\nseeds = [7]\n";
    fs::write(&site.sweep, search).unwrap();
    let before = site.launch(&["--out", "out", "--dry-run"]);
    assert!(String::from_utf8_lossy(&before.stdout).contains("2 missing runs"), "{before:?}");
    assert_eq!(site.sweep(&["--out", "out"]).output().unwrap().status.code(), Some(1));
    let output = site.launch(&["--out", "out"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing is missing"), "{output:?}");
}

#[test]
fn without_sbatch_one_sentence_says_where_it_would_be_and_nothing_is_written() {
    let site = Site::new("");
    let out = site.path("out");
    let mut command = site.sweep(&["--launch", "slurm", "--out", out.to_str().unwrap()]);
    let output = command.env("PATH", site.path("nowhere")).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let words = said(&output);
    assert_eq!(words.lines().count(), 1, "{words}");
    assert!(
        words.contains("there is no sbatch on the PATH") && words.contains("leave it out"),
        "{words}"
    );
    assert!(!out.exists());
}

#[test]
fn the_papers_tables_are_launched_as_sweeps_are() {
    let site = Site::new("");
    let program = assert_cmd::cargo::cargo_bin!("bandroot").to_str().unwrap();
    let tuned = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/paper/tuned.toml");
    let arguments = "reproduce accuracy --participation single --steps 100 --seeds 0,1 --data no-data --results \
                     no-results --out out --launch slurm --dry-run --tuned";
    let mut command = site.command(program, &arguments.split_whitespace().collect::<Vec<_>>());
    let output = command.arg(tuned).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let script = String::from_utf8(output.stdout).unwrap();
    // Three epsilons, four methods and two seeds; the usual number of workers.
    assert!(script.contains("24 of 24 runs are missing"), "{script}");
    assert!(script.contains("#SBATCH --array=1-8"), "{script}");
    assert!(script.contains(" reproduce accuracy --participation single --steps 100 "), "{script}");
    assert!(script.contains("8 workers for 24 missing runs"), "{script}");
    assert!(!site.path("out").exists());
}
