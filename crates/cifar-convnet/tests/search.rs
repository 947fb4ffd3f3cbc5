//! Searches from the command line: the better go on, everything counts, and the test examples stay unseen.

mod shell;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use shell::{bandroot, json, refused, repository};

/// Writes a search of tiny runs with a fixed noise seed, so that two of them can be compared.
fn spec(folder: &Path, base: &str, rest: &str) -> PathBuf {
    let base = format!(
        "extends = '{}'\n[data]\nexamples = 48\ntest_examples = 20\n[privacy]\nnoise_seed = 5\n\
         [training]\nepochs = 3\nbatch_size = 12\ncheckpoint_steps = 1\n{base}",
        repository("configs/textures.toml")
    );
    fs::write(folder.join("base.toml"), base).unwrap();
    let sweep = folder.join("search.toml");
    fs::write(&sweep, format!("base = 'base.toml'\n{rest}")).unwrap();
    sweep
}

/// Two candidates and four random settings, the better half of which goes on after an epoch.
const HALVING: &str = "\
[[candidates]]
'optimizer.learning_rate' = 0.01
[[candidates]]
'optimizer.learning_rate' = 0.02
'privacy.clip_norm' = 2.0
[random]
samples = 4
seed = 3
[random.ranges]
'optimizer.learning_rate' = { from = 0.005, to = 0.1, scale = 'log' }
[select]
validation = 0.25
seeds = [7, 8]
[halving]
epochs = [1]
keep = 0.5
";

/// 6 runs of one epoch, 3 of three, 2 final ones.
const TRIALS: u64 = 6 + 3 + 2;

/// The lines of `sweep.csv` by the names of its columns.
fn lines(folder: &Path) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(folder.join("sweep.csv")).unwrap();
    reader.deserialize().map(|line| line.unwrap()).collect()
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn table(path: &Path) -> toml::Table {
    fs::read_to_string(path).unwrap().parse().unwrap()
}

/// The runs of a round that go on, and those that do not: accuracy, and the loss by which equals are told apart.
fn round(lines: &[BTreeMap<String, String>], number: &str) -> [Vec<(f64, f64)>; 2] {
    ["yes", "no"].map(|kept| {
        let of = lines.iter().filter(|line| line["round"] == number && line["kept"] == kept);
        let number = |line: &BTreeMap<String, String>, key: &str| line[key].parse().unwrap();
        of.map(|line| (number(line, "accuracy"), number(line, "loss"))).collect()
    })
}

/// Whether one run did at least as well as another.
fn is_no_worse((accuracy, loss): (f64, f64), other: (f64, f64)) -> bool {
    accuracy > other.0 || (accuracy == other.0 && loss <= other.1)
}

#[test]
fn the_better_half_goes_on_and_all_trials_count() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = spec(folder.path(), "", HALVING);
    let out = folder.path().join("out");
    let command = format!("sweep {} --out {} --json", sweep.display(), out.display());
    let report = json(&format!("{command} --choose-only"));
    assert_eq!((&report["cells"], &report["done"]), (&9.into(), &9.into()));
    let chosen = out.join("chosen.toml");
    let before = fs::read_to_string(&chosen).unwrap();
    let report = json(&command);
    assert_eq!((&report["cells"], &report["done"]), (&11.into(), &11.into()));
    assert_eq!(fs::read_to_string(&chosen).unwrap(), before, "the final runs were counted already");
    let lines = lines(&out);
    assert_eq!(lines.len() as u64, TRIALS);
    for (number, sizes) in [("1", [3, 3]), ("2", [1, 2])] {
        let [kept, left] = round(&lines, number);
        assert_eq!([kept.len(), left.len()], sizes);
        let better = |&kept| left.iter().all(|&left| is_no_worse(kept, left));
        assert!(kept.iter().all(better), "{kept:?} {left:?}");
        assert!(kept.iter().any(|kept| left.iter().all(|left| kept != left)), "all are equal");
    }
    // No run of the search has looked at a test example, and each has its own length.
    for line in &lines {
        let config = table(&out.join(&line["run"]).join("config.toml"));
        let (validation, epochs) = match line["round"].as_str() {
            "1" => (0.25, 1),
            "2" => (0.25, 3),
            _ => (0.0, 3),
        };
        assert_eq!(config["data"]["validation"].as_float(), Some(validation));
        assert_eq!(config["training"]["epochs"].as_integer(), Some(epochs));
        let summary = read_json(&out.join(&line["run"]).join("summary.json"));
        assert_eq!(summary["test_accuracy"].is_null(), validation > 0.0);
        let certificate = read_json(&out.join(&line["run"]).join("privacy.json"));
        assert_eq!(certificate["trials"], TRIALS);
    }
    // What was chosen is the best of the last round, on all examples, with the seeds that were fixed beforehand.
    let best = lines.iter().find(|line| line["round"] == "2" && line["kept"] == "yes").unwrap();
    let config = table(&chosen);
    let number = |section: &str, key: &str| config[section][key].as_float().unwrap();
    assert_eq!(number("optimizer", "learning_rate").to_string(), best["optimizer.learning_rate"]);
    assert_eq!(number("data", "validation"), 0.0);
    assert_eq!(config["privacy"]["trials"].as_integer(), Some(TRIALS as i64));
    assert_eq!(config["training"]["seed"].as_integer(), Some(7));
    assert!(before.contains("fixed before the search, 7, 8:"), "{before}");
    let finals: Vec<_> = lines.iter().filter(|line| line["round"] == "final").collect();
    assert!(
        finals
            .iter()
            .all(|line| line["optimizer.learning_rate"] == best["optimizer.learning_rate"])
    );
    assert_eq!(finals.iter().map(|line| line["seed"].as_str()).collect::<Vec<_>>(), ["7", "8"]);
    // Ready to run: the same run as in the search.
    let again = folder.path().join("again");
    bandroot(&format!("train {} --out {}", chosen.display(), again.display())).assert().success();
    let model = |run: &Path| fs::read(run.join("parameters.safetensors")).unwrap();
    assert!(model(&again) == model(&out.join(&finals[0]["run"])));
    assert_eq!(read_json(&again.join("privacy.json"))["trials"], TRIALS);
    bandroot(&format!("verify {}", again.display())).assert().success();
}

#[test]
fn each_round_has_a_schedule_of_its_own_length_and_what_was_tried_before_counts() {
    let folder = tempfile::tempdir().unwrap();
    // 12 steps on all examples; 9 with a quarter held out, 3 of them in the first round.
    let base = "[optimizer]\nschedule = 'linear-cooldown'\ncooldown_steps = 6\n";
    let rest = "[grid]\n'noise.method' = ['identity', 'bsr']\n'optimizer.learning_rate' = [0.01, 0.02]\n\
        [select]\nby = ['noise.method']\nvalidation = 0.25\nseeds = [0]\nscale_rate = 2.0\n\
        [halving]\nepochs = [1]\nkeep = 0.5\n";
    let sweep = spec(folder.path(), base, rest);
    let text = fs::read_to_string(folder.path().join("base.toml")).unwrap();
    let counted = text.replace("noise_seed = 5", "noise_seed = 5\ntrials = 11");
    fs::write(folder.path().join("base.toml"), counted).unwrap();
    let out = folder.path().join("out");
    json(&format!("sweep {} --out {} --json", sweep.display(), out.display()));
    let lines = lines(&out);
    // Ten before; per method 2 of one epoch, 1 of three, 1 final one.
    let trials = 10 + 2 * (2 + 1 + 1);
    assert_eq!(lines.len(), 8);
    for line in &lines {
        let config = table(&out.join(&line["run"]).join("config.toml"));
        let cooldown = match line["round"].as_str() {
            "1" => 2,
            "2" => 5,
            _ => 6,
        };
        let optimizer = &config["optimizer"];
        assert_eq!(optimizer["cooldown_steps"].as_integer(), Some(cooldown), "{line:?}");
        assert_eq!(read_json(&out.join(&line["run"]).join("privacy.json"))["trials"], trials);
    }
    for method in ["identity", "bsr"] {
        let config = table(&out.join(format!("chosen_method-{method}.toml")));
        assert_eq!(config["noise"]["method"].as_str(), Some(method));
        assert_eq!(config["privacy"]["trials"].as_integer(), Some(trials));
        assert_eq!(config["optimizer"]["cooldown_steps"].as_integer(), Some(6));
        let is_best = |line: &&BTreeMap<String, String>| {
            let found = (line["round"].as_str(), line["kept"].as_str());
            found == ("2", "yes") && line["noise.method"] == method
        };
        let best = lines.iter().find(is_best).unwrap();
        let rate: f64 = best["optimizer.learning_rate"].parse().unwrap();
        let chosen = config["optimizer"]["learning_rate"].as_float();
        assert_eq!(chosen, Some(2.0 * rate), "scale_rate");
    }
}

fn begin(sweep: &Path, out: &Path) -> Child {
    Command::new(assert_cmd::cargo::cargo_bin!("bandroot"))
        .arg("sweep")
        .args([sweep, Path::new("--out"), out])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_search_that_is_killed_comes_to_the_same_choice() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = spec(folder.path(), "", HALVING);
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    assert!(begin(&sweep, &whole).wait().unwrap().success());
    let mut kills = 0;
    for milliseconds in [400, 700, 300, 900, 500] {
        let mut child = begin(&sweep, &killed);
        sleep(Duration::from_millis(milliseconds));
        if child.try_wait().unwrap().is_none() {
            // SIGKILL: no handler runs, nothing is flushed.
            child.kill().unwrap();
            kills += 1;
        }
        child.wait().unwrap();
    }
    assert!(kills > 0, "it ended before it could be killed");
    assert!(begin(&sweep, &killed).wait().unwrap().success());
    let read = |out: &Path, name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(read(&killed, "selection.csv"), read(&whole, "selection.csv"));
    let results = |out: &Path| -> Vec<_> {
        let mut lines = lines(out);
        lines.iter_mut().for_each(|line| drop(line.remove("seconds")));
        lines
    };
    assert_eq!(results(&killed), results(&whole));
    // But for what was begun more than once, which counts.
    let notes = fs::read_dir(killed.join(".sweep")).unwrap().map(|entry| entry.unwrap().path());
    let notes = notes.filter(|path| path.extension().is_some_and(|end| end == "attempts"));
    let begun: usize = notes.map(|path| fs::read_to_string(path).unwrap().lines().count()).sum();
    let mut configs = [&killed, &whole].map(|out| table(&out.join("chosen.toml")));
    let trials = configs.each_mut().map(|config| {
        let privacy = config["privacy"].as_table_mut().unwrap();
        privacy.remove("trials").unwrap().as_integer().unwrap()
    });
    assert_eq!(trials, [begun as i64, TRIALS as i64]);
    assert!(configs[0] == configs[1]);
    for line in lines(&killed) {
        let certificate = read_json(&killed.join(&line["run"]).join("privacy.json"));
        assert_eq!(certificate["trials"], begun);
    }
}

#[test]
fn a_choice_by_test_examples_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let refuse = |rest: &str, more: &str, words: &[&str]| {
        let sweep = spec(folder.path(), "", rest);
        let command = format!("sweep {} --out {} {more}", sweep.display(), out.display());
        refused(&command, 2, words);
        assert!(!out.exists());
    };
    let without = HALVING.replace("validation = 0.25", "validation = 0.0");
    refuse(&without, "", &["search.toml", "select.validation", "test examples"]);
    let (settings, halving) = HALVING.split_once("[select]").unwrap();
    let (_, halving) = halving.split_once("[halving]").unwrap();
    refuse(&format!("{settings}[halving]{halving}"), "", &["search.toml", "halving needs select"]);
    refuse(settings, "--choose-only", &["search.toml", "--choose-only needs [select]"]);
    let grid = HALVING.replace("[random]", "[grid]\n'data.validation' = [0.0]\n[random]");
    refuse(&grid, "", &["search.toml", "data.validation is set by select"]);
    let drawn = HALVING.replace("'optimizer.learning_rate' = {", "'data.validation' = {");
    refuse(&drawn, "", &["search.toml", "data.validation is set by select"]);
}
