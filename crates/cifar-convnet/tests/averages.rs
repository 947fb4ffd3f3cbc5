//! What a run ends with and how it is judged: averages of the iterates, mirror images, evaluation every few epochs.

mod shell;

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use shell::{bandroot, files, json, refused, repository, start};

const EMA: &str = "--set training.average={kind='ema',decay=0.8}";

/// Arguments of a run of 16 steps in 4 epochs on a few textures, the same bits each time.
fn tiny(out: &Path, more: &str) -> String {
    format!(
        "train {} --out {} --json --set data.examples=48 --set data.test_examples=20 --set training.epochs=4 \
         --set training.batch_size=12 --set privacy.noise_seed=5 --set training.checkpoint_steps=1 {more}",
        repository("configs/textures.toml"),
        out.display()
    )
}

fn model(run: &Path) -> Vec<u8> {
    fs::read(run.join("parameters.safetensors")).unwrap()
}

/// The lines of `metrics.csv`, and one column of them.
fn column(run: &Path, name: &str) -> Vec<String> {
    let text = fs::read_to_string(run.join("metrics.csv")).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let at = lines.next().unwrap().iter().position(|found| *found == name);
    let at = at.unwrap_or_else(|| panic!("no {name} in {text}"));
    lines.map(|line| line[at].to_owned()).collect()
}

fn numbers(run: &Path, name: &str) -> Vec<f64> {
    column(run, name).iter().map(|cell| cell.parse().unwrap()).collect()
}

#[test]
fn the_average_is_the_result_and_the_last_iterate_is_named_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| folder.path().join(name);
    let plain = json(&tiny(&run("plain"), ""));
    let summary = json(&tiny(&run("ema"), EMA));
    assert_ne!(model(&run("plain")), model(&run("ema")));
    assert_eq!(plain["last_iterate_test_accuracy"], Value::Null);
    assert_eq!((&plain["average"], &summary["average"]["kind"]), (&Value::Null, &"ema".into()));
    assert!(summary["average"]["decay"].is_f64());
    // The iterates are those of the run without an average.
    assert_eq!(summary["last_iterate_test_accuracy"], plain["test_accuracy"]);
    assert_eq!(summary["last_iterate_test_loss"], plain["test_loss"]);
    assert_ne!(summary["test_loss"], plain["test_loss"]);
    let last = numbers(&run("ema"), "last_iterate_test_loss");
    assert_eq!(last, numbers(&run("plain"), "test_loss"));
    assert_eq!(numbers(&run("ema"), "test_loss")[3], summary["test_loss"].as_f64().unwrap());
    // What is kept is what is measured again, and what the certificate is bound to.
    let again = json(&format!("eval {} --json", run("ema").display()));
    assert_eq!(again["test_loss"], summary["test_loss"]);
    bandroot(&format!("verify {}", run("ema").display())).assert().success();
    let text = fs::read_to_string(run("ema").join("privacy.json")).unwrap();
    let certificate: Value = serde_json::from_str(&text).unwrap();
    let listed = certificate["metrics"].as_array().unwrap();
    let exposure = |name: &str| {
        let found = listed.iter().find(|metric| metric["name"] == name);
        found.map_or(Value::Null, |metric| metric["exposure"].clone())
    };
    for name in ["test_accuracy", "last_iterate_test_accuracy", "last_iterate_test_loss"] {
        assert_eq!(exposure(name), "covered", "{name}");
    }
    let events = files(&run("ema"));
    let events = events.iter().find(|path| path.to_str().unwrap().contains("tfevents")).unwrap();
    let bytes = fs::read(events).unwrap();
    let name = b"last_iterate_test_accuracy";
    assert_eq!(bytes.windows(name.len()).filter(|window| window == name).count(), 4);
}

#[test]
fn an_average_of_one_iterate_is_that_iterate() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| folder.path().join(name);
    bandroot(&tiny(&run("plain"), "")).assert().success();
    for (name, average) in [("ema", "{kind='ema',decay=0}"), ("tail", "{kind='tail',from=0.99}")] {
        let summary = json(&tiny(&run(name), &format!("--set training.average={average}")));
        assert!(model(&run(name)) == model(&run("plain")), "{name}");
        assert_eq!(summary["last_iterate_test_loss"], summary["test_loss"]);
        let [result, last] =
            ["test_loss", "last_iterate_test_loss"].map(|column| numbers(&run(name), column));
        assert_eq!(result, last, "before a tail begins, the last iterate stands for it");
    }
}

/// Starts a run and kills it as soon as it has a state after `steps` steps.
fn killed(arguments: &str, run: &Path, steps: usize) {
    let state = format!("checkpoint-{steps:08}.bin");
    let mut child = start(arguments);
    while !run.join(&state).exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be stopped");
        sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_run_with_an_average_continues_bit_by_bit() {
    let folder = tempfile::tempdir().unwrap();
    let tail = "--set training.average={kind='tail',from=0.3}";
    let open = tail.to_owned() + " --set privacy=none --set evaluation.every=3";
    for (index, (more, steps)) in
        [(EMA, 2), (EMA, 7), (tail, 4), (tail, 9), (&open, 6)].into_iter().enumerate()
    {
        let run = |name: &str| folder.path().join(format!("{name}-{index}"));
        let begin = |run: &Path| {
            let arguments = tiny(run, more);
            // There is no noise to seed.
            if more == open {
                arguments.replace("--set privacy.noise_seed=5", "")
            } else {
                arguments
            }
        };
        bandroot(&begin(&run("whole"))).assert().success();
        killed(&begin(&run("killed")), &run("killed"), steps);
        bandroot(&format!("train --resume {}", run("killed").display())).assert().success();
        assert!(model(&run("whole")) == model(&run("killed")), "{more}, killed after {steps}");
        let mark = if more == open { "not_private_" } else { "" };
        for name in ["test_accuracy", "last_iterate_test_accuracy", "last_iterate_test_loss"] {
            let name = format!("{mark}{name}");
            assert_eq!(column(&run("killed"), &name), column(&run("whole"), &name));
        }
    }
}

#[test]
fn epochs_between_evaluations_keep_their_training_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| folder.path().join(name);
    let whole = json(&tiny(&run("whole"), ""));
    let summary = json(&tiny(&run("seldom"), "--set evaluation.every=3"));
    assert_eq!(summary["test_loss"], whole["test_loss"], "the last epoch is always evaluated");
    assert!(model(&run("whole")) == model(&run("seldom")));
    let [all, some] = ["whole", "seldom"].map(|name| column(&run(name), "test_accuracy"));
    assert_eq!(some, ["", "", &all[2], &all[3]]);
    let train = "not_private_train_loss";
    assert_eq!(column(&run("seldom"), train), column(&run("whole"), train));
    bandroot(&format!("verify {}", run("seldom").display())).assert().success();
    // A line is printed only for epochs that were evaluated.
    let told = tiny(&run("told"), "--set evaluation.every=2").replace("--json", "");
    let output = bandroot(&told).assert().success();
    let text = String::from_utf8(output.get_output().stderr.clone()).unwrap();
    assert!(text.contains("epoch 2 of 4") && !text.contains("epoch 1 of 4"), "{text}");
    let public = "--set evaluation.every=2 --set training.record=public";
    bandroot(&tiny(&run("public"), public)).assert().success();
    assert_eq!(column(&run("public"), "test_accuracy")[0], "");
}

/// A picture of stripes that is not its own mirror image.
fn picture(mirrored: bool) -> image::RgbImage {
    image::RgbImage::from_fn(32, 32, |x, y| {
        let x = if mirrored { 31 - x } else { x };
        image::Rgb([(8 * x) as u8, (x * y / 4) as u8, if x + y < 20 { 250 } else { 3 }])
    })
}

#[test]
fn with_mirror_images_a_picture_and_its_mirror_image_get_one_answer() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| folder.path().join(name);
    for mirrored in [false, true] {
        picture(mirrored).save(run(&format!("{mirrored}.png"))).unwrap();
    }
    // So small a rate that the noise leaves the answers open.
    let slow = "--set optimizer.learning_rate=0.001";
    let plain = json(&tiny(&run("plain"), slow));
    let summary = json(&tiny(&run("mirror"), &format!("{slow} --set evaluation.mirror=true")));
    assert!(model(&run("plain")) == model(&run("mirror")), "training knows nothing of it");
    assert_ne!(summary["test_loss"], plain["test_loss"]);
    let again = json(&format!("eval {} --json", run("mirror").display()));
    assert_eq!(again["test_loss"], summary["test_loss"]);
    let predicted = |name: &str| {
        let (run, [one, other]) = (run(name), ["false.png", "true.png"].map(run));
        let files = format!("{} {}", one.display(), other.display());
        let found = json(&format!("predict {} {files} --json", run.display()));
        [0, 1].map(|at| found[at]["probability"].as_f64().unwrap())
    };
    let [one, other] = predicted("mirror");
    assert!((one - other).abs() < 1e-12, "{one} and {other}");
    let [one, other] = predicted("plain");
    assert!((one - other).abs() > 1e-6, "{one} and {other}");
}

#[test]
fn an_average_that_cannot_be_kept_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let begin = tiny(&run, "--set training.average={kind='ema'}");
    refused(&begin, 2, &["textures.toml", "training.average.decay"]);
    assert!(!run.exists());
}
