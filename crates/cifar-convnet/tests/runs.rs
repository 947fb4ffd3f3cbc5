//! Kinds of runs: without privacy, with a schedule, with views, with a model of one's own, with a public
//! record; each continues bit by bit, and its model can be measured again.

mod shell;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use shell::{bandroot, json, refused, repository};

/// Arguments of a run of 8 steps on a few textures.
fn tiny(config: &str, out: &Path, more: &str) -> String {
    format!(
        "train {} --out {} --set data.examples=48 --set data.test_examples=20 --set training.epochs=2 \
         --set training.batch_size=12 --set training.checkpoint_steps=1 {more}",
        repository(config),
        out.display()
    )
}

const FIXED: &str = "--set privacy.noise_seed=5";

fn model(run: &Path) -> Vec<u8> {
    fs::read(run.join("parameters.safetensors")).unwrap()
}

fn states(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run).into_iter().flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "bin"));
    found.sort();
    found
}

/// Starts a run and kills it as soon as it has two checkpoints.
fn killed(arguments: &str, run: &Path) {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("bandroot"))
        .args(arguments.split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while states(run).len() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be stopped");
        sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The run whole, and killed and continued: the same bits.
fn continues(config: &str, more: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (whole, stopped) = (folder.path().join("whole"), folder.path().join("stopped"));
    bandroot(&tiny(config, &whole, more)).assert().success();
    killed(&tiny(config, &stopped, more), &stopped);
    bandroot(&format!("train --resume {}", stopped.display())).assert().success();
    assert!(model(&whole) == model(&stopped), "{more}");
    (folder, whole)
}

/// All bytes of the one event file of a run.
fn events(run: &Path) -> Vec<u8> {
    let entries = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    let is_events = |path: &PathBuf| {
        path.file_name().unwrap().to_str().unwrap().starts_with("events.out.tfevents.")
    };
    let found: Vec<PathBuf> = entries.filter(is_events).collect();
    assert_eq!(found.len(), 1);
    fs::read(&found[0]).unwrap()
}

fn count(bytes: &[u8], word: &str) -> usize {
    bytes.windows(word.len()).filter(|window| *window == word.as_bytes()).count()
}

#[test]
fn a_run_without_privacy_claims_none() {
    for more in ["--set privacy=none", "--set privacy=none --set optimizer.clip_norm=0.5"] {
        let (folder, whole) = continues("configs/textures.toml", more);
        let stopped = folder.path().join("stopped");
        for run in [&whole, &stopped] {
            assert!(!run.join("privacy.json").exists() && !run.join("plan.json").exists());
            let text = fs::read_to_string(run.join("summary.json")).unwrap();
            let summary: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((&summary["private"], &summary["epsilon"]), (&false.into(), &Value::Null));
            assert_eq!(summary["delta"], Value::Null);
            assert!(summary["statement"].as_str().unwrap().starts_with("not private"));
            refused(&format!("verify {}", run.display()), 1, &["privacy = \"none\""]);
            // 8 steps and 2 epochs, each once, whatever was killed.
            let events = events(run);
            assert_eq!(count(&events, "not-private/learning_rate"), 8);
            assert_eq!(count(&events, "not-private/test_accuracy"), 2);
            assert_eq!(count(&events, "learning_rate"), 8, "all of it is marked");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let output = bandroot(&tiny("configs/textures.toml", &run, "--set privacy=none")).assert();
    let text = String::from_utf8(output.success().get_output().stdout.clone()).unwrap();
    assert!(text.contains("not private"), "{text}");
    let config = repository("configs/textures-without-privacy.toml");
    for command in ["plan", "compare", "audit"] {
        refused(&format!("{command} {config}"), 2, &["without-privacy.toml", "\"none\""]);
    }
}

#[test]
fn a_checkpoint_is_not_continued_with_or_without_privacy_if_it_began_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    killed(&tiny("configs/textures.toml", &run, "--set privacy=none"), &run);
    let config = fs::read_to_string(run.join("config.toml")).unwrap();
    let private = config
        .replace("privacy = \"none\"", "[privacy]\nepsilon = 8.0\ndelta = 1e-5\nclip_norm = 1.0\n");
    assert_ne!(private, config);
    fs::write(run.join("config.toml"), private).unwrap();
    let resume = format!("train --resume {}", run.display());
    refused(&resume, 3, &["privacy was \"none\"", "a guarantee now", "config.toml"]);
    let began = folder.path().join("began");
    killed(&tiny("configs/textures.toml", &began, ""), &began);
    fs::write(began.join("config.toml"), config).unwrap();
    let resume = format!("train --resume {}", began.display());
    refused(&resume, 3, &["privacy was a guarantee", "\"none\" now", "config.toml"]);
    assert!(!run.join("privacy.json").exists());
}

#[test]
fn a_schedule_is_trained_verified_and_kept_to() {
    let more = format!("--set optimizer.schedule=cosine --set noise.strategy_for=schedule {FIXED}");
    let (folder, whole) = continues("configs/textures.toml", &more);
    bandroot(&format!("verify {}", whole.display())).assert().success();
    let constant = folder.path().join("constant");
    bandroot(&tiny("configs/textures.toml", &constant, FIXED)).assert().success();
    assert_ne!(model(&whole), model(&constant));
    // Another schedule under the same strategy is another run.
    let stopped = folder.path().join("other");
    let cooled = format!("--set optimizer.schedule=linear-cooldown {FIXED}");
    killed(&tiny("configs/textures.toml", &stopped, &cooled), &stopped);
    let config = fs::read_to_string(stopped.join("config.toml")).unwrap();
    fs::write(stopped.join("config.toml"), config.replace("linear-cooldown", "cosine")).unwrap();
    refused(&format!("train --resume {}", stopped.display()), 3, &["optimizer.schedule"]);
}

#[test]
fn views_are_drawn_from_the_seed_and_private_all_the_same() {
    let views = "--set data.augmentation.crop_padding=2 --set data.augmentation.flip=true \
                 --set data.augmentation.multiplicity=3";
    let (folder, whole) = continues("configs/textures.toml", &format!("{views} {FIXED}"));
    bandroot(&format!("verify {}", whole.display())).assert().success();
    let plain = folder.path().join("plain");
    bandroot(&tiny("configs/textures.toml", &plain, FIXED)).assert().success();
    assert_ne!(model(&whole), model(&plain));
    for more in ["--set privacy=none", "--set privacy=none --set optimizer.clip_norm=1.0"] {
        let open = folder.path().join(format!("open-{}", more.len()));
        let arguments = tiny("configs/textures.toml", &open, &format!("{views} {more}"));
        bandroot(&arguments).assert().success();
    }
}

#[test]
fn a_model_of_ones_own_is_trained_and_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let summary = json(&tiny("configs/own-model.toml", &run, "--json"));
    assert_eq!(summary["private"], true);
    let report = json(&format!("eval {} --json", run.display()));
    assert_eq!(report["test_accuracy"], summary["test_accuracy"]);
    assert_eq!(report["test_loss"], summary["test_loss"]);
}

#[test]
fn what_was_measured_is_measured_again_from_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let (run, csv) = (folder.path().join("run"), folder.path().join("logits.csv"));
    let tuned = "--json --set data.validation=0.25";
    let summary = json(&tiny("configs/textures.toml", &run, tuned));
    let name = run.display();
    let report = json(&format!("eval {name} --json --logits {}", csv.display()));
    assert_eq!((&report["split"], &report["examples"]), (&"validation".into(), &12.into()));
    assert!(summary["validation_accuracy"].is_number(), "{summary}");
    assert_eq!(report["validation_accuracy"], summary["validation_accuracy"]);
    assert_eq!(report["validation_loss"], summary["validation_loss"]);
    // The table says the same.
    let text = fs::read_to_string(&csv).unwrap();
    let rows: Vec<Vec<f64>> = text
        .lines()
        .skip(1)
        .map(|line| line.split(',').map(|number| number.parse().unwrap()).collect())
        .collect();
    assert_eq!((rows.len(), rows[0].len()), (12, 3 + 10));
    let (mut right, mut loss) = (0, 0.0);
    for row in &rows {
        let (label, logits) = (row[1] as usize, &row[3..]);
        right += usize::from(row[1] == row[2]);
        let top = logits.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = logits.iter().map(|z| (z - top).exp()).sum();
        loss += sum.ln() + top - logits[label];
    }
    let accuracy = f64::from(right as u32) / 12.0;
    assert!((accuracy - report["validation_accuracy"].as_f64().unwrap()).abs() < 1e-12);
    let reported = report["validation_loss"].as_f64().unwrap();
    assert!((loss / 12.0 - reported).abs() < 1e-5 * (1.0 + reported), "{loss} and {reported}");
    for (split, examples) in [("test", 20), ("train", 36)] {
        let report = json(&format!("eval {name} --json --split {split}"));
        assert!(report[format!("{split}_accuracy")].is_number(), "{report}");
        assert_eq!((&report["split"], &report["examples"]), (&split.into(), &examples.into()));
    }
    let untuned = folder.path().join("untuned");
    bandroot(&tiny("configs/textures.toml", &untuned, "")).assert().success();
    let name = untuned.display();
    refused(&format!("eval {name} --split validation"), 2, &["data.validation"]);
    let path = untuned.join("parameters.safetensors");
    fs::write(&path, &model(&untuned)[..5000]).unwrap();
    refused(&format!("eval {name}"), 1, &["parameters.safetensors", "safetensors file"]);
    fs::remove_file(path).unwrap();
    refused(&format!("eval {name}"), 1, &["parameters.safetensors", "finished"]);
    refused("eval no-such-run", 1, &["no-such-run"]);
}

#[test]
fn accuracy_on_held_out_training_examples_is_not_called_private_or_a_test() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let summary = json(&tiny("configs/textures.toml", &run, "--json --set data.validation=0.25"));
    assert_eq!((&summary["test_accuracy"], &summary["test_loss"]), (&Value::Null, &Value::Null));
    let metrics = fs::read_to_string(run.join("metrics.csv")).unwrap();
    assert!(metrics.starts_with("epoch,step,not_private_validation_accuracy,"), "{metrics}");
    let events = events(&run);
    assert_eq!(count(&events, "not-private/validation_accuracy"), 2);
    assert_eq!(count(&events, "validation_accuracy"), 2, "none without the mark");
    assert_eq!(count(&events, "test_accuracy"), 0);
    let certificate: Value =
        serde_json::from_slice(&fs::read(run.join("privacy.json")).unwrap()).unwrap();
    assert_eq!(certificate["held_out_examples"], 12);
    let listed = certificate["metrics"].as_array().unwrap();
    let exposure = |name: &str| {
        let found = listed.iter().find(|metric| metric["name"] == name);
        found.map_or(Value::Null, |metric| metric["exposure"].clone())
    };
    assert_eq!(exposure("validation_accuracy"), "not_private");
    assert_eq!(exposure("validation_loss"), "not_private");
    assert_eq!(exposure("batch_loss"), "not_private");
    assert_eq!(exposure("learning_rate"), "covered");
    assert_eq!(exposure("test_accuracy"), Value::Null);
    let told = folder.path().join("told");
    let told = tiny("configs/textures.toml", &told, "--set data.validation=0.25");
    let output = bandroot(&told).assert().success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    assert!(text.contains("validation") && text.contains("not private"), "{text}");
    assert!(!text.contains("test accuracy"), "{text}");
    let other = folder.path().join("other");
    let public = "--set data.validation=0.25 --set training.record=public";
    let refusal = tiny("configs/textures.toml", &other, public);
    refused(&refusal, 2, &["textures.toml", "training.record", "data.validation"]);
    assert!(!other.exists());
}

#[test]
fn a_certificate_names_the_config_the_data_and_the_model_that_it_belongs_to() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = |name: &str, more: &str| {
        let run = folder.path().join(name);
        bandroot(&tiny("configs/textures.toml", &run, more)).assert().success();
        let text = fs::read(run.join("privacy.json")).unwrap();
        let certificate: Value = serde_json::from_slice(&text).unwrap();
        let hash: String =
            Sha256::digest(model(&run)).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(certificate["artifacts"]["parameters_sha256"], hash);
        certificate["artifacts"].clone()
    };
    let one = artifacts("one", FIXED);
    let free = "--set engine.threads=1 --set data.folder=elsewhere --set privacy.trials=3";
    assert_eq!(artifacts("same", &format!("{FIXED} {free}")), one);
    let other = artifacts("other", &format!("{FIXED} --set optimizer.learning_rate=0.01"));
    assert_ne!(other["config_sha256"], one["config_sha256"]);
    assert_eq!(other["training_data_sha256"], one["training_data_sha256"]);
    let tuned = artifacts("tuned", &format!("{FIXED} --set data.validation=0.25"));
    assert_ne!(tuned["training_data_sha256"], one["training_data_sha256"]);
}

#[test]
fn a_public_record_shows_nothing_that_is_not_covered() {
    let folder = tempfile::tempdir().unwrap();
    let (public, all) = (folder.path().join("public"), folder.path().join("all"));
    let config = "configs/textures.toml";
    let summary = json(&tiny(config, &public, "--json --set training.record=public"));
    for key in ["seconds", "examples_per_second", "peak_memory_bytes"] {
        assert_eq!(summary[key], Value::Null, "{key}");
    }
    let metrics = fs::read_to_string(public.join("metrics.csv")).unwrap();
    assert!(metrics.starts_with("epoch,step,test_accuracy,test_loss\n"), "{metrics}");
    let certificate = fs::read_to_string(public.join("privacy.json")).unwrap();
    assert!(!certificate.contains("not_private") && !certificate.contains("train_loss"));
    let stripped = events(&public);
    assert_eq!(count(&stripped, "not-private"), 0);
    assert_eq!((count(&stripped, "test_accuracy"), count(&stripped, "learning_rate")), (2, 8));
    bandroot(&format!("verify {} --require-private", public.display())).assert().success();
    bandroot(&tiny(config, &all, "")).assert().success();
    let marked = events(&all);
    assert_eq!(count(&marked, "not-private/batch_loss"), 8);
    assert_eq!(count(&marked, "train_loss"), count(&marked, "not-private/train_loss"));
    assert!(fs::read_to_string(all.join("privacy.json")).unwrap().contains("train_loss"));
}
