//! The names of cells: readable, and another for every config.

use cifar_convnet::data::Name;
use clap::ValueEnum;
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

/// A hash of what a config says, in sorted order. How often a checkpoint is written and how many other runs there are
/// makes no other run of it, nor does where the files of a known data set lie; data of one's own are known by their
/// folder.
fn identity(table: &Table) -> String {
    let mut lines = Vec::new();
    flatten(table, "", &mut lines);
    let name = table.get("data").and_then(|data| data.get("name")?.as_str());
    let is_known = name.is_some_and(|name| Name::from_str(name, false).is_ok());
    let irrelevant: &[&str] = &["training.checkpoint_steps=", "privacy.trials=", "data.folder="];
    let irrelevant = if is_known { irrelevant } else { &irrelevant[..2] };
    lines.retain(|line| !irrelevant.iter().any(|key| line.starts_with(key)));
    lines.sort();
    hash(&lines.join("\n"))
}

/// The first 32 bits of a text's SHA-256.
pub(super) fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_ones_own_are_told_apart_by_their_folder() {
        let of = |name: &str, folder: &str| {
            let text = format!("[data]\nname = '{name}'\nfolder = '{folder}'\n");
            identity(&text.parse().unwrap())
        };
        assert_eq!(of("cifar10", "a"), of("cifar10", "b"));
        for own in ["npy", "folder", "idx", "csv"] {
            assert_ne!(of(own, "a"), of(own, "b"));
        }
    }
}
