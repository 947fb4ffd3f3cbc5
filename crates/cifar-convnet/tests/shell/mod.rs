//! Running the program as a shell does.

#![allow(dead_code, reason = "every test file uses its own part")]

pub(crate) mod sweeps;

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

pub(crate) fn bandroot(arguments: &str) -> Command {
    let mut command = Command::cargo_bin("bandroot").expect("the binary is built");
    command.args(arguments.split_whitespace());
    command
}

pub(crate) fn json(arguments: &str) -> Value {
    let output = bandroot(arguments).assert().success().get_output().stdout.clone();
    serde_json::from_slice(&output).expect("one JSON object")
}

/// The command ends with this exit code and one sentence that contains these words.
pub(crate) fn refused(arguments: &str, code: i32, words: &[&str]) {
    let assert = bandroot(arguments).assert().code(code);
    let output = assert.get_output();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.stdout.is_empty(), "{arguments}: prints a result all the same");
    assert_eq!(message.trim_end().lines().count(), 1, "{arguments}: {message}");
    for word in words {
        assert!(message.contains(word), "{arguments}: no {word:?} in {message:?}");
    }
}

/// A file of the repository.
pub(crate) fn repository(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}

/// The files of a folder, sorted; none if it does not exist.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// The noise key in a checkpoint: 32 bytes after a marker of 16.
pub(crate) fn noise_key(checkpoint: &Path) -> [u8; 32] {
    let bytes = fs::read(checkpoint).unwrap();
    let marker = b"bandroot noise ";
    let at = bytes.windows(marker.len()).position(|window| window == marker).unwrap();
    bytes[at + 16..][..32].try_into().unwrap()
}

/// A finished run without any file that can hold a key, and without the key in any other.
pub(crate) fn assert_no_secret(run: &Path, key: Option<[u8; 32]>) {
    assert!(run.join("summary.json").exists());
    for path in files(run) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(!name.starts_with("checkpoint-") && !name.ends_with(".partial"), "{name}");
        assert!(!name.ends_with(".pending"), "{name}");
        let bytes = fs::read(&path).unwrap();
        if let Some(key) = key {
            assert!(bytes.windows(32).all(|window| window != key), "{name} holds the key");
        }
    }
}

/// How many SIGKILLs a test is to send: `BANDROOT_KILLS`, or as many as fit into seconds.
pub(crate) fn wanted_kills(usual: usize) -> usize {
    std::env::var("BANDROOT_KILLS").map_or(usual, |kills| kills.parse().expect("a number of kills"))
}

/// Starts the program without waiting for it.
pub(crate) fn start(arguments: &str) -> std::process::Child {
    std::process::Command::new(assert_cmd::cargo::cargo_bin!("bandroot"))
        .args(arguments.split_whitespace())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap()
}
