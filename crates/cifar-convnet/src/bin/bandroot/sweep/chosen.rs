//! `chosen.toml`: the config that a search has come to, ready for its final runs.

use std::path::Path;

use super::attempts;
use super::cell::{Cell, Setting};
use super::name::{self, plain};
use super::spec::Select;
use cifar_convnet::config;
use cifar_convnet::files;
use toml::{Table, Value};

/// Writes one config per group, with the first of the final seeds, all training examples, and every run that was begun
/// or is to come in `privacy.trials`.
///
/// `planned` is how many there would be if none failed; `earlier` were made before the search.
pub(super) fn write(
    choices: &[(&Setting, &[Cell])],
    select: &Select,
    planned: u64,
    earlier: u64,
    folder: &Path,
) -> anyhow::Result<()> {
    let counts = attempts::counts(folder)?;
    let finals = choices.iter().flat_map(|(_, cells)| cells.iter());
    let to_come = finals.filter(|cell| !counts.contains_key(&cell.name)).count() as u64;
    let trials = planned.max(earlier + counts.values().sum::<u64>() + to_come);
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

/// `chosen.toml`, or `chosen_method-bsr.toml` for a group.
fn file_name(by: &Setting) -> String {
    let part = |(key, value): &(String, Value)| {
        let last = key.rsplit('.').next().unwrap_or_default();
        format!("_{last}-{}", plain(value))
    };
    let parts: String = by.iter().map(part).collect();
    format!("chosen{}.toml", name::readable(&parts))
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
        let group = by(&[("privacy.epsilon", Value::Float(8.0)), ("noise.method", "a/b".into())]);
        assert_eq!(file_name(&group), "chosen_epsilon-8.0_method-a~b.toml");
    }
}
