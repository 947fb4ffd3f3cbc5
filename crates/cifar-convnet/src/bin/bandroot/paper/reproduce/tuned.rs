//! The hyper-parameters of the accuracy tables, from `configs/paper/tuned.toml`.

use std::path::Path;

use anyhow::{Context, ensure};
use dp_train::calibration;
use mf_core::{Factorization, Method, Participation, Sgd, Workload};
use serde::Deserialize;

use crate::published::{AccuracyRow, Regime};
use cifar_convnet::BadArgument;

/// What the paper tunes, and the clip norm, which it does not tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HyperParameters {
    pub(crate) clip_norm: f64,
    pub(crate) learning_rate: f64,
    pub(crate) momentum: f64,
    pub(crate) decay_factor: f64,
    /// Tuning runs that the choice was made among.
    pub(crate) searched: u64,
}

/// What the file says of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    clip_norm: f64,
    learning_rate: f64,
    /// The most noise in a weight, in clip norms; the rate is lowered until it is no more.
    weight_noise: Option<f64>,
    momentum: f64,
    decay_factor: f64,
    #[serde(default)]
    searched: u64,
}

/// A change for the cells that it names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    participation: Option<Regime>,
    epsilon: Option<f64>,
    method: Option<String>,
    epochs: Option<usize>,
    steps: Option<usize>,
    clip_norm: Option<f64>,
    learning_rate: Option<f64>,
    weight_noise: Option<f64>,
    momentum: Option<f64>,
    decay_factor: Option<f64>,
    searched: Option<u64>,
}

/// The whole file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tuned {
    default: Settings,
    #[serde(default)]
    tuned: Vec<Entry>,
}

impl Tuned {
    /// Reads the file.
    ///
    /// # Errors
    /// If a key is unknown or an entry names no cell of the paper: the message names the file and the line.
    pub(crate) fn read(path: &Path, rows: &[AccuracyRow]) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("could not read the hyper-parameters {}", path.display()))?;
        let tuned: Self = toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            BadArgument(format!("{}, line {line}: {}", path.display(), error.message()))
        })?;
        for (index, entry) in tuned.tuned.iter().enumerate() {
            ensure!(
                rows.iter().any(|row| entry.holds_for(row)),
                BadArgument(format!(
                    "{}: the [[tuned]] entry number {} names no cell of the paper's tables",
                    path.display(),
                    index + 1
                ))
            );
        }
        Ok(tuned)
    }

    /// The hyper-parameters of a cell.
    ///
    /// # Errors
    /// If momentum or decay factor is none of SGD.
    pub(crate) fn of(&self, row: &AccuracyRow) -> anyhow::Result<HyperParameters> {
        let Settings { clip_norm, learning_rate, weight_noise, momentum, decay_factor, searched } =
            self.settings(row);
        let learning_rate = match weight_noise {
            Some(noise) => {
                let unit = weight_noise_of_rate_one(row, Sgd::new(decay_factor, momentum)?)?;
                learning_rate.min(two_digits(noise / unit))
            }
            None => learning_rate,
        };
        Ok(HyperParameters { clip_norm, learning_rate, momentum, decay_factor, searched })
    }

    /// Tuning runs that the settings of a cell were chosen among.
    pub(crate) fn searched(&self, row: &AccuracyRow) -> u64 {
        self.settings(row).searched
    }

    fn settings(&self, row: &AccuracyRow) -> Settings {
        let mut found = self.default;
        for entry in self.tuned.iter().filter(|entry| entry.holds_for(row)) {
            // A rate that is searched for one cell is not lowered by a rule for many.
            let earlier = found.weight_noise.filter(|_| entry.learning_rate.is_none());
            found = Settings {
                clip_norm: entry.clip_norm.unwrap_or(found.clip_norm),
                learning_rate: entry.learning_rate.unwrap_or(found.learning_rate),
                weight_noise: entry.weight_noise.or(earlier),
                momentum: entry.momentum.unwrap_or(found.momentum),
                decay_factor: entry.decay_factor.unwrap_or(found.decay_factor),
                searched: entry.searched.unwrap_or(found.searched),
            };
        }
        found
    }
}

/// `multiplier * expected error / batch size`: the root mean square of the noise in a weight over the iterates, for rate
/// and clip norm 1. AOF is given that of BSR, which is some percent above its own: they are compared at one rate.
fn weight_noise_of_rate_one(row: &AccuracyRow, sgd: Sgd) -> anyhow::Result<f64> {
    let method = match row.method.as_str() {
        "identity" => Method::Identity,
        "input" => Method::Input,
        _ => Method::Bsr { bands: row.separation },
    };
    let participation = Participation::new(row.steps, row.separation, row.participations)?;
    let factorization = Factorization::new(Workload::sgd(sgd, row.steps)?, method)?;
    let error = factorization.loss(&participation)?.expected_error;
    Ok(calibration::multiplier(row.epsilon, row.delta)? * error / row.batch_size as f64)
}

/// Rounded to two significant digits, for configs that people read.
fn two_digits(value: f64) -> f64 {
    format!("{value:.1e}").parse().unwrap_or(value)
}

impl Entry {
    fn holds_for(&self, row: &AccuracyRow) -> bool {
        let repeated = row.regime == Regime::Repeated;
        self.participation.is_none_or(|regime| regime == row.regime)
            && self.epsilon.is_none_or(|epsilon| epsilon == row.epsilon)
            && self.method.as_ref().is_none_or(|method| *method == row.method)
            && self.epochs.is_none_or(|epochs| repeated && epochs == row.participations)
            && self.steps.is_none_or(|steps| !repeated && steps == row.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published;

    fn read(more: &str) -> Result<Tuned, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = include_str!("../../../../../../../configs/paper/tuned.toml").to_owned() + more;
        std::fs::write(file.path(), text).unwrap();
        Tuned::read(file.path(), &published::accuracy().unwrap())
            .map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn later_entries_win_and_hold_for_what_they_name() {
        let tuned = read(
            "\n[[tuned]]\nepsilon = 8.0\nlearning_rate = 0.7\nsearched = 3\n\
             [[tuned]]\nmethod = 'bsr'\nepsilon = 8.0\nepochs = 10\nlearning_rate = 0.9\n",
        )
        .unwrap();
        let rows = published::accuracy().unwrap();
        let of = |regime, epsilon, method: &str, steps| {
            let row = rows.iter().find(|row| {
                row.regime == regime
                    && row.epsilon == epsilon
                    && row.method == method
                    && row.steps == steps
            });
            let found = tuned.of(row.unwrap()).unwrap();
            (found.learning_rate, found.searched)
        };
        assert_eq!(of(Regime::Repeated, 8.0, "bsr", 1000), (0.9, 3));
        assert_eq!(
            of(Regime::Single, 8.0, "bsr", 1000),
            (0.7, 3),
            "epochs are of repeated participation"
        );
        assert_eq!(of(Regime::Repeated, 8.0, "aof", 1000), (0.7, 3));
        assert_eq!(of(Regime::Repeated, 8.0, "bsr", 900), (0.7, 3));
        assert_ne!(of(Regime::Repeated, 4.0, "bsr", 1000).0, 0.9);
    }

    #[test]
    fn an_entry_that_names_nothing_is_refused() {
        assert!(read("\n[[tuned]]\nepsilon = 3.0\n").unwrap_err().contains("no cell"));
        assert!(read("\n[[tuned]]\nepochs = 11\n").unwrap_err().contains("no cell"));
        assert!(read("\n[[tuned]]\nepoch = 10\n").unwrap_err().contains("epoch"));
    }

    /// One epoch of 100 steps stands in both tables; two settings of it would be trained twice.
    #[test]
    fn one_epoch_has_the_same_settings_in_both_tables() {
        let (tuned, rows) = (read("").unwrap(), published::accuracy().unwrap());
        let first = rows.iter().filter(|row| row.steps == 100 && row.participations == 1);
        let (single, repeated): (Vec<_>, Vec<_>) =
            first.partition(|row| row.regime == Regime::Single);
        assert_eq!((single.len(), repeated.len()), (12, 12));
        for row in single {
            let other =
                repeated.iter().find(|r| (r.epsilon, &r.method) == (row.epsilon, &row.method));
            let of = |row: &AccuracyRow| tuned.of(row).unwrap();
            assert_eq!(of(row), of(other.unwrap()), "{} {}", row.epsilon, row.method);
        }
    }

    #[test]
    fn the_rule_lowers_rates_to_the_noise_it_allows_and_a_later_rate_stands() {
        let rule = "\n[[tuned]]\nlearning_rate = 0.8\nmomentum = 0.0\ndecay_factor = 1.0\nweight_noise = 0.05\n";
        let rows = published::accuracy().unwrap();
        let (found, rate) = (read(rule).unwrap(), "[[tuned]]\nlearning_rate = 3.0\n");
        let fixed = read(&format!("{rule}{rate}")).unwrap();
        for row in &rows {
            let rate = found.of(row).unwrap().learning_rate;
            assert_eq!(fixed.of(row).unwrap().learning_rate, 3.0);
            assert_eq!(found.searched(row), found.of(row).unwrap().searched);
            // A is all ones below the diagonal: DP-SGD has sqrt(k) sqrt((n + 1) / 2), and C = A has its sensitivity.
            let (n, k, b) = (row.steps, row.participations, row.separation);
            let error = match row.method.as_str() {
                "identity" => (k as f64 * (n as f64 + 1.0) / 2.0).sqrt(),
                "input" => {
                    let uses = |step: usize| (step / b + 1).min(k) as f64;
                    (0..n).map(|step| uses(step).powi(2)).sum::<f64>().sqrt()
                }
                _ => continue,
            };
            let multiplier = calibration::multiplier(row.epsilon, row.delta).unwrap();
            let expected = (0.05 * row.batch_size as f64 / (multiplier * error)).min(0.8);
            assert!((rate / expected - 1.0).abs() < 0.051, "{row:?}: {rate}, not {expected}");
        }
    }
}
