//! The canonical form of a config: what a run is bound to, one line per key.
//!
//! A checkpoint is sealed with it, and the certificate names its SHA-256. It has every key with its default
//! filled in, so that two files that say the same in other words have one form. Keys that no number of the
//! run depends on are left out: where the data and the run that it starts from lie, how many threads compute,
//! how often a checkpoint is written and how many other runs there are. Keys that came after the first
//! certificates (`evaluation`, `training.average`, `data.augmentation.padding`, `model.init` and others) are left
//! out where they say nothing new, so that the hashes of earlier configs stay what they were.

use std::collections::BTreeMap;

use anyhow::Context;
use dp_train::fingerprint::Fingerprint;
use toml::{Table, Value};

use super::Config;

/// Keys that may be changed while a run is stopped.
const FREE: [&str; 11] = [
    "data.folder",
    "data.train_images",
    "data.train_labels",
    "data.test_images",
    "data.test_labels",
    "data.train_table",
    "data.test_table",
    "engine.threads",
    // What it led to is bound by its hash.
    "model.start_from",
    "privacy.trials",
    "training.checkpoint_steps",
];

impl Config {
    /// The lines `section.key = value`, sorted.
    ///
    /// # Errors
    /// If a number has no place in a TOML file; no config that was read from one has such a number.
    pub fn canonical(&self) -> anyhow::Result<String> {
        Ok(self.bound()?.iter().map(|(key, value)| format!("{key} = {value}\n")).collect())
    }

    /// SHA-256 of [`canonical`](Self::canonical), as the certificate states it.
    ///
    /// # Errors
    /// Those of [`canonical`](Self::canonical).
    pub fn sha256(&self) -> anyhow::Result<Fingerprint> {
        Ok(Fingerprint::of_bytes(self.canonical()?.as_bytes()))
    }

    /// The keys and their values.
    ///
    /// # Errors
    /// Those of [`canonical`](Self::canonical).
    pub fn bound(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut table = Table::try_from(self).context("the config has no TOML form")?;
        // Left out of files if it is off; here it is named key by key.
        if let Some(Value::Table(data)) = table.get_mut("data") {
            let mut views = Table::try_from(self.data.augmentation)?;
            // Its name when the first certificates were made, which state the hash of this form.
            if let Some(count) = views.remove("views") {
                views.insert("multiplicity".to_owned(), count);
            }
            let views = Value::Table(views);
            data.insert("augmentation".to_owned(), views);
        }
        let mut keys = BTreeMap::new();
        flatten(&table, "", &mut keys);
        keys.retain(|key, _| !FREE.contains(&key.as_str()));
        Ok(keys)
    }
}

fn flatten(table: &Table, prefix: &str, keys: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        match value {
            Value::Table(inner) => flatten(inner, &format!("{prefix}{key}."), keys),
            value => drop(keys.insert(format!("{prefix}{key}"), text(value))),
        }
    }
}

/// A value on one line, in digits that give every bit of a number back.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Boolean(word) => word.to_string(),
        Value::Datetime(moment) => moment.to_string(),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(text).collect::<Vec<_>>().join(", "))
        }
        Value::Table(table) => {
            let mut keys = BTreeMap::new();
            flatten(table, "", &mut keys);
            let pairs: Vec<String> = keys.iter().map(|(k, v)| format!("{k} = {v}")).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::super::file::check;
    use super::*;

    /// A private run on textures, with more keys of `[data]`.
    pub(crate) fn config(more: &str) -> Config {
        let text = format!(
            "[data]\nname = 'textures'\n{more}\n[model]\nname = 'convnet'\n\
             [privacy]\nepsilon = 4\ndelta = 1e-5\nclip_norm = 1.0\n[noise]\nmethod = 'bsr'\n\
             [optimizer]\nlearning_rate = 0.5\n[training]\nepochs = 2\nbatch_size = 100\n"
        );
        check(text.parse().unwrap(), Path::new("a.toml")).unwrap()
    }

    #[test]
    fn every_key_has_its_line_and_other_words_for_the_same_give_the_same_lines() {
        let plain = config("");
        let canonical = plain.canonical().unwrap();
        for line in [
            "data.augmentation.flip = false",
            "data.name = \"textures\"",
            "engine.convolution = \"winograd\"",
            "optimizer.momentum = 0.0",
            "privacy.delta = 1e-5",
            "privacy.epsilon = 4.0",
            "privacy.neighbouring = \"zero-out\"",
            "training.record = \"all\"",
        ] {
            assert!(canonical.lines().any(|found| found == line), "no {line:?} in {canonical}");
        }
        assert!(canonical.lines().is_sorted());
        let spelled = config("validation = 0\naugmentation = { multiplicity = 1 }");
        assert_eq!(spelled.canonical().unwrap(), canonical);
        assert_eq!(plain.sha256().unwrap(), Fingerprint::of_bytes(canonical.as_bytes()));
    }

    /// The recorded certificate was written before a config could have an average and `[evaluation]`.
    #[test]
    fn keys_that_came_later_change_no_earlier_hash_and_are_bound_if_they_say_something() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
        let run =
            results.join("accuracy/single-epsilon-8/single-epsilon8-bsr-n200_seed-0_83360635");
        let recorded = super::super::file::read(&run.join("config.toml"), &[]).unwrap();
        let certificate = std::fs::read_to_string(run.join("privacy.json")).unwrap();
        let hash = format!("\"config_sha256\": \"{}\"", recorded.sha256().unwrap());
        assert!(certificate.contains(&hash), "the certificate does not have {hash}");
        let plain = config("");
        let later = ["evaluation", "average", "padding =", "strategy"];
        let canonical = plain.canonical().unwrap();
        let named = |line: &&str| later.iter().any(|word| line.contains(word));
        let lines: Vec<&str> = canonical.lines().filter(named).collect();
        let usual =
            ["data.augmentation.crop_padding = 0", "noise.strategy_for = \"constant-rate\""];
        assert_eq!(lines, usual);
        let spelled =
            config("augmentation = { padding = 'black' }\n[evaluation]\nmirror = false\nevery = 1");
        assert_eq!(spelled.canonical().unwrap(), canonical);
        let mut other = config("augmentation = { padding = 'reflect', crop_padding = 2 }");
        other.evaluation.every = 3;
        other.training.average = Some(crate::config::average::Average {
            kind: crate::config::average::AverageKind::Tail,
            decay: None,
            from: Some(0.75),
        });
        let bound = other.canonical().unwrap();
        for line in [
            "data.augmentation.padding = \"reflect\"",
            "evaluation.every = 3",
            "evaluation.mirror = false",
            "training.average.from = 0.75",
            "training.average.kind = \"tail\"",
        ] {
            assert!(bound.lines().any(|found| found == line), "no {line:?} in {bound}");
        }
    }

    #[test]
    fn features_are_bound_where_there_are_any_and_leave_other_configs_as_they_were() {
        let plain = config("").canonical().unwrap();
        assert!(!plain.contains("features"), "{plain}");
        let short = "features = { kind = 'scattering' }";
        let long = "[data.features]\nkind = 'scattering'\nangles = 8\nscales = 2";
        let features = config(short).canonical().unwrap();
        assert_eq!(features, config(long).canonical().unwrap());
        let more: Vec<&str> = features.lines().filter(|line| !plain.contains(line)).collect();
        let (angles, kind) = ("data.features.angles = 8", "data.features.kind = \"scattering\"");
        assert_eq!(more, [angles, kind, "data.features.scales = 2"]);
        assert_eq!(features.lines().count(), plain.lines().count() + 3);
    }

    #[test]
    fn layers_are_bound_whatever_the_order_of_their_keys() {
        let layers = |text: &str| {
            let text = format!("v = {text}").parse::<Table>().unwrap();
            super::text(&text["v"])
        };
        let (one, two) = (
            layers("[{ layer = 'linear', in_features = 2 }, { layer = 'relu' }]"),
            layers("[{ in_features = 2, layer = 'linear' }, { layer = 'relu' }]"),
        );
        assert_eq!(one, two);
        assert_eq!(one, "[{ in_features = 2, layer = \"linear\" }, { layer = \"relu\" }]");
    }
}
