//! Running the program as a shell does.

#![allow(dead_code, reason = "every test file uses its own part")]

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
