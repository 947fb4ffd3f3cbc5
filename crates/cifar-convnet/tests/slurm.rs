//! Sweeps on a real Slurm, of four virtual nodes on this machine: time limits, cancelled jobs and dead nodes cost time
//! and change no result. `scripts/test --all` runs it; elsewhere it says what it needs.

#![cfg(target_os = "linux")]

mod shell;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use shell::repository;
use shell::sweeps::{attempts, read_json, result, runs};

/// A cluster, until this is dropped.
struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    /// None, said loudly, where this is not asked for.
    fn start(folder: &Path) -> Option<Self> {
        if std::env::var_os("BANDROOT_REQUIRE_SLURM").is_none() {
            // Not by eprintln!, which cargo shows of failed tests only.
            let said = writeln!(
                std::io::stderr(),
                "\nSKIPPED: sweeps on a real Slurm; it needs Debian's munge, slurmctld, slurmd and slurm-client, and \
                 BANDROOT_REQUIRE_SLURM=1"
            );
            drop(said);
            return None;
        }
        let cluster = Self { folder: folder.to_owned() };
        let started = cluster.script("start");
        let said = String::from_utf8_lossy(&started.stderr).into_owned();
        assert!(started.status.success(), "no cluster: {said}");
        Some(cluster)
    }

    fn script(&self, what: &str) -> Output {
        Command::new(repository("scripts/slurm")).arg(what).arg(&self.folder).output().unwrap()
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.folder.join("slurm.conf"));
        command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap()));
        command.args(arguments.split_whitespace());
        command
    }

    /// What a command of Slurm prints.
    fn ask(&self, program: &str, arguments: &str) -> String {
        let output = self.command(program, arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn bandroot(&self, arguments: &str) -> Output {
        self.command(assert_cmd::cargo::cargo_bin!("bandroot"), arguments).output().unwrap()
    }

    fn json(&self, arguments: &str) -> Value {
        let output = self.bandroot(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.command("scancel", "--me").output();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(15)
            && self.command("squeue", "-h").output().is_ok_and(|output| !output.stdout.is_empty())
        {
            sleep(Duration::from_millis(200));
        }
        drop(self.script("stop"));
    }
}

/// A sweep in a folder of the cluster's machine.
struct Sweep<'a> {
    cluster: &'a Cluster,
    file: PathBuf,
    out: PathBuf,
}

impl<'a> Sweep<'a> {
    fn new(cluster: &'a Cluster, folder: &Path, name: &str, rest: &str) -> Self {
        let file = folder.join(format!("{name}.toml"));
        fs::write(&file, format!("base = 'base.toml'\n{rest}")).unwrap();
        Self { cluster, file, out: folder.join(name) }
    }

    fn arguments(&self, more: &str) -> String {
        format!("{} --out {} {more}", self.file.display(), self.out.display())
    }

    fn launch(&self) -> String {
        let arguments = self.arguments("--launch slurm --json");
        let submitted = self.cluster.json(&format!("sweep {arguments}"));
        submitted["job"].as_str().unwrap().to_owned()
    }

    fn status(&self) -> Value {
        self.cluster.json(&format!("sweep status {}", self.arguments("--json")))
    }

    /// Watches, all the time, that no cell is trained twice at once.
    fn watch(&self, what: &str, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(150), "waited in vain for {what}");
            let mut trained = self.trained();
            trained.sort();
            let count = trained.len();
            trained.dedup();
            assert_eq!(trained.len(), count, "a cell is trained twice at once: {trained:?}");
            sleep(Duration::from_millis(50));
        }
    }

    fn trained(&self) -> Vec<String> {
        self.trainings().into_iter().map(|(_, run)| run).collect()
    }

    /// The processes that train, and what.
    fn trainings(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap() {
            let entry = entry.unwrap();
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            let words: Vec<&str> = line.split('\0').collect();
            if words.get(1) == Some(&"train") {
                let mut in_out =
                    words.iter().filter_map(|word| Path::new(word).strip_prefix(&self.out).ok());
                let id = entry.file_name().display().to_string();
                found.extend(in_out.next_back().map(|run| (id, run.display().to_string())));
            }
        }
        found
    }

    /// Lets trainings stand still for a moment: a fast machine would be done before Slurm looks at its limits.
    fn hold_back(&self) {
        let trainings = self.trainings();
        for (signal, moment) in [("-STOP", 400), ("-CONT", 0)] {
            for (id, _) in &trainings {
                // It may have ended.
                let _ = Command::new("kill").args([signal, id]).output().unwrap();
            }
            sleep(Duration::from_millis(moment));
        }
    }

    fn all_done(&self) -> bool {
        let runs = if self.out.is_dir() { runs(&self.out) } else { Vec::new() };
        let done = |run: &String| self.out.join(run).join("summary.json").exists();
        !runs.is_empty() && runs.iter().all(done) && self.status()["missing"] == 0
    }

    /// Until everything is done and no worker is left.
    fn finish(&self) {
        self.watch("the end", || self.all_done());
        self.watch("the last worker", || self.cluster.ask("squeue", "-h").is_empty());
        let status = self.status();
        assert_eq!((&status["failed"], &status["missing"]), (&0.into(), &0.into()), "{status}");
    }

    /// How often the runs were continued, all of which are the same as in another sweep, bit by bit.
    fn compare(&self, whole: &Path) -> usize {
        let mut continued = 0;
        for run in runs(&self.out) {
            let (ours, theirs) = (self.out.join(&run), whole.join(&run));
            assert!(result(&ours) == result(&theirs), "{run} differs");
            let certificate = read_json(&ours.join("privacy.json"));
            continued += certificate["realised"]["continued_at"].as_array().unwrap().len();
            assert_eq!(certificate["trials"], attempts(&self.out), "what was begun is counted");
            assert!(!ours.join("failed.json").exists());
        }
        continued
    }

    /// What the workers have said.
    fn logs(&self) -> String {
        let notes = fs::read_dir(self.out.join(".sweep/slurm")).unwrap();
        let logs = notes.map(|entry| entry.unwrap().path());
        let logs = logs.filter(|path| path.extension().is_some_and(|end| end == "log"));
        logs.map(|path| fs::read_to_string(path).unwrap()).collect()
    }
}

const GRID: &str =
    "[grid]\n'noise.method' = ['bsr', 'identity']\n'optimizer.learning_rate' = [0.1, 0.2]\n";

#[test]
fn time_limits_cancelled_jobs_and_dead_nodes_change_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cluster) = Cluster::start(&folder.path().join("cluster")) else { return };
    let again = cluster.script("start");
    assert!(!again.status.success(), "its processes would not be found again: {again:?}");
    let folder = folder.path();
    let base = format!(
        "extends = '{}'\n[data]\nexamples = 480\ntest_examples = 20\n[privacy]\nnoise_seed = 5\n\
         [training]\nepochs = 8\nbatch_size = 48\ncheckpoint_steps = 5\n",
        repository("configs/textures.toml")
    );
    fs::write(folder.join("base.toml"), base).unwrap();
    let started = Instant::now();
    let say = |what: &str| println!("{:>4} s: {what}", started.elapsed().as_secs());

    say("eight cells here, undisturbed");
    let whole = Sweep::new(&cluster, folder, "whole", &format!("seeds = [0, 1]\n{GRID}"));
    let done = cluster.bandroot(&format!("sweep {}", whole.arguments("--jobs 2 --json")));
    assert!(done.status.success(), "{done:?}");

    refusals(&cluster, folder);

    say("eight cells on four workers, with a limit of one minute");
    let setup = "setup = ['set -euo pipefail']";
    let rest = format!("seeds = [0, 1]\n{GRID}[slurm]\ntasks = 4\ntime = '1'\n{setup}\n");
    let sweep = Sweep::new(&cluster, folder, "limited", &rest);
    sweep.launch();
    let second = cluster.bandroot(&format!("sweep {}", sweep.arguments("--launch slurm")));
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains("--more"), "{said}");
    sweep.watch("the time limit", || {
        sweep.hold_back();
        sweep.logs().contains("back to the queue")
    });
    sweep.finish();
    let continued = sweep.compare(&whole.out);
    assert_eq!(runs(&sweep.out), runs(&whole.out));
    let logs = sweep.logs();
    assert_eq!(logs.matches(" %\n").count(), 8, "each cell was finished once: {logs}");
    assert!(logs.contains("restart 1") && continued > 0, "{logs}");
    say(&format!("continued {continued} times after the limit"));

    say("scancel, and going on");
    let rest = format!("seeds = [0]\n{GRID}[slurm]\ntasks = 4\n");
    // In the name of a log this would be the number of the job.
    let sweep = Sweep::new(&cluster, folder, "cancelled%j", &rest);
    let job = sweep.launch();
    let has_state = |run: &String| {
        let files = fs::read_dir(sweep.out.join(run)).into_iter().flatten();
        files
            .into_iter()
            .any(|file| file.unwrap().path().extension().is_some_and(|end| end == "bin"))
    };
    sweep.watch("states", || {
        sweep.out.is_dir() && runs(&sweep.out).iter().filter(|run| has_state(run)).count() == 4
    });
    let (cancelled, _) = (Instant::now(), cluster.ask("scancel", &job));
    sweep.watch("the end of the job", || cluster.ask("squeue", "-h").is_empty());
    assert!(cancelled.elapsed() < Duration::from_secs(15), "{:?}", cancelled.elapsed());
    let status = sweep.status();
    assert_eq!((&status["running"], &status["failed"]), (&0.into(), &0.into()), "{status}");
    assert_eq!(sweep.logs().matches("bandroot: stopped").count(), 4, "{}", sweep.logs());
    sweep.launch();
    sweep.finish();
    assert!(sweep.compare(&whole.out) >= 4 && attempts(&sweep.out) == 4);

    say("a dead slurmd, whose worker lives on, and halving beside it");
    // Slurm takes half a minute to give a node up: long enough that runs are left then.
    let eight = format!("seeds = [0, 1]\n{GRID}[slurm]\ntasks = 2\n");
    let sweep = Sweep::new(&cluster, folder, "orphaned", &eight);
    let job = sweep.launch();
    sweep.watch("two trainings", || sweep.trained().len() == 2);
    let node = cluster.ask("squeue", &format!("-h -j {job}_1 -o %N")).trim().to_owned();
    let pid = fs::read_to_string(cluster.folder.join(format!("run/slurmd-{node}.pid"))).unwrap();
    assert!(Command::new("kill").args(["-KILL", pid.trim()]).status().unwrap().success());
    let search = "[grid]\n'optimizer.learning_rate' = [0.01, 0.02, 0.05, 0.1]\n'training.epochs' = [3]\n\
        'training.batch_size' = [240]\n[select]\nvalidation = 0.25\nseeds = [7]\n[halving]\nepochs = [1, 2]\n\
        keep = 0.5\n[slurm]\ntasks = 2\n";
    let halving = Sweep::new(&cluster, folder, "halving", search);
    halving.launch();
    sweep.watch("a requeue", || {
        sweep.hold_back();
        sweep.logs().contains("restart 1")
    });
    sweep.finish();
    sweep.compare(&whole.out);
    assert_eq!(attempts(&sweep.out), 8, "nothing was begun twice");
    halving.finish();
    // 4, 2 and 1 settings, and the final run.
    assert_eq!((runs(&halving.out).len(), attempts(&halving.out)), (8, 8));
    assert!(halving.out.join("chosen.toml").exists());
    let here = Sweep::new(&cluster, folder, "halving-here", search);
    let done = cluster.bandroot(&format!("sweep {}", here.arguments("--json")));
    assert!(done.status.success(), "{done:?}");
    let chosen = |sweep: &Sweep<'_>| fs::read_to_string(sweep.out.join("chosen.toml")).unwrap();
    assert_eq!(chosen(&here), chosen(&halving));
    assert_eq!(runs(&here.out), runs(&halving.out));
    for run in runs(&here.out) {
        let model = |sweep: &Sweep<'_>| {
            fs::read(sweep.out.join(&run).join("parameters.safetensors")).unwrap()
        };
        assert!(model(&here) == model(&halving), "{run} differs");
        assert_eq!(read_json(&halving.out.join(&run).join("privacy.json"))["trials"], 8);
    }
    say("a cluster that is stopped leaves no orphan");
    let sweep = Sweep::new(&cluster, folder, "left", &eight);
    let job = sweep.launch();
    sweep.watch("two trainings", || sweep.trained().len() == 2);
    let node = cluster.ask("squeue", &format!("-h -j {job}_1 -o %N")).trim().to_owned();
    let pid = fs::read_to_string(cluster.folder.join(format!("run/slurmd-{node}.pid"))).unwrap();
    assert!(Command::new("kill").args(["-KILL", pid.trim()]).status().unwrap().success());
    let stopped = cluster.script("stop");
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(sweep.trained().is_empty(), "{:?}, {stopped:?}", sweep.trainings());
    let again = cluster.script("stop");
    assert!(again.status.success() && again.stderr.is_empty(), "nothing is left: {again:?}");
    say("done");
}

/// What the real sbatch refuses becomes one sentence that says what to change.
fn refusals(cluster: &Cluster, folder: &Path) {
    for (key, word) in [
        ("partition = 'gpuu'", "slurm.partition = \"gpuu\""),
        ("time = '10-00'", "slurm.time"),
        ("constraint = 'avx1024'", "slurm.constraint"),
        ("gres = 'gpu:1'", "slurm.gres"),
        ("cpus = 64", "slurm.cpus"),
        ("memory = '100G'", "slurm."),
        ("options = ['--no-such-option']", "slurm.options"),
    ] {
        let rest = format!("{GRID}[slurm]\n{key}\n");
        let sweep = Sweep::new(cluster, folder, "refused", &rest);
        let output = cluster.bandroot(&format!("sweep {}", sweep.arguments("--launch slurm")));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{key}: {said}");
        assert!(said.contains(word) && said.trim().lines().count() == 1, "{key}: {said}");
        println!("{}", said.trim());
    }
    let seeds: Vec<String> = (0..99).map(|seed| seed.to_string()).collect();
    let rest = format!("seeds = [{}]\n[slurm]\ntasks = 99\n", seeds.join(", "));
    let sweep = Sweep::new(cluster, folder, "refused", &rest);
    let output = cluster.bandroot(&format!("sweep {}", sweep.arguments("--launch slurm")));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("slurm.tasks") && said.contains("MaxArraySize"), "{said}");
    assert!(cluster.ask("squeue", "-h").is_empty(), "nothing was submitted");
}
