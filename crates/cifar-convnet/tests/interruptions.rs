//! Requests to stop: a checkpoint within seconds, one exit code, and nothing that looks like a failure.

#![cfg(target_os = "linux")]

mod shell;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use shell::sweeps::{attempts, read_json, result, runs, tiny};
use shell::{bandroot, files, repository};

/// What a process ends with that was asked to stop and can go on.
const STOPPED: i32 = 75;

/// Long enough that no signal comes late.
const LONG: &str = "--set data.examples=480 --set data.test_examples=20 --set training.epochs=200 \
    --set training.batch_size=48 --set training.checkpoint_steps=5 --set privacy.noise_seed=5";

fn start(arguments: &str, before: &[&str]) -> Child {
    let program = assert_cmd::cargo::cargo_bin!("bandroot");
    let mut command = match before {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    let command = command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).spawn().unwrap()
}

fn signal(name: &str, target: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), "--", target]).status().unwrap();
    assert!(sent.success(), "kill -{name} {target}");
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        sleep(Duration::from_millis(30));
    }
}

/// Its end, and how long that took from now.
fn end(mut child: Child) -> (ExitStatus, Duration) {
    let start = Instant::now();
    let status = child.wait().unwrap();
    (status, start.elapsed())
}

fn has_checkpoint(run: &Path) -> bool {
    files(run).iter().any(|path| path.extension().is_some_and(|end| end == "bin"))
}

#[test]
fn a_run_that_is_asked_to_stop_writes_a_checkpoint_and_ends_with_75() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["INT", "TERM", "USR1"] {
        let run = folder.path().join(name);
        let config = repository("configs/textures.toml");
        let child = start(&format!("train {config} --out {} {LONG}", run.display()), &[]);
        wait_until("a checkpoint", || has_checkpoint(&run));
        let before = files(&run);
        signal(name, &child.id().to_string());
        let (status, time) = end(child);
        assert_eq!(status.code(), Some(STOPPED), "{name}");
        assert!(time < Duration::from_secs(10), "{name}: {time:?}");
        assert!(has_checkpoint(&run) && !run.join("summary.json").exists());
        assert_ne!(files(&run), before, "{name}: the steps since the last checkpoint are kept");
    }
}

#[test]
fn a_run_under_nohup_outlives_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let config = repository("configs/textures.toml");
    let mut child = start(&format!("train {config} --out {} {LONG}", run.display()), &["nohup"]);
    wait_until("a checkpoint", || has_checkpoint(&run));
    signal("HUP", &child.id().to_string());
    sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "SIGHUP was to be ignored");
    signal("TERM", &child.id().to_string());
    assert_eq!(end(child).0.code(), Some(STOPPED));
}

/// A sweep of two cells that take seconds each, and where it runs.
fn long_sweep(folder: &Path) -> (PathBuf, PathBuf) {
    let sweep = tiny(folder, "[grid]\n'optimizer.learning_rate' = [0.1, 0.2]");
    let base = folder.join("base.toml");
    let text = fs::read_to_string(&base).unwrap();
    let text =
        text.replace("examples = 48\n", "examples = 480\n").replace("epochs = 3", "epochs = 8");
    let text = text
        .replace("batch_size = 12", "batch_size = 48")
        .replace("checkpoint_steps = 1", "checkpoint_steps = 5");
    fs::write(base, text).unwrap();
    (sweep, folder.join("out"))
}

/// The processes that train in a folder.
fn trainings(out: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains("\0train\0") && line.contains(out.to_str().unwrap()) {
            found.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    found
}

/// The states in a sweep's folder.
fn states(out: &Path) -> Vec<PathBuf> {
    let runs = if out.is_dir() { runs(out) } else { Vec::new() };
    let all = runs.iter().flat_map(|run| files(&out.join(run)));
    all.filter(|path| path.extension().is_some_and(|end| end == "bin")).collect()
}

#[test]
fn a_sweep_that_is_asked_to_stop_ends_with_75_and_goes_on_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let (sweep, out) = long_sweep(folder.path());
    let whole = folder.path().join("whole");
    let arguments = |out: &Path| format!("sweep {} --out {}", sweep.display(), out.display());
    bandroot(&arguments(&whole)).assert().success();
    // To the sweep alone; to all its processes at once, as a terminal and Slurm do; and to the run alone, which may
    // hear it first.
    for target in ["sweep", "group", "run"] {
        let before = states(&out);
        let child = start(&arguments(&out), &[]);
        wait_until("another checkpoint", || {
            states(&out).iter().any(|state| !before.contains(state)) && !trainings(&out).is_empty()
        });
        match target {
            "sweep" => signal("TERM", &child.id().to_string()),
            "group" => signal("TERM", &format!("-{}", child.id())),
            _ => signal("TERM", &trainings(&out)[0]),
        }
        let (status, time) = end(child);
        assert_eq!(status.code(), Some(STOPPED), "{target}");
        assert!(time < Duration::from_secs(10), "{target}: {time:?}");
        assert!(trainings(&out).is_empty(), "{target}: a run is left");
        for run in runs(&out) {
            assert!(!out.join(&run).join("failed.json").exists(), "{target}: no failure");
        }
    }
    bandroot(&arguments(&out)).assert().success();
    assert_eq!((runs(&out), attempts(&out)), (runs(&whole), 2), "all were continued");
    let mut continued = 0;
    for run in runs(&whole) {
        assert!(result(&whole.join(&run)) == result(&out.join(&run)), "{run} differs");
        let certificate = read_json(&out.join(&run).join("privacy.json"));
        continued += certificate["realised"]["continued_at"].as_array().unwrap().len();
    }
    assert!(continued >= 3, "{continued}");
    // Readable by others neither while it has checkpoints nor later.
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&out).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_run_of_something_else_is_left_as_it_is_and_goes_on_where_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let (sweep, out) = long_sweep(folder.path());
    let arguments = format!("sweep {} --out {}", sweep.display(), out.display());
    let child = start(&arguments, &[]);
    wait_until("a checkpoint", || !states(&out).is_empty());
    signal("TERM", &child.id().to_string());
    assert_eq!(end(child).0.code(), Some(STOPPED));
    let before = states(&out);
    let config = before[0].with_file_name("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    // As another program or processor finds it: what the checkpoint is bound to is not what it was.
    let other = text.replace("momentum = 0.9", "momentum = 0.5");
    assert_ne!(text, other);
    fs::write(&config, other).unwrap();
    for more in ["", " --retry-failed"] {
        let output = bandroot(&format!("{arguments}{more}")).assert().code(1).get_output().clone();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.matches("left as it is").count(), 1, "{said}");
        assert!(said.contains("optimizer.momentum was 0.9"), "the remedy is told: {said}");
        assert!(said.contains("1 of 2 runs") && said.contains("another program"), "{said}");
        assert!(before.iter().all(|state| state.exists()), "its checkpoint is kept");
        assert!(!config.with_file_name("failed.json").exists(), "and it is no failure");
    }
    assert_eq!(attempts(&out), 2, "nothing was begun again");
    fs::write(&config, text).unwrap();
    bandroot(&arguments).assert().success();
    assert_eq!((runs(&out).len(), attempts(&out)), (2, 2));
    let certificate = read_json(&config.with_file_name("privacy.json"));
    assert_eq!(certificate["realised"]["continued_at"].as_array().unwrap().len(), 1);
}

#[test]
fn a_run_that_is_asked_to_stop_before_it_goes_on_ends_with_75() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let config = repository("configs/textures.toml");
    let child = start(&format!("train {config} --out {} {LONG}", run.display()), &[]);
    wait_until("a checkpoint", || has_checkpoint(&run));
    signal("TERM", &child.id().to_string());
    assert_eq!(end(child).0.code(), Some(STOPPED));
    // It waits for its config, which nobody writes.
    fs::remove_file(run.join("config.toml")).unwrap();
    let pipe = Command::new("mkfifo").arg(run.join("config.toml")).status().unwrap();
    assert!(pipe.success());
    for name in ["INT", "TERM", "USR1"] {
        let child = start(&format!("train --resume {}", run.display()), &[]);
        let status = format!("/proc/{}/status", child.id());
        wait_until("the handlers", || {
            let text = fs::read_to_string(&status).unwrap();
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            // SIGINT, SIGUSR1 and SIGTERM are 2, 10 and 15.
            let wanted = 1 << 1 | 1 << 9 | 1 << 14;
            u64::from_str_radix(caught.trim(), 16).unwrap() & wanted == wanted
        });
        signal(name, &child.id().to_string());
        assert_eq!(end(child).0.code(), Some(STOPPED), "{name}");
    }
    assert!(has_checkpoint(&run));
}

#[test]
fn a_machine_without_the_data_does_not_fail_all_cells() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = tiny(folder.path(), "seeds = [0, 1, 2, 3, 4, 5]");
    let base = folder.path().join("base.toml");
    let text = fs::read_to_string(&base).unwrap();
    let here = "[data]\nname = 'fashion-mnist'\nfolder = 'nowhere'\n";
    fs::write(&base, text.replace("[data]\nexamples = 48\ntest_examples = 20\n", here)).unwrap();
    let out = folder.path().join("out");
    let arguments = format!("sweep {} --out {}", sweep.display(), out.display());
    let failures = || files(&out).iter().filter(|run| run.join("failed.json").exists()).count();
    let output = bandroot(&arguments).assert().code(1).get_output().clone();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(failures(), 3, "{said}");
    assert!(said.contains("3 runs in a row") && said.contains("3 of 6 were not begun"), "{said}");
}

#[test]
fn a_worker_that_waits_leaves_the_file_server_alone() {
    let folder = tempfile::tempdir().unwrap();
    let seeds: Vec<String> = (0..60).map(|seed| seed.to_string()).collect();
    let sweep = tiny(folder.path(), &format!("seeds = [{}]", seeds.join(", ")));
    let out = folder.path().join("out");
    let arguments = format!("sweep {} --out {}", sweep.display(), out.display());
    let status =
        shell::json(&format!("sweep status {} --out {} --json", sweep.display(), out.display()));
    let names: Vec<&str> =
        status["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 60);
    // Another machine has them all.
    fs::create_dir_all(out.join(".sweep")).unwrap();
    for name in names {
        let claim = r#"{"pid": 1, "host": "elsewhere", "boot": "another"}"#;
        fs::write(out.join(".sweep").join(format!("{name}.claim-0001")), claim).unwrap();
    }
    let mut child = start(&arguments, &[]);
    sleep(Duration::from_secs(2));
    let reads = || {
        let text = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with("syscr")).unwrap().to_owned();
        line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    let before = reads();
    sleep(Duration::from_secs(5));
    let reads = reads() - before;
    child.kill().unwrap();
    child.wait().unwrap();
    // Each look reads every claim, in two calls of which the second finds the end, twice; without a pause there would be
    // 25 looks.
    assert!(reads <= 2 * 60 * 4, "{reads} reads in 5 s");
    println!("{reads} reads in 5 s of waiting for 60 cells");
}

#[test]
fn threads_are_those_that_slurm_gave() {
    let folder = tempfile::tempdir().unwrap();
    let config = repository("configs/textures.toml");
    let train = |name: &str, threads: &[(&str, &str)]| {
        let run = folder.path().join(name);
        let short = LONG.replace("epochs=200", "epochs=1");
        let mut command = bandroot(&format!("train {config} --out {} {short}", run.display()));
        command.env_remove("RAYON_NUM_THREADS").envs(threads.iter().copied());
        command.assert().success();
        read_json(&run.join("environment.json"))
    };
    let environment = train("slurm", &[("SLURM_CPUS_PER_TASK", "3")]);
    assert_eq!(environment["threads"], 3);
    assert!(environment["engine"].as_str().unwrap().contains("3 threads"), "{environment}");
    assert!(environment["instruction_set"].as_str().unwrap().starts_with("cpu, "), "{environment}");
    let said = train("said", &[("SLURM_CPUS_PER_TASK", "3"), ("RAYON_NUM_THREADS", "2")]);
    assert_eq!(said["threads"], 2);
}
