//! Sweeps from the command line: nothing missing, nothing twice, whatever is killed.

mod shell;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use shell::sweeps::{attempts, read_json, result, runs, tiny};
use shell::{bandroot, json, refused, wanted_kills};

/// The files of a run, but for those that are named by the time.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with("events.out.tfevents."));
    names.sort();
    names
}

struct Processes {
    sweep: PathBuf,
    out: PathBuf,
    running: Vec<Child>,
}

impl Processes {
    fn start(&mut self) {
        let child = Command::new(assert_cmd::cargo::cargo_bin!("bandroot"))
            .arg("sweep")
            .args([&self.sweep, Path::new("--out"), &self.out, Path::new("--json")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.running.push(child);
    }

    /// The cells that are being trained in our folder, from the system's list of processes.
    #[cfg(target_os = "linux")]
    fn trained(&self) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir("/proc").unwrap() {
            let line = fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
            let words: Vec<String> =
                String::from_utf8_lossy(&line).split('\0').map(str::to_owned).collect();
            let mut in_out =
                words.iter().filter_map(|word| Path::new(word).strip_prefix(&self.out).ok());
            if words.get(1).is_some_and(|word| word == "train") {
                // The last is the run folder; the one before it may be the config.
                let cell = in_out.next_back().map(|path| path.display().to_string());
                cell.into_iter().for_each(|cell| *found.entry(cell).or_default() += 1);
            }
        }
        found
    }

    #[cfg(not(target_os = "linux"))]
    fn trained(&self) -> BTreeMap<String, usize> {
        BTreeMap::new()
    }

    /// Waits, looking all the time that no cell is trained twice at once.
    fn watch(&self, duration: Duration) -> usize {
        let start = std::time::Instant::now();
        let mut most = 0;
        while start.elapsed() < duration {
            let trained = self.trained();
            most = most.max(trained.len());
            assert!(trained.values().all(|&count| count == 1), "{trained:?}");
            sleep(Duration::from_millis(5));
        }
        most
    }
}

/// Two sweeps have the same runs, bit by bit, and nothing else in their folders. How often runs of the second were
/// continued.
fn compare(whole: &Path, killed: &Path) -> usize {
    assert_eq!(runs(killed), runs(whole), "none missing, none twice");
    assert_eq!(runs(whole).len(), 8);
    let (mut continued, begun) = (0, attempts(killed));
    assert!(begun >= 8);
    assert_eq!(attempts(whole), 8);
    for run in runs(whole) {
        let (whole, killed) = (whole.join(&run), killed.join(&run));
        assert_eq!(
            files(&killed),
            files(&whole),
            "no checkpoint, no failure, nothing half-written"
        );
        assert!(result(&whole) == result(&killed), "{run} differs");
        let certificate = read_json(&killed.join("privacy.json"));
        continued += certificate["realised"]["continued_at"].as_array().unwrap().len();
        assert_eq!(certificate["trials"], begun, "what was begun goes into each certificate");
        assert_eq!(read_json(&whole.join("privacy.json"))["trials"], 8);
    }
    continued
}

#[test]
fn a_sweep_that_is_killed_beside_another_ends_as_if_nothing_had_happened() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = tiny(
        folder.path(),
        "seeds = [0, 1]\n[grid]\n'noise.method' = ['bsr', 'identity']\n'optimizer.learning_rate' = [0.1, 0.2]",
    );
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    let report = json(&format!("sweep {} --out {} --json", sweep.display(), whole.display()));
    assert_eq!(
        (&report["cells"], &report["done"], &report["failed"]),
        (&8.into(), &8.into(), &0.into())
    );

    let mut processes = Processes { sweep, out: killed.clone(), running: Vec::new() };
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let wanted = wanted_kills(10);
    let (mut kills, mut trained, mut finished, mut continued) = (0, 0, 0, 0);
    while kills < wanted {
        while processes.running.len() < 2 {
            processes.start();
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let milliseconds = 100 + (random >> 40) % 1500;
        trained = trained.max(processes.watch(Duration::from_millis(milliseconds)));
        // Sometimes both: then a third has to recover what they had.
        let victims = if random >> 33 & 3 == 0 { 2 } else { 1 };
        for _ in 0..victims {
            let mut victim = processes.running.remove(0);
            // A sweep that finds nothing missing ends by itself.
            if victim.try_wait().unwrap().is_none() {
                // SIGKILL: no handler runs, nothing is flushed.
                victim.kill().unwrap();
                kills += 1;
            }
            victim.wait().unwrap();
        }
        if runs(&killed).len() == 8
            && runs(&killed).iter().all(|run| killed.join(run).join("summary.json").exists())
        {
            // Finished between two kills: once more from the start, without the processes that remain.
            for mut child in processes.running.drain(..) {
                assert!(child.wait().unwrap().success());
            }
            if kills < wanted {
                // The last one may have been killed before it had tidied up.
                processes.start();
                assert!(processes.running.remove(0).wait().unwrap().success());
                continued += compare(&whole, &killed);
                finished += 1;
                fs::remove_dir_all(&killed).unwrap();
            }
        }
    }
    assert!(
        trained > 0 || cfg!(not(target_os = "linux")),
        "the list of processes was never seen to hold a run"
    );
    while processes.running.len() < 2 {
        processes.start();
    }
    for child in &mut processes.running {
        assert!(child.wait().unwrap().success());
    }
    continued += compare(&whole, &killed);
    println!(
        "kills sweep: {kills}, {} sweeps of 8 cells finished, all as undisturbed",
        finished + 1
    );
    assert!(continued > 0, "no kill was in the midst of a run");
}

#[test]
fn a_failed_run_is_written_down_and_does_not_stop_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = tiny(folder.path(), "[grid]\n'optimizer.learning_rate' = [0.1, 0.2, 0.3]");
    let out = folder.path().join("out");
    let first = folder.path().join("first");
    let command = |out: &Path, rest: &str| {
        format!("sweep {} --out {} {rest}", sweep.display(), out.display())
    };
    bandroot(&command(&first, "--jobs 2")).assert().success();
    let names = runs(&first);
    assert_eq!(names.len(), 3);
    // A checkpoint that cannot be read makes the first cell fail.
    let broken = out.join(&names[0]);
    fs::create_dir_all(&broken).unwrap();
    fs::write(broken.join("checkpoint-00000001.bin"), "nonsense").unwrap();
    let assert = bandroot(&command(&out, "--json")).assert().code(1);
    let report: Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    assert_eq!((&report["done"], &report["failed"]), (&2.into(), &1.into()));
    let failure = read_json(&broken.join("failed.json"));
    assert_eq!((&failure["exit_code"], &failure["resumed"]), (&1.into(), &true.into()));
    assert!(failure["stderr"][0].as_str().unwrap().contains("config.toml"), "{failure}");
    assert!(failure["command"].as_str().unwrap().contains("--resume"));
    let csv = fs::read_to_string(out.join("sweep.csv")).unwrap();
    assert_eq!(csv.matches("done").count(), 2);
    assert_eq!(csv.matches("failed").count(), 1);
    // Not again unless asked; and what is done is not touched.
    let model = |name: &str| {
        let path = out.join(name).join("parameters.safetensors");
        fs::metadata(path).unwrap().modified().unwrap()
    };
    let before = model(&names[1]);
    bandroot(&command(&out, "")).assert().code(1);
    assert_eq!(read_json(&broken.join("failed.json")), failure);
    bandroot(&command(&out, "--retry-failed")).assert().success();
    assert_eq!(model(&names[1]), before);
    for name in &names {
        assert!(result(&first.join(name)) == result(&out.join(name)));
        let trials =
            |folder: &Path| read_json(&folder.join(name).join("privacy.json"))["trials"].clone();
        assert_eq!((trials(&first), trials(&out)), (3.into(), 4.into()), "the failed one counts");
    }
}

#[test]
fn a_sweep_that_grows_tells_its_finished_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (base, out) = (folder.path().join("base.toml"), folder.path().join("out"));
    let grow = |rest: &str| {
        let sweep = tiny(folder.path(), rest);
        // Private: the statement says the number too.
        let text = fs::read_to_string(&base).unwrap().replace("noise_seed = 5", "");
        fs::write(&base, text).unwrap();
        bandroot(&format!("sweep {} --out {}", sweep.display(), out.display())).assert().success();
    };
    let certificate = |run: &str| read_json(&out.join(run).join("privacy.json"));
    grow("[grid]\n'optimizer.learning_rate' = [0.1]");
    let first = runs(&out).pop().unwrap();
    let before = certificate(&first);
    assert_eq!(before["trials"], 1);
    assert_eq!(before["epsilon_all_trials"], before["plan"]["request"]["epsilon"]);
    assert!(!before["statement"].as_str().unwrap().contains("choosing"));
    let results = folder.path().join("results");
    let import = format!("results import {} --into {}", out.display(), results.display());
    bandroot(&import).assert().success();
    grow("seeds = [0, 1]\n[grid]\n'optimizer.learning_rate' = [0.1, 0.2]");
    // No longer in the grid, but made on the same data.
    grow("[grid]\n'optimizer.learning_rate' = [0.3]");
    assert_eq!(runs(&out).len(), 5);
    // It was told before it began: were the sweep killed in it, nothing would be counted too low.
    let last = runs(&out).into_iter().find(|run| run.contains("0.3")).unwrap();
    let config = fs::read_to_string(out.join(last).join("config.toml")).unwrap();
    assert!(config.contains("trials = 5"), "{config}");
    for run in runs(&out) {
        let certificate = certificate(&run);
        assert_eq!(certificate["trials"], 5, "{run}");
        let statement = certificate["statement"].as_str().unwrap();
        assert!(statement.contains("choosing among 5 runs"), "{statement}");
        // All five have the same noise: sqrt(5) times less together.
        let together = certificate["epsilon_all_trials"].as_f64().unwrap();
        let single = certificate["plan"]["noise_multiplier"].as_f64().unwrap();
        let expected = dp_train::calibration::epsilon(single / 5_f64.sqrt(), 1e-5).unwrap();
        assert!((together / expected - 1.0).abs() < 1e-8, "{together} {expected}");
        assert!(statement.contains("all of them together are ("), "{statement}");
        assert_eq!(certificate["tried"][0]["runs"], 5);
        assert_eq!(read_json(&out.join(&run).join("summary.json"))["statement"], statement);
        let kept = files(&out.join(&run));
        assert!(kept.iter().all(|name| !name.ends_with(".partial")), "{kept:?}");
        bandroot(&format!("verify {} --require-private", out.join(&run).display()))
            .assert()
            .success();
    }
    assert_eq!(certificate(&first)["artifacts"], before["artifacts"]);
    // The number never falls, also among recorded results.
    bandroot(&import).assert().success();
    let recorded = results.join(&first);
    assert_eq!(read_json(&recorded.join("privacy.json"))["trials"], 5);
    assert_eq!(
        read_json(&recorded.join("summary.json"))["statement"],
        certificate(&first)["statement"]
    );
    // Runs that are only counted are of unknown noise.
    let counted = folder.path().join("counted");
    let import =
        format!("results import {} --into {} --trials 9", out.display(), counted.display());
    bandroot(&import).assert().success();
    let found = read_json(&counted.join(&first).join("privacy.json"));
    assert_eq!((&found["trials"], &found["epsilon_all_trials"]), (&9.into(), &Value::Null));
    bandroot(&format!("verify {}", counted.join(&first).display())).assert().success();
}

#[test]
fn a_run_that_failed_and_was_begun_again_counts_twice() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = tiny(folder.path(), "[grid]\n'data.name' = ['fashion-mnist']");
    let (base, out) = (folder.path().join("base.toml"), folder.path().join("out"));
    let text = fs::read_to_string(&base).unwrap();
    // There is no such folder: the run begins and fails.
    let own = text.replace("examples = 48\ntest_examples = 20", "folder = 'nowhere'");
    fs::write(&base, &own).unwrap();
    let command = format!("sweep {} --out {} --retry-failed", sweep.display(), out.display());
    bandroot(&command).assert().code(1);
    assert_eq!(attempts(&out), 1);
    sleep(Duration::from_millis(1100));
    bandroot(&command).assert().code(1);
    assert_eq!(attempts(&out), 2);
    // Another grid in the same folder: the failures count there as well.
    let sweep = tiny(folder.path(), "[grid]\n'optimizer.learning_rate' = [0.1]");
    bandroot(&format!("sweep {} --out {}", sweep.display(), out.display())).assert().success();
    let done = runs(&out).into_iter().find(|run| run.starts_with("learning_rate")).unwrap();
    assert_eq!(read_json(&out.join(done).join("privacy.json"))["trials"], 3);
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_begun_again_is_told_before_it_shows_anything() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = tiny(folder.path(), "seeds = [0, 1]");
    let (base, out) = (folder.path().join("base.toml"), folder.path().join("out"));
    // The second run has no checkpoint yet when its sweep is killed.
    let text = fs::read_to_string(&base).unwrap().replace("examples = 48\n", "examples = 480\n");
    fs::write(&base, text.replace("checkpoint_steps = 1", "checkpoint_steps = 100000")).unwrap();
    let command = format!("sweep {} --out {}", sweep.display(), out.display());
    let finished = || -> Vec<String> {
        let runs = if out.is_dir() { runs(&out) } else { Vec::new() };
        runs.into_iter().filter(|run| out.join(run).join("summary.json").exists()).collect()
    };
    let kill_when = |is_so: &dyn Fn() -> bool| {
        let mut child = shell::start(&command);
        let start = std::time::Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(60), "waited in vain");
            sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let begun = |count: u64| out.join(".sweep").is_dir() && attempts(&out) == count;
    kill_when(&|| begun(2));
    let trials = |run: &str| read_json(&out.join(run).join("privacy.json"))["trials"].clone();
    let first = finished().remove(0);
    assert_eq!(trials(&first), 2, "as planned");
    kill_when(&|| begun(3) && trials(&first) == 3);
    // Nobody came to an end who could have told it afterwards.
    assert_eq!(finished(), [first]);
    bandroot(&command).assert().success();
    assert_eq!(attempts(&out), 4);
    for run in runs(&out) {
        assert_eq!(trials(&run), 4);
    }
}

#[test]
fn the_best_on_held_out_examples_are_trained_on_all_and_tested() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = tiny(
        folder.path(),
        "[grid]\n'noise.method' = ['bsr', 'identity']\n'optimizer.learning_rate' = [0.01, 0.02, 0.05]\n\
         [select]\nby = ['noise.method']\nvalidation = 0.25\nseeds = [7, 8]\n[halving]\nepochs = [1]\nkeep = 0.5",
    );
    let out = folder.path().join("out");
    let command = format!("sweep {} --out {} --json", sweep.display(), out.display());
    let report = json(&command);
    // Per method: 3 runs of one epoch, 2 of three, 2 final ones.
    assert_eq!((&report["cells"], &report["done"]), (&14.into(), &14.into()));
    let mut reader = csv::Reader::from_path(out.join("selection.csv")).unwrap();
    let lines: Vec<_> = reader.records().map(|line| line.unwrap()).collect();
    assert_eq!(lines.len(), 2 * (3 + 2));
    let mean = |line: &csv::StringRecord| line[4].parse::<f64>().unwrap();
    for round in lines.chunk_by(|a, b| (&a[0], &a[2]) == (&b[0], &b[2])) {
        assert!(round.is_sorted_by(|a, b| mean(a) >= mean(b)), "best first");
        let kept: Vec<bool> = round.iter().map(|line| &line[5] == "yes").collect();
        let wanted =
            if &round[0][2] == "all" { vec![true, false] } else { vec![true, true, false] };
        assert_eq!(kept, wanted);
    }
    let finals: Vec<String> =
        runs(&out).into_iter().filter(|run| run.starts_with("final")).collect();
    assert_eq!(finals.len(), 4);
    for run in runs(&out) {
        let config = fs::read_to_string(out.join(&run).join("config.toml")).unwrap();
        let validation =
            if run.starts_with("final") { "validation = 0.0" } else { "validation = 0.25" };
        assert!(config.contains(validation), "{run}: {config}");
        assert_eq!(read_json(&out.join(&run).join("privacy.json"))["trials"], 14);
    }
    for chosen in lines.iter().filter(|line| &line[2] == "all" && &line[5] == "yes") {
        let rate = chosen[1].rsplit_once("= ").unwrap().1;
        let method = chosen[0].rsplit_once("= ").unwrap().1;
        let start = format!("final_method-{method}_learning_rate-{rate}_");
        assert_eq!(
            finals.iter().filter(|run| run.starts_with(&start)).count(),
            2,
            "{start} {finals:?}"
        );
    }
    assert_eq!(json(&command), report, "nothing is left to do");
}

#[test]
fn a_sweep_that_cannot_run_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let refuse = |rest: &str, words: &[&str]| {
        let sweep = tiny(folder.path(), rest);
        refused(&format!("sweep {} --out {}", sweep.display(), out.display()), 2, words);
        assert!(!out.exists());
    };
    refuse("[grid]\n'optimizer.learning_rat' = [1]", &["sweep.toml", "optimizer.learning_rate?"]);
    refuse(
        "[grid]\n'noise.bands' = [2, 100]\n'noise.method' = ['aof']",
        &["sweep.toml", "noise.bands"],
    );
}
