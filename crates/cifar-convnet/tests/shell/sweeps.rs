//! Sweeps of tiny runs, and what must be the same in two of them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::repository;

/// Writes a sweep of tiny runs with a fixed noise seed, so that two runs of a cell can be compared.
pub(crate) fn tiny(folder: &Path, rest: &str) -> PathBuf {
    let base = format!(
        "extends = '{}'\n[data]\nexamples = 48\ntest_examples = 20\n[privacy]\nnoise_seed = 5\n\
         [training]\nepochs = 3\nbatch_size = 12\ncheckpoint_steps = 1\n",
        repository("configs/textures.toml")
    );
    fs::write(folder.join("base.toml"), base).unwrap();
    let sweep = folder.join("sweep.toml");
    fs::write(&sweep, format!("base = 'base.toml'\n{rest}")).unwrap();
    sweep
}

/// The names of the run folders.
pub(crate) fn runs(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<_> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

pub(crate) fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// What must be the same in two runs of one cell, bit by bit.
pub(crate) fn result(run: &Path) -> (Vec<u8>, Value, Vec<Vec<String>>) {
    let mut reader = csv::Reader::from_path(run.join("metrics.csv")).unwrap();
    let header = reader.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|found| found == name).unwrap();
    let columns = ["epoch", "step", "test_accuracy", "test_loss"].map(column);
    let lines = reader.records().map(|line| line.unwrap());
    let metrics = lines.map(|line| columns.iter().map(|&c| line[c].to_owned()).collect()).collect();
    let model = fs::read(run.join("parameters.safetensors")).unwrap();
    let mut certificate = read_json(&run.join("privacy.json"));
    // Depends on what else was begun in the folder.
    assert!(certificate.as_object_mut().unwrap().remove("trials").is_some());
    // A name drawn for every run, and where it was taken up again.
    for key in ["run_id", "continued_at"] {
        assert!(certificate["realised"].as_object_mut().unwrap().remove(key).is_some());
    }
    (model, certificate, metrics)
}

/// How many trainings were begun in the folder of a sweep.
pub(crate) fn attempts(sweep: &Path) -> u64 {
    let notes = fs::read_dir(sweep.join(".sweep")).unwrap().map(|entry| entry.unwrap().path());
    let files = notes.filter(|path| path.extension().is_some_and(|end| end == "attempts"));
    files.map(|path| fs::read_to_string(path).unwrap().lines().count() as u64).sum()
}
