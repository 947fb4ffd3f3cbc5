//! Settings that are drawn at random from ranges, the same for the same seed on every machine.
//!
//! ```toml
//! [random]
//! samples = 20
//! seed = 1
//!
//! [random.ranges]
//! "optimizer.learning_rate" = { from = 0.05, to = 2.0, scale = "log" }
//! "optimizer.momentum" = { from = 0.5, to = 0.95 }
//! "training.batch_size" = { from = 250, to = 1000 } # whole numbers give whole numbers
//! "noise.method" = ["bsr", "identity"]
//! ```
//!
//! What a key has in a sample follows from the seed, the number of the sample and the name of the key alone: more
//! samples, or another key, leave what was drawn before as it is.

use std::collections::BTreeSet;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::cell::Setting;

/// Digits of a number that is drawn: names and tables are to be read.
const DIGITS: i32 = 3;

/// Draws for each sample that is wanted, before the ranges are said to be exhausted.
const TRIES: usize = 100;

/// The section as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Random {
    /// How many settings to draw; no two are the same.
    pub(super) samples: usize,
    #[serde(default)]
    seed: u64,
    ranges: Table,
}

/// Where the values of a key come from.
#[derive(Debug, Clone, PartialEq)]
enum Range {
    OneOf(Vec<Value>),
    Whole { from: i64, to: i64, log: bool },
    Real { from: f64, to: f64, log: bool },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ends {
    from: Value,
    to: Value,
    #[serde(default)]
    scale: Scale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scale {
    /// Equal lengths are equally likely.
    #[default]
    Linear,
    /// Equal ratios are.
    Log,
}

impl Random {
    /// The settings, all different and none of those that there are.
    ///
    /// # Errors
    /// What is wrong with a range, or that the ranges have not as many settings.
    pub(super) fn settings(&self, known: &[Setting]) -> Result<Vec<Setting>, String> {
        let mut ranges = Vec::new();
        collect(&self.ranges, "", &mut ranges)?;
        if self.samples == 0 || ranges.is_empty() {
            return Err("random needs samples, at least 1, and ranges".to_owned());
        }
        let mut drawn: Vec<Setting> = Vec::new();
        let name = |setting: &Setting| format!("{setting:?}");
        let mut seen: BTreeSet<String> = known.iter().map(name).collect();
        for index in 0..self.samples.saturating_mul(TRIES) {
            if drawn.len() == self.samples {
                break;
            }
            let value = |(key, range): &(String, Range)| {
                (key.clone(), range.at(unit(self.seed, index as u64, key)))
            };
            let setting: Setting = ranges.iter().map(value).collect();
            if seen.insert(name(&setting)) {
                drawn.push(setting);
            }
        }
        match drawn.len() {
            found if found < self.samples => Err(format!(
                "random.samples is {}, but {found} different settings were found in random.ranges",
                self.samples
            )),
            _ => Ok(drawn),
        }
    }
}

impl Range {
    /// The value at `unit` in [0, 1) of the way.
    fn at(&self, unit: f64) -> Value {
        match self {
            Range::OneOf(values) => values[(unit * values.len() as f64) as usize].clone(),
            Range::Whole { from, to, log: true } => {
                let number = between(*from as f64, *to as f64, true, unit);
                Value::Integer((number.round() as i64).clamp(*from, *to))
            }
            Range::Whole { from, to, log: false } => {
                let count = (to - from + 1) as f64;
                Value::Integer((from + (unit * count) as i64).clamp(*from, *to))
            }
            Range::Real { from, to, log } => {
                let number = between(*from, *to, *log, unit);
                Value::Float(rounded(number).clamp(*from, *to))
            }
        }
    }
}

fn between(from: f64, to: f64, log: bool, unit: f64) -> f64 {
    match log {
        false => from + unit * (to - from),
        // By libm: the same bits on every machine.
        true => libm::exp(libm::log(from) + unit * (libm::log(to) - libm::log(from))),
    }
}

/// A number with few digits, which its decimal text gives back.
fn rounded(number: f64) -> f64 {
    let text = format!("{number:.*e}", DIGITS as usize - 1);
    text.parse().unwrap_or(number)
}

/// A number in [0, 1) with 53 bits.
fn unit(seed: u64, index: u64, key: &str) -> f64 {
    let mut hash = Sha256::new();
    hash.update(b"bandroot random setting");
    hash.update(seed.to_le_bytes());
    hash.update(index.to_le_bytes());
    hash.update(key.as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let bits = digest.iter().take(8).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// `"section.key" = ..` in quotes or not: both mean the same.
fn collect(table: &Table, prefix: &str, ranges: &mut Vec<(String, Range)>) -> Result<(), String> {
    for (key, value) in table {
        let key = format!("{prefix}{key}");
        match value {
            Value::Table(inner) if !inner.contains_key("from") && !inner.contains_key("to") => {
                collect(inner, &format!("{key}."), ranges)?;
            }
            value => {
                let range = range(value).map_err(|why| format!("random.ranges.{key} {why}"))?;
                ranges.push((key, range));
            }
        }
    }
    Ok(())
}

fn range(value: &Value) -> Result<Range, String> {
    let ends = match value {
        Value::Array(values) if values.is_empty() => return Err("has no values".to_owned()),
        Value::Array(values) => return Ok(Range::OneOf(values.clone())),
        value => value.clone().try_into::<Ends>().map_err(|error| {
            let reason = error.to_string().trim().replace('\n', " ");
            format!("must be a list, or {{ from, to, scale }}: {reason}")
        })?,
    };
    let log = ends.scale == Scale::Log;
    let number = |value: &Value| value.as_float().or(value.as_integer().map(|whole| whole as f64));
    let (Some(from), Some(to)) = (number(&ends.from), number(&ends.to)) else {
        return Err("must have numbers as from and to".to_owned());
    };
    let usable = from.is_finite() && to.is_finite() && (to - from).is_finite() && from < to;
    if !usable || (log && from <= 0.0) {
        let least = if log { "0 < from < to" } else { "from < to" };
        return Err(format!("must have {least}, but it goes from {from} to {to}"));
    }
    Ok(match (&ends.from, &ends.to) {
        (Value::Integer(from), Value::Integer(to)) => {
            if to.checked_sub(*from).is_none_or(|count| count == i64::MAX) {
                return Err("is too long".to_owned());
            }
            Range::Whole { from: *from, to: *to, log }
        }
        _ => Range::Real { from, to, log },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(text: &str) -> Random {
        toml::from_str(text).unwrap()
    }

    const RANGES: &str = "[ranges]\n'optimizer.learning_rate' = { from = 0.05, to = 2.0, scale = 'log' }\n\
        optimizer.momentum = { from = 0, to = 0.95 }\n'training.batch_size' = { from = 3, to = 6 }\n\
        'noise.bands' = { from = 1, to = 1000, scale = 'log' }\n'noise.method' = ['bsr', 'aof', 'sqrt']\n";

    fn number(value: &Value) -> f64 {
        value.as_float().or(value.as_integer().map(|whole| whole as f64)).unwrap()
    }

    #[test]
    fn every_value_lies_in_its_range_and_all_of_it_is_reached() {
        let settings = random(&format!("samples = 2000\n{RANGES}")).settings(&[]).unwrap();
        assert_eq!(settings.len(), 2000);
        let values = |key: &str| -> Vec<Value> {
            let of = |setting: &Setting| {
                setting.iter().find(|(found, _)| found == key).unwrap().1.clone()
            };
            settings.iter().map(of).collect()
        };
        for (key, from, to, middle) in [
            // Half of all draws are below the middle, of lengths or of ratios.
            ("optimizer.learning_rate", 0.05, 2.0, (0.05_f64 * 2.0).sqrt()),
            ("optimizer.momentum", 0.0, 0.95, 0.475),
            ("noise.bands", 1.0, 1000.0, 1000_f64.sqrt()),
            ("training.batch_size", 3.0, 6.0, 4.5),
        ] {
            let values: Vec<f64> = values(key).iter().map(number).collect();
            assert!(values.iter().all(|value| (from..=to).contains(value)), "{key}");
            // Five standard deviations of 2000 fair coins: the seed is fixed, so it holds or it does not.
            let below = values.iter().filter(|&&value| value < middle).count() as f64;
            assert!((below - 1000.0).abs() < 5.0 * 500_f64.sqrt(), "{key}: {below}");
        }
        for whole in [3, 4, 5, 6] {
            assert!(values("training.batch_size").contains(&Value::Integer(whole)));
        }
        for method in ["bsr", "aof", "sqrt"] {
            assert!(values("noise.method").contains(&Value::String(method.to_owned())));
        }
        for value in values("optimizer.learning_rate") {
            assert!(value.to_string().len() <= 6, "{value}");
        }
    }

    #[test]
    fn more_samples_or_another_key_leave_what_was_drawn_before_as_it_is() {
        let settings =
            |samples: usize| random(&format!("samples = {samples}\n{RANGES}")).settings(&[]);
        let (few, many) = (settings(5).unwrap(), settings(50).unwrap());
        assert_eq!(few, many[..5]);
        let other = random(&format!("samples = 5\nseed = 1\n{RANGES}")).settings(&[]).unwrap();
        assert_ne!(few, other);
        let more = format!("samples = 5\n{RANGES}'privacy.clip_norm' = {{ from = 0.1, to = 9.0 }}");
        let more = random(&more).settings(&[]).unwrap();
        for (before, mut after) in few.iter().zip(more) {
            after.retain(|(key, _)| key != "privacy.clip_norm");
            assert_eq!(*before, after);
        }
    }

    #[test]
    fn no_setting_comes_twice_and_exhausted_ranges_are_refused() {
        let text = |samples: usize| {
            format!("samples = {samples}\n[ranges]\na.b = [1, 2]\na.c = {{ from = 1, to = 2 }}")
        };
        let all = random(&text(4)).settings(&[]).unwrap();
        assert!((0..4).all(|i| !all[..i].contains(&all[i])));
        assert!(random(&text(5)).settings(&[]).unwrap_err().contains("4 different settings"));
        assert!(random(&text(4)).settings(&all[..1]).unwrap_err().contains("3 different"));
        assert_eq!(random(&text(3)).settings(&all[..1]).unwrap().len(), 3);
    }

    #[test]
    fn ranges_that_are_none_are_refused_by_their_key() {
        for (range, word) in [
            ("3", "must be a list"),
            ("[]", "no values"),
            ("{ from = 1.0, to = 1.0 }", "from < to"),
            ("{ from = nan, to = 1.0 }", "from < to"),
            ("{ from = -inf, to = 1.0 }", "from < to"),
            ("{ from = 0.0, to = 1.0, scale = 'log' }", "0 < from < to"),
            ("{ from = 'a', to = 'b' }", "numbers"),
            ("{ from = 1 }", "to"),
            ("{ from = 1, to = 2, scale = 'square' }", "scale"),
            ("{ from = -9223372036854775807, to = 9223372036854775807 }", "too long"),
        ] {
            let random = random(&format!("samples = 1\n[ranges]\n'a.b' = {range}"));
            let why = random.settings(&[]).unwrap_err();
            assert!(why.contains("random.ranges.a.b") && why.contains(word), "{range}: {why}");
        }
        assert!(random("samples = 0\n[ranges]\n'a.b' = [1]").settings(&[]).is_err());
        assert!(random("samples = 1\n[ranges]").settings(&[]).is_err());
    }
}
