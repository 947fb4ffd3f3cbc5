//! Reading a config: files that extend one another, overrides, unknown keys.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, bail};
use schemars::schema_for;
use serde_json::Value as Schema;
use toml::{Table, Value};

use super::data::Data;
use super::privacy::OLD_ZERO_OUT;
use super::{Config, Record, bands};
use crate::bad_argument::BadArgument;

/// Reads a config file, follows `extends = "base.toml"` (relative to the file; the file that extends
/// wins), applies `key=value` overrides, and checks the result.
///
/// # Errors
/// Every message names the file and the key.
pub fn read(path: &Path, overrides: &[String]) -> anyhow::Result<Config> {
    let table = read_table(path, overrides)?;
    let word = table.get("privacy").and_then(|privacy| privacy.get("neighbouring"));
    let is_old = word.and_then(Value::as_str) == Some(OLD_ZERO_OUT);
    let config = complete(table, path)?;
    if is_old {
        log::info!(
            "{}: privacy.neighbouring = \"{OLD_ZERO_OUT}\" is read as \"zero-out\": one example's \
             gradients are zero, the number of examples is public, and the others keep their places",
            path.display()
        );
    }
    Ok(config)
}

/// What a config file and the files that it extends say, with the overrides: only what is written, no
/// defaults, and nothing checked.
pub fn read_table(path: &Path, overrides: &[String]) -> anyhow::Result<Table> {
    let mut table = read_chain(path, &mut Vec::new())?;
    for text in overrides {
        apply(&mut table, text)?;
    }
    Ok(table)
}

/// The config that a table says, if it has no unknown key and misses none; `path` is named in the refusal.
pub fn check(mut table: Table, path: &Path) -> anyhow::Result<Config> {
    rename_old_keys(&mut table, path)?;
    refuse_unknown_keys(&table, path)?;
    let config = Value::Table(table).try_into::<Config>();
    Ok(config.map_err(|error| refusal(&error, path))?)
}

/// On one line, with the file.
fn refusal(error: &toml::de::Error, path: &Path) -> BadArgument {
    let reason = error.to_string().trim().replace('\n', " ");
    BadArgument(format!("{}: {reason}", path.display()))
}

/// Whether a table has `section.key`.
pub fn says(table: &Table, section: &str, key: &str) -> bool {
    table.get(section).is_some_and(|section| section.get(key).is_some())
}

/// As [`check`], and with what the folders and file headers say that the config leaves out, the strategy and the
/// record that are usual for it, and the best bands if they are asked for: how long an epoch is, is known only then.
///
/// # Errors
/// Those of [`check`], and the folder or file that is missing.
pub fn complete(mut table: Table, path: &Path) -> anyhow::Result<Config> {
    let says_strategy = says(&table, "noise", "strategy_for");
    let says_record = says(&table, "training", "record");
    let asks_for_bands = bands::take_best(&mut table);
    let mut config = check(table, path)?;
    config.data = config.data.complete().with_context(|| path.display().to_string())?;
    let usual = config.usual_strategy();
    if let Some(noise) = config.noise.as_mut().filter(|_| !says_strategy) {
        noise.strategy_for = usual;
    }
    if !says_record && config.privacy.has_secret_batches() {
        config.training.record = Record::NoBatches;
    }
    if asks_for_bands {
        let wrong = |error| BadArgument(format!("{}: {error}", path.display()));
        config.choose_bands().map_err(wrong)?;
    }
    Ok(config)
}

/// Only the section `[data]` of a config, whatever the rest is, with another folder if one is given.
///
/// # Errors
/// Every message names the file and the key.
pub fn read_data(path: &Path, folder: Option<&Path>) -> anyhow::Result<Data> {
    let mut table = read_table(path, &[])?;
    table.retain(|section, _| section == "data");
    refuse_unknown_keys(&table, path)?;
    let missing = || BadArgument(format!("{}: it has no section [data]", path.display()));
    let data = table.remove("data").ok_or_else(missing)?.try_into::<Data>();
    let mut data = data.map_err(|error| refusal(&error, path))?;
    if let Some(folder) = folder {
        data.folder = folder.to_owned();
    }
    data.complete().with_context(|| path.display().to_string())
}

/// Keys that had another name once: the section, the old name, the new one.
const RENAMED: [(&str, &str, &str); 1] = [("data.augmentation", "multiplicity", "views")];

/// Gives old keys their new names.
fn rename_old_keys(table: &mut Table, path: &Path) -> anyhow::Result<()> {
    for (section, old, new) in RENAMED {
        let mut inner = Some(&mut *table);
        for name in section.split('.') {
            inner = inner.and_then(|table| table.get_mut(name)?.as_table_mut());
        }
        let Some(inner) = inner else { continue };
        if let Some(value) = inner.remove(old)
            && inner.insert(new.to_owned(), value).is_some()
        {
            bail!(BadArgument(format!(
                "{}: {section}.{old} is an older name of {section}.{new}: give one of them",
                path.display()
            )));
        }
    }
    Ok(())
}

/// The tables of a file and of what it extends, merged.
fn read_chain(path: &Path, open: &mut Vec<PathBuf>) -> anyhow::Result<Table> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("could not read the config {}", path.display()))?;
    let mut table = parse(&text, path)?;
    let canonical = path.canonicalize().with_context(|| path.display().to_string())?;
    if open.contains(&canonical) {
        bail!(BadArgument(format!("{}: it extends itself", path.display())));
    }
    open.push(canonical);
    match table.remove("extends") {
        None => Ok(table),
        Some(Value::String(base)) => {
            let base = path.parent().unwrap_or(Path::new("")).join(base);
            let mut merged = read_chain(&base, open)
                .with_context(|| format!("{} extends {}", path.display(), base.display()))?;
            merge(&mut merged, table);
            Ok(merged)
        }
        Some(other) => bail!(BadArgument(format!(
            "{}: extends must be the path of a config in quotes, not {other}",
            path.display()
        ))),
    }
}

/// What a text says; `path` is named in the refusal.
pub(super) fn parse(text: &str, path: &Path) -> anyhow::Result<Table> {
    let parsed = text.parse().map_err(|error: toml::de::Error| {
        let line = line_of(text, error.span());
        BadArgument(format!("{}, line {line}: {}", path.display(), error.message()))
    });
    Ok(parsed?)
}

/// The line in which a refusal starts, counted from 1.
pub fn line_of(text: &str, span: Option<std::ops::Range<usize>>) -> usize {
    let before = &text.as_bytes()[..span.map_or(0, |span| span.start.min(text.len()))];
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(value)) => merge(inner, value),
            (_, value) => drop(base.insert(key, value)),
        }
    }
}

/// Sets `section.key=value`, or a whole section as in `privacy=none`; the value is TOML, and a bare word
/// stands for a string.
pub(super) fn apply(table: &mut Table, text: &str) -> anyhow::Result<()> {
    let usage = || BadArgument(format!("--set takes section.key=value, not {text:?}"));
    let (path, value) = text.split_once('=').ok_or_else(usage)?;
    if path.trim().is_empty() {
        return Err(usage().into());
    }
    let value = value.trim();
    // One value: what follows it on another line would be left out without a word.
    let parsed = format!("v = {value}").parse::<Table>().ok().filter(|table| table.len() == 1);
    let parsed = parsed.and_then(|mut table| table.remove("v"));
    let value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
    set(table, path.trim(), value).ok_or_else(usage)?;
    Ok(())
}

/// Sections that a key may stand in: more than any has, and few enough to be walked through.
const MOST_SECTIONS: usize = 8;

/// Sets the value of `key` or `section.key`; `None` if something else is in its way, or if it stands deeper
/// than any key does.
pub fn set(table: &mut Table, path: &str, value: Value) -> Option<()> {
    let (sections, key) = path.rsplit_once('.').unwrap_or(("", path));
    if sections.split('.').count() > MOST_SECTIONS {
        return None;
    }
    let mut inner = table;
    for section in sections.split('.').filter(|section| !section.is_empty()) {
        let entry = inner.entry(section).or_insert_with(|| Value::Table(Table::new()));
        inner = entry.as_table_mut()?;
    }
    inner.insert(key.to_owned(), value);
    Some(())
}

/// Refuses the first key that no field has, naming the nearest that one has.
fn refuse_unknown_keys(table: &Table, path: &Path) -> anyhow::Result<()> {
    // The same for every config, and a sweep has many.
    static KNOWN: OnceLock<Vec<String>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let schema = schema_for!(Config).to_value();
        known_keys(&schema, &schema, "")
    });
    let mut given = Vec::new();
    collect_keys(table, "", &mut given);
    for key in given {
        if known.contains(&key) {
            continue;
        }
        let nearest = known
            .iter()
            .max_by(|a, b| strsim::jaro_winkler(a, &key).total_cmp(&strsim::jaro_winkler(b, &key)));
        let hint = nearest.map_or(String::new(), |nearest| format!("; did you mean {nearest}?"));
        bail!(BadArgument(format!("{}: unknown key {key}{hint}", path.display())));
    }
    Ok(())
}

/// `section` and `section.key` of every field.
fn known_keys(schema: &Schema, root: &Schema, prefix: &str) -> Vec<String> {
    let mut keys = Vec::new();
    for (name, field) in super::page::properties(schema) {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        keys.extend(known_keys(super::page::resolve(field, root), root, &key));
        keys.push(key);
    }
    keys
}

fn collect_keys(table: &Table, prefix: &str, keys: &mut Vec<String>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        // The section first, so that a misspelt one is named rather than its content.
        keys.push(key.clone());
        if let Value::Table(inner) = value {
            collect_keys(inner, &key, keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use dp_train::Neighbouring;

    use super::super::privacy::Privacy;
    use super::*;

    const WHOLE: &str = "
        [data]\nname = 'textures'\n[model]\nname = 'convnet'\n
        [privacy]\nepsilon = 4.0\ndelta = 1e-5\nclip_norm = 1.0\n
        [noise]\nmethod = 'bsr'\n[optimizer]\nlearning_rate = 0.5\n
        [training]\nepochs = 2\nbatch_size = 100\n";

    fn in_folder(files: &[(&str, &str)], overrides: &[&str]) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        read(&folder.path().join(files[0].0), &overrides).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn defaults_are_filled_in() {
        let config = in_folder(&[("a.toml", WHOLE)], &[]).unwrap();
        assert_eq!((config.optimizer.momentum, config.optimizer.decay_factor), (0.0, 1.0));
        let Privacy::Guaranteed(guarantee) = config.privacy else { panic!("it is private") };
        assert_eq!(guarantee.neighbouring, Neighbouring::ZeroOut);
        assert_eq!(config.noise.unwrap().bands, None);
    }

    #[test]
    fn the_file_that_extends_wins_and_overrides_win_over_it() {
        let child = "extends = 'base.toml'\n[privacy]\nepsilon = 8.0\n[training]\nepochs = 5";
        let files = [("child.toml", child), ("base.toml", WHOLE)];
        let config = in_folder(&files, &["training.epochs=7", "noise.method=aof"]).unwrap();
        let Privacy::Guaranteed(guarantee) = config.privacy else { panic!("it is private") };
        assert_eq!((guarantee.epsilon, guarantee.delta), (8.0, 1e-5));
        assert_eq!((config.training.epochs, config.training.batch_size), (7, 100));
        assert_eq!(config.noise.unwrap().method, crate::factorizations::MethodName::Aof);
    }

    #[test]
    fn every_refusal_names_the_file_and_the_key() {
        let refused = |files: &[(&str, &str)], overrides: &[&str], words: &[&str]| {
            let message = in_folder(files, overrides).unwrap_err();
            for word in words {
                assert!(message.contains(word), "no {word:?} in {message:?}");
            }
        };
        let typo = WHOLE.replace("epsilon", "epsilom");
        refused(&[("a.toml", &typo)], &[], &["a.toml", "privacy.epsilom", "privacy.epsilon?"]);
        let section = WHOLE.replace("[noise]", "[nose]");
        refused(&[("a.toml", &section)], &[], &["a.toml", "nose", "noise?"]);
        let missing = WHOLE.replace("delta = 1e-5", "");
        refused(&[("a.toml", &missing)], &[], &["a.toml", "delta"]);
        let kind = WHOLE.replace("epochs = 2", "epochs = 'two'");
        refused(&[("a.toml", &kind)], &[], &["a.toml", "epochs"]);
        refused(&[("a.toml", "[data\n")], &[], &["a.toml", "line 1"]);
        refused(&[("a.toml", "extends = 'a.toml'")], &[], &["a.toml", "extends itself"]);
        refused(&[("a.toml", "extends = 'no.toml'")], &[], &["no.toml", "a.toml"]);
        refused(&[("a.toml", "extends = 3")], &[], &["a.toml", "extends"]);
        refused(&[("a.toml", WHOLE)], &["epochs"], &["--set", "epochs"]);
        refused(&[("a.toml", WHOLE)], &["training.epoch=3"], &["training.epoch", "epochs?"]);
        refused(&[("a.toml", WHOLE)], &["noise.method=bsrr"], &["bsrr"]);
        let deep = format!("{}b=1", "a.".repeat(20_000));
        refused(&[("a.toml", WHOLE)], &[&deep], &["--set"]);
        refused(&[("a.toml", &deep)], &[], &["a.toml"]);
        refused(&[("a.toml", WHOLE)], &["training.epochs=3\nw = 4"], &["a.toml", "epochs"]);
    }
}
