//! `chosen.toml`: the config that a search has come to, ready for its final runs.

use std::collections::BTreeSet;
use std::path::Path;

use super::cell::{Cell, Setting};
use super::name::{self, plain};
use super::spec::Select;
use cifar_convnet::config;
use cifar_convnet::files;
use toml::{Table, Value};

/// Writes one config per group, with the first of the final seeds, all training examples, and every run that was begun
/// or is to come in `privacy.trials`.
pub(super) fn write(
    choices: &[(&Setting, &[Cell])],
    select: &Select,
    trials: u64,
    folder: &Path,
) -> anyhow::Result<()> {
    for (by, cells) in choices {
        let Some(cell) = cells.first() else { continue };
        let mut table: Table = cell.toml()?.parse()?;
        // A run without privacy has no certificate to state them in.
        if table.get("privacy").is_some_and(Value::is_table) {
            let trials = i64::try_from(trials).unwrap_or(i64::MAX);
            config::file::set(&mut table, "privacy.trials", Value::Integer(trials));
        }
        let file = file_name(by);
        let seeds: Vec<String> = select.seeds.iter().map(ToString::to_string).collect();
        let text = format!(
            "# Chosen by bandroot sweep: the best of {} on held-out training examples, a share of {}.\n\
             # The choice is not covered by epsilon, which is that of one run: privacy.trials counts all {trials} runs.\n\
             # The seeds of the final runs were fixed before the search, {}:\n\
             #     bandroot train {file} --set training.seed=SEED\n\n{}",
            if by.is_empty() { "all settings".to_owned() } else { name::words(by) },
            select.validation,
            seeds.join(", "),
            toml::to_string_pretty(&table)?
        );
        files::write(&folder.join(&file), text.as_bytes())?;
    }
    Ok(())
}

/// `chosen.toml`, or `chosen_method-bsr.toml` for a group; with a hash where the name cannot say it all.
fn file_name(by: &Setting) -> String {
    let part = |(key, value): &(String, Value)| {
        let last = key.rsplit('.').next().unwrap_or_default();
        format!("_{last}-{}", plain(value))
    };
    let parts: String = by.iter().map(part).collect();
    let readable = name::readable(&parts);
    let keys = by.iter().map(|(key, _)| key.rsplit('.').next()).collect::<BTreeSet<_>>();
    let is_all = readable == parts && keys.len() == by.len();
    let hash = if is_all { String::new() } else { format!("_{}", name::hash(&name::words(by))) };
    format!("chosen{readable}{hash}.toml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_named_in_its_file() {
        let by = |pairs: &[(&str, Value)]| -> Setting {
            pairs.iter().map(|(key, value)| (key.to_string(), value.clone())).collect()
        };
        assert_eq!(file_name(&by(&[])), "chosen.toml");
        let group = |method: &str| {
            file_name(&by(&[
                ("privacy.epsilon", Value::Float(8.0)),
                ("noise.method", method.into()),
            ]))
        };
        assert_eq!(group("bsr"), "chosen_epsilon-8.0_method-bsr.toml");
        assert!(group("a/b").starts_with("chosen_epsilon-8.0_method-a~b_"));
        assert_ne!(group("a/b"), group("a~b"));
        let long = "x".repeat(200);
        assert_ne!(group(&long), group(&format!("{long}y")));
    }
}
