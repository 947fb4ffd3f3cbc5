//! The names of cells: readable, and another for every config.

use sha2::{Digest, Sha256};
use toml::{Table, Value};

/// Longest readable part of a folder's name.
const LONGEST: usize = 120;

/// A value as it stands in names and tables: a string without its quotes.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// `noise.method = bsr, optimizer.learning_rate = 0.1`.
pub(super) fn words(setting: &[(String, Value)]) -> String {
    let part = |(key, value): &(String, Value)| format!("{key} = {}", plain(value));
    setting.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// `method-bsr_learning_rate-0.1_seed-0_1a2b3c4d`.
pub(super) fn of(prefix: &str, setting: &[(String, Value)], seed: u64, table: &Table) -> String {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let part = |(key, value): &(String, Value)| {
        let short = last(key);
        let twice = setting.iter().filter(|(other, _)| last(other) == short).count() > 1;
        format!("{}-{}", if twice { key } else { &short }, plain(value))
    };
    let parts = setting.iter().map(part).chain([format!("seed-{seed}")]);
    let parts: Vec<String> = Some(prefix.to_owned())
        .filter(|prefix| !prefix.is_empty())
        .into_iter()
        .chain(parts)
        .collect();
    format!("{}_{}", readable(&parts.join("_")), identity(table))
}

/// A text as a part of a file's name.
pub(super) fn readable(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '~' };
    text.chars().map(plain).take(LONGEST).collect()
}

/// The first 32 bits of the SHA-256 of what a config says, in sorted order. Where the data lies, how often
/// a checkpoint is written and how many other runs there are makes no other run of it.
fn identity(table: &Table) -> String {
    let mut lines = Vec::new();
    flatten(table, "", &mut lines);
    let irrelevant = ["data.folder=", "training.checkpoint_steps=", "privacy.trials="];
    lines.retain(|line| !irrelevant.iter().any(|key| line.starts_with(key)));
    lines.sort();
    let digest = Sha256::digest(lines.join("\n").as_bytes());
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn flatten(table: &Table, prefix: &str, lines: &mut Vec<String>) {
    for (key, value) in table {
        match value {
            Value::Table(inner) => flatten(inner, &format!("{prefix}{key}."), lines),
            // 4 and 4.0 are one number to the config.
            Value::Integer(number) => lines.push(format!("{prefix}{key}={}", *number as f64)),
            Value::Float(number) => lines.push(format!("{prefix}{key}={number}")),
            value => lines.push(format!("{prefix}{key}={value}")),
        }
    }
}
