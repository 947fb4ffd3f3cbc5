//! The canonical form of a config: what a run is bound to, one line per key.
//!
//! A checkpoint is sealed with it, and the certificate names its SHA-256. It has every key with its default
//! filled in, so that two files that say the same in other words have one form. Keys that no number of the
//! run depends on are left out: where the data and the run that it starts from lie, how many threads compute,
//! how often a checkpoint is written and how many other runs there are.

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
