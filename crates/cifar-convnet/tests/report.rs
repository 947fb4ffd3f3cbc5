//! The report and the folder of results, as a script sees them.

mod shell;

use std::fs;
use std::path::Path;

use serde_json::{Value, json as value};
use shell::{bandroot, json, refused, repository};

/// Leaves a run folder as `bandroot train` does, with made-up numbers.
fn made_up(
    results: &Path,
    name: &str,
    method: &str,
    epochs: usize,
    seed: u64,
    percent: f64,
    more: &str,
) {
    let folder = results.join(name);
    fs::create_dir_all(&folder).unwrap();
    let config = format!(
        "[data]\nname = 'cifar10'\n{more}\n[model]\nname = 'convnet'\n\
         [privacy]\nepsilon = 8.0\ndelta = 0.00001\nclip_norm = 1.0\n[noise]\nmethod = '{method}'\n\
         [optimizer]\nlearning_rate = 0.4\nmomentum = 0.9\ndecay_factor = 0.999\n\
         [training]\nepochs = {epochs}\nbatch_size = 500\nseed = {seed}\n"
    );
    fs::write(folder.join("config.toml"), config).unwrap();
    let summary = value!({"run": "a run", "test_accuracy": percent / 100.0, "steps": 100 * epochs, "seconds": 1.5, "private": true});
    fs::write(folder.join("summary.json"), summary.to_string()).unwrap();
    let environment = value!({"commit": "abc", "cpu": "a <machine>", "unix_time": seed});
    fs::write(folder.join("environment.json"), environment.to_string()).unwrap();
}

fn report(results: &Path) -> Value {
    json(&format!("report --results {} --json", results.display()))
}

fn table(results: &Path, name: &str) -> Vec<csv::StringRecord> {
    let mut reader = csv::Reader::from_path(results.join("report").join(name)).unwrap();
    reader.records().map(|line| line.unwrap()).collect()
}

#[test]
fn means_and_verdicts_are_those_of_the_final_runs() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path();
    // The paper's cells of epsilon 8 and 2 epochs, read here a second time by plain text.
    let paper = include_str!("../paper/cifar10_accuracy.csv");
    let printed = |method: &str| -> (f64, f64) {
        let start = format!("repeated,8,1e-5,200,2,100,500,{method},");
        let line = paper.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
        let (mean, std) = line.split_once(',').unwrap();
        (mean.parse().unwrap(), std.parse().unwrap())
    };
    let (mean, std) = printed("bsr");
    // On the two sides of the line: 1.9 and 2.1 standard deviations below.
    for (seed, offset) in [(0, -0.5), (1, 0.0), (2, 0.5)] {
        made_up(results, &format!("a/bsr-{seed}"), "bsr", 2, seed, mean - 1.9 * std + offset, "");
    }
    let (mean_identity, std_identity) = printed("identity");
    made_up(results, "b/identity", "identity", 2, 0, mean_identity - 2.1 * std_identity, "");
    // None of these may count: a search, another setting with fewer seeds, another data set, a hidden folder.
    made_up(results, "c/search", "bsr", 2, 3, 99.0, "validation = 0.2");
    made_up(results, "c/other", "bsr", 2, 9, 99.0, "");
    let other = fs::read_to_string(results.join("c/other/config.toml")).unwrap();
    fs::write(results.join("c/other/config.toml"), other.replace("0.4", "0.5")).unwrap();
    made_up(results, ".hidden/bsr", "bsr", 2, 4, 99.0, "");
    let counts = report(results);
    assert_eq!((&counts["recorded"], &counts["reached"]), (&2.into(), &1.into()));
    assert_eq!((&counts["runs"], &counts["searches"]), (&5.into(), &1.into()));
    assert!(counts["below"][0].as_str().unwrap().contains("identity"));
    assert_eq!(
        (&counts["order_compared"], counts["order_wrong"].as_array().unwrap().len()),
        (&1.into(), 0)
    );
    let lines = table(results, "accuracy.csv");
    assert_eq!(lines.len(), 2);
    let bsr = &lines[0];
    assert_eq!((&bsr[4], &bsr[7], &bsr[10], &bsr[11]), ("bsr", "3", "true", "1"));
    let number = |text: &str| text.parse::<f64>().unwrap();
    assert!((number(&bsr[5]) - (mean - 1.9 * std)).abs() < 1e-9);
    assert!((number(&bsr[6]) - 0.5).abs() < 1e-9, "the sample standard deviation of -0.5, 0, 0.5");
    let page = fs::read_to_string(results.join("report/index.html")).unwrap();
    assert!(page.contains("a &lt;machine&gt;") && !page.contains("a <machine>"));
    for foreign in ["http:", "https:", "src=", "@import", "url("] {
        assert!(
            !page.replace("http://www.w3.org/2000/svg", "").contains(foreign),
            "{foreign} in the page"
        );
    }
    let markdown = fs::read_to_string(results.join("report/accuracy.md")).unwrap();
    assert!(markdown.contains("(3) |") && markdown.contains("(1)* |"), "a star where it is below");
    let latex = fs::read_to_string(results.join("report/accuracy.tex")).unwrap();
    assert_eq!(latex.matches("\\begin{tabular}").count(), 6);
    assert_eq!(table(results, "searches.csv").len(), 1);
}

#[test]
fn a_run_that_cannot_be_read_is_named_and_the_rest_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path();
    made_up(results, "good", "bsr", 1, 0, 45.0, "");
    made_up(results, "cut", "bsr", 1, 1, 45.0, "");
    fs::write(results.join("cut/summary.json"), "{\"test_acc").unwrap();
    // From a program that knows a key that this one does not.
    made_up(results, "newer", "bsr", 1, 2, 46.0, "colour = 'blue'");
    fs::create_dir(results.join("broken")).unwrap();
    fs::write(results.join("broken/failed.json"), "{\"stderr\": [\"first\", \"out of <memory>\"]}")
        .unwrap();
    let arguments = format!("report --results {} --json", results.display());
    let assert = bandroot(&arguments).assert().success();
    let warning = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(warning.contains("cut") && warning.contains("summary.json"), "{warning}");
    let counts: Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    assert_eq!((&counts["runs"], &counts["failed"]), (&2.into(), &1.into()));
    assert_eq!(counts["unreadable"], value!(["cut"]));
    let page = fs::read_to_string(results.join("report/index.html")).unwrap();
    assert!(page.contains("out of &lt;memory&gt;") && page.contains("could not be read"));
    let runs = table(results, "runs.csv");
    let newer = runs.iter().find(|line| &line[0] == "newer").unwrap();
    assert!(newer[19].contains("data.colour"), "{newer:?}");
    refused(&format!("report --results {}/no", results.display()), 2, &["--results"]);
}

#[test]
fn an_imported_run_is_small_and_says_where_its_strategy_went() {
    let folder = tempfile::tempdir().unwrap();
    let (run, into) = (folder.path().join("run"), folder.path().join("kept"));
    bandroot(&format!(
        "train {} --out {} --no-cache --set data.examples=48 --set data.test_examples=20 --set \
         training.epochs=2 --set training.batch_size=12 --set noise.method=aof",
        repository("configs/textures.toml"),
        run.display()
    ))
    .assert()
    .success();
    let import = format!("results import {} --into {}", run.display(), into.display());
    let assert = bandroot(&import).assert().success();
    let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    assert!(text.contains("1 runs imported") && text.contains("verify"), "{text}");
    let kept = into.join("run");
    let mut names: Vec<String> = fs::read_dir(&kept)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "config.toml",
            "environment.json",
            "metrics.csv",
            "plan.json",
            "privacy-abridged.json",
            "summary.json"
        ]
    );
    let read = |folder: &Path, name: &str| -> Value {
        serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
    };
    let (whole, abridged) = (read(&run, "privacy.json"), read(&kept, "privacy-abridged.json"));
    assert!(whole["strategy"].is_array() && abridged["strategy"].is_null());
    assert!(abridged["plan"]["strategy_sha256"].is_string());
    assert_eq!(whole["plan"], abridged["plan"]);
    for name in &names {
        let text = fs::read_to_string(kept.join(name)).unwrap();
        assert!(
            !text.contains(&folder.path().display().to_string()),
            "{name} holds a path of this machine"
        );
    }
    let again = bandroot(&import).assert().success();
    assert!(String::from_utf8_lossy(&again.get_output().stdout).contains("1 were there already"));
    fs::write(kept.join("summary.json"), "{}").unwrap();
    refused(&import, 1, &["summary.json", "differs"]);
    refused(&format!("results import {}/no", run.display()), 2, &["no folder"]);
}

#[test]
fn recipes_of_our_own_have_a_section_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path();
    made_up(results, "a/bsr", "bsr", 10, 0, 60.0, "");
    let page = || fs::read_to_string(results.join("report/index.html")).unwrap();
    report(results);
    assert!(!page().contains("#best"), "there is nothing to show");
    // As many epochs as no table of the paper has.
    for (seed, percent) in [(1, 70.0), (2, 72.0)] {
        let name = format!("best/epsilon-8-seed-{seed}");
        made_up(results, &name, "bsr", 30, seed, percent, "");
    }
    made_up(results, "best/factorizations/identity", "identity", 30, 1, 50.0, "");
    made_up(results, "best/ablation/recipe", "bsr", 25, 1, 65.0, "");
    made_up(results, "best/ablation/no-mirror", "bsr", 25, 1, 64.5, "");
    made_up(results, "amplification/epsilon-8-fixed-order", "bsr", 30, 1, 63.25, "");
    report(results);
    let best = fs::read_to_string(results.join("report/best.md")).unwrap();
    let line = |word: &str| -> Vec<String> {
        let line =
            best.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{best}"));
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    // 56.186 is the highest mean of the paper at epsilon 8, printed in its table of repeated participation.
    assert_eq!(line("71.00")[..4], ["8", "71.00 \u{b1} 1.41 (2)", "56.2", "60.0"]);
    assert_eq!(line("identity")[..2], ["identity", "50.00 (1)"]);
    assert_eq!(line("no mirror"), ["no mirror", "64.5", "-0.5"]);
    let batches = line("fixed order |");
    assert_eq!(batches[..5], ["8", "fixed order", "bsr", "100", "63.2"]);
    assert!(page().contains("<h2 id=\"best\">"));
}

#[test]
fn runs_are_kept_by_the_tables_they_belong_to() {
    let folder = tempfile::tempdir().unwrap();
    let (runs, kept) = (folder.path().join("runs"), folder.path().join("kept"));
    // One epoch is in two tables; what comes second in the list comes first here.
    for (name, epochs, seed) in [("b", 2, 1), ("a", 2, 0), ("c", 1, 0)] {
        made_up(&runs, name, "bsr", epochs, seed, 40.0, "");
    }
    let import = format!("results import {} --into {} --by-table", runs.display(), kept.display());
    bandroot(&import).assert().success();
    bandroot(&import).assert().success();
    let table = kept.join("repeated-epsilon-8");
    let mut reader = csv::Reader::from_path(table.join("runs.csv")).unwrap();
    let lines = reader.records().map(|line| line.unwrap());
    let found: Vec<[String; 2]> =
        lines.map(|line| [line[0].to_owned(), line[12].to_owned()]).collect();
    let expected = ["c", "a", "b"].map(|name| [name.to_owned(), "40.00".to_owned()]);
    assert_eq!(found, expected);
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 1);
    // What failed has no accuracy, and what is in no table stops everything before anything is written.
    made_up(&runs, "f", "bsr", 2, 2, 40.0, "");
    fs::rename(runs.join("f/summary.json"), runs.join("f/failed.json")).unwrap();
    let said = bandroot(&import).assert().success();
    assert!(String::from_utf8_lossy(&said.get_output().stdout).contains("1 that failed"));
    made_up(&runs, "d", "blt", 2, 0, 40.0, "");
    made_up(&runs, "0", "bsr", 2, 3, 40.0, "");
    refused(&import, 2, &["d is in none", "--by-table"]);
    assert!(!table.join("0").exists());
}

#[test]
fn what_is_recorded_is_not_planned_again() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results");
    // The hyper-parameters of the runs that are made up.
    let tuned = folder.path().join("tuned.toml");
    let text =
        "[default]\nclip_norm = 1.0\nlearning_rate = 0.4\nmomentum = 0.9\ndecay_factor = 0.999\n";
    fs::write(&tuned, text).unwrap();
    let plan = |more: &str| {
        let arguments = format!(
            "reproduce accuracy --epsilon 8 --method bsr --seeds 0,1 --dry-run --results {} --out {}/runs --tuned {} {more}",
            results.display(),
            folder.path().display(),
            tuned.display()
        );
        let assert = bandroot(&arguments).assert().success();
        String::from_utf8_lossy(&assert.get_output().stdout).into_owned()
    };
    let all = plan("--epochs 1,2");
    assert!(all.contains("4 of 4 runs are missing"), "{all}");
    made_up(&results, "one", "bsr", 1, 0, 45.0, "");
    made_up(&results, "search", "bsr", 1, 1, 45.0, "validation = 0.2");
    let rest = plan("--epochs 1,2");
    assert!(rest.contains("3 of 4 runs are missing"), "{rest}");
    let order: Vec<&str> =
        rest.lines().filter(|line| line.trim_start().starts_with("repeated")).collect();
    let seed_and_steps = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[3].to_owned(), words[5].to_owned())
    };
    assert_eq!(
        seed_and_steps(order[0]),
        ("200".into(), "0".into()),
        "a cell without any run comes first: {rest}"
    );
    made_up(&results, "two", "bsr", 1, 1, 45.0, "");
    assert!(plan("--epochs 1").contains("nothing is missing"));
    assert!(plan("--epochs 2 --budget 1s").contains("0 fit into"));
    assert!(plan("--epochs 2").contains("with 64 workers"));
    assert!(!folder.path().join("runs").exists());
    let accuracy = format!("reproduce accuracy --tuned {}", repository("configs/paper/tuned.toml"));
    refused(&format!("{accuracy} --epochs 11"), 2, &["--epochs"]);
    refused(&format!("{accuracy} --method sqrt"), 2, &["--method"]);
}

/// From `correct / examples`, the clipped share and `examples / seconds * seconds` the exact number of examples of an epoch
/// could be read, which on Poisson batches is one of those that the guarantee keeps secret.
#[test]
fn secret_batches_are_told_neither_by_a_run_nor_by_what_is_kept_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let keys = "--set data.examples=60 --set data.test_examples=20 --set training.epochs=2 --set training.batch_size=2 \
                --set noise.method=identity --set privacy.sampling=poisson";
    let run = |name: &str, more: &str| {
        let (config, out) = (repository("configs/textures.toml"), folder.path().join(name));
        let train = format!("train {config} --json --out {} {keys} {more}", out.display());
        (json(&train), out)
    };
    let times = ["seconds", "examples_per_second", "peak_memory_bytes"];
    let (summary, usual) = run("usual", "");
    assert!(times.iter().all(|key| summary[key].is_null()), "{summary}");
    let header = |run: &Path| {
        let table = fs::read_to_string(run.join("metrics.csv")).unwrap();
        table.lines().next().unwrap().to_owned()
    };
    assert_eq!(header(&usual), "epoch,step,test_accuracy,test_loss");
    let events = |run: &Path| {
        let mut names = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
        let path = names.find(|path| path.to_string_lossy().contains("tfevents")).unwrap();
        String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
    };
    assert!(events(&usual).contains("learning_rate") && !events(&usual).contains("batch_loss"));
    bandroot(&format!("verify {} --require-private", usual.display())).assert().success();

    // Who asks for everything gets it, and it is left out where results are kept.
    let (summary, all) = run("all", "--set training.record=all");
    assert!(summary["seconds"].is_f64() && events(&all).contains("batch_loss"));
    assert!(header(&all).contains("not_private_examples_per_second"));
    let kept = folder.path().join("kept");
    let import = format!("results import {} --into {}", all.display(), kept.display());
    bandroot(&import).assert().success();
    let kept_run = kept.join("all");
    assert_eq!(header(&kept_run), header(&usual));
    let text = fs::read(kept_run.join("summary.json")).unwrap();
    let summary: Value = serde_json::from_slice(&text).unwrap();
    assert!(times.iter().all(|key| summary[key].is_null()), "{summary}");
    bandroot(&format!("verify {}", kept_run.display())).assert().success();

    // What was kept before with all of it is cleaned by keeping it again, even from itself.
    fs::copy(all.join("metrics.csv"), kept_run.join("metrics.csv")).unwrap();
    let text = fs::read_to_string(kept_run.join("summary.json")).unwrap();
    let timed = text.replace("\"seconds\": null", "\"seconds\": 1.5");
    assert_ne!(timed, text);
    fs::write(kept_run.join("summary.json"), timed).unwrap();
    let again = format!("results import {} --into {}", kept_run.display(), kept.display());
    bandroot(&again).assert().success();
    assert_eq!(header(&kept_run), header(&usual));
    assert_eq!(fs::read_to_string(kept_run.join("summary.json")).unwrap(), text);
    // Other numbers are still not written over.
    let table = fs::read_to_string(kept_run.join("metrics.csv")).unwrap();
    fs::write(kept_run.join("metrics.csv"), table.replace("2,60,", "2,61,")).unwrap();
    bandroot(&import).assert().failure();
}
