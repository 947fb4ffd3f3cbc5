//! The paper's printed numbers, as data.

use anyhow::Context;
use clap::ValueEnum;
use mf_core::{Participation, Sgd};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Whether examples are used once or once per epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Regime {
    /// Every example is used once: k = 1, b = n
    Single,
    /// Every example is used once in 100 steps: b = 100, k = n / 100
    Repeated,
}

impl Regime {
    /// The pattern of `n` steps in this regime.
    pub(crate) fn participation(self, steps: usize) -> mf_core::Result<Participation> {
        match self {
            Regime::Single => Participation::single(steps),
            Regime::Repeated => Participation::new(steps, 100, steps / 100),
        }
    }
}

impl std::fmt::Display for Regime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Regime::Single => "single",
            Regime::Repeated => "repeated",
        })
    }
}

/// One row of the 16 tables of expected error, as printed: one decimal.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct ErrorRow {
    #[serde(rename = "participation")]
    pub(crate) regime: Regime,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    #[serde(rename = "n")]
    pub(crate) steps: usize,
    #[serde(rename = "b")]
    pub(crate) separation: usize,
    #[serde(rename = "k")]
    pub(crate) participations: usize,
    pub(crate) bsr: f64,
    pub(crate) sqrt: f64,
    pub(crate) aof: f64,
    pub(crate) identity: f64,
    pub(crate) input: f64,
}

impl ErrorRow {
    /// The parameters of SGD of this row.
    pub(crate) fn sgd(&self) -> mf_core::Result<Sgd> {
        Sgd::new(self.alpha, self.beta)
    }

    /// The participation pattern of this row.
    pub(crate) fn participation(&self) -> mf_core::Result<Participation> {
        Participation::new(self.steps, self.separation, self.participations)
    }
}

/// All rows of the tables of expected error.
pub(crate) fn expected_error() -> anyhow::Result<Vec<ErrorRow>> {
    rows("paper/expected_error.csv", include_str!("../../../paper/expected_error.csv"))
}

fn rows<T: DeserializeOwned>(name: &str, text: &str) -> anyhow::Result<Vec<T>> {
    csv::Reader::from_reader(text.as_bytes())
        .deserialize()
        .collect::<Result<_, _>>()
        .with_context(|| format!("{name}, built into this program, is damaged"))
}

/// One row of the 16 tables of time to factorize, in the paper's own words: seconds, `<1`, `timeout` or
/// `not_run`. BSR and CVX ran on one CPU core, GD and L-BFGS on an H100.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct RuntimeRow {
    #[serde(rename = "participation")]
    pub(crate) regime: Regime,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    #[serde(rename = "n")]
    pub(crate) steps: usize,
    pub(crate) bsr: String,
    pub(crate) gd_h100: String,
    pub(crate) lbfgs_h100: String,
    #[serde(rename = "cvx_1e-2")]
    pub(crate) cvx_1e2: String,
    #[serde(rename = "cvx_1e-3")]
    pub(crate) cvx_1e3: String,
    #[serde(rename = "cvx_1e-4")]
    pub(crate) cvx_1e4: String,
}

/// All rows of the tables of time to factorize.
pub(crate) fn runtimes() -> anyhow::Result<Vec<RuntimeRow>> {
    rows("paper/runtime_seconds.csv", include_str!("../../../paper/runtime_seconds.csv"))
}

/// One cell of the 6 tables of accuracy on CIFAR-10, in percent: mean and standard deviation over 5 seeds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct AccuracyRow {
    #[serde(rename = "participation")]
    pub(crate) regime: Regime,
    pub(crate) epsilon: f64,
    pub(crate) delta: f64,
    #[serde(rename = "n")]
    pub(crate) steps: usize,
    #[serde(rename = "k")]
    pub(crate) participations: usize,
    #[serde(rename = "b")]
    pub(crate) separation: usize,
    pub(crate) batch_size: usize,
    pub(crate) method: String,
    pub(crate) mean: f64,
    pub(crate) std: f64,
}

/// All cells of the tables of accuracy.
pub(crate) fn accuracy() -> anyhow::Result<Vec<AccuracyRow>> {
    rows("paper/cifar10_accuracy.csv", include_str!("../../../paper/cifar10_accuracy.csv"))
}

/// Half of the last printed digit, and a little for the rounding of a number that is printed as a tie.
pub(crate) const PRINTED: f64 = 0.05 + 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sixteen_tables_are_there() {
        let rows = expected_error().unwrap();
        assert_eq!(rows.len(), 152);
        let repeated = rows.iter().filter(|row| row.regime == Regime::Repeated);
        assert_eq!(repeated.count(), 8 * 12);
        for row in &rows {
            row.sgd().unwrap();
            assert_eq!(row.participation().unwrap().steps(), row.separation * row.participations);
        }
    }

    #[test]
    fn all_six_tables_of_accuracy_are_there() {
        let rows = accuracy().unwrap();
        assert_eq!(rows.len(), 228);
        for row in &rows {
            assert_eq!(row.steps, row.separation * row.participations);
            assert_eq!(row.separation * row.batch_size, 50_000);
            assert!(row.regime == Regime::Repeated || row.participations == 1);
        }
        let printed = |regime, steps, method: &str| {
            let row = rows.iter().find(|row| {
                row.regime == regime
                    && row.epsilon == 4.0
                    && row.steps == steps
                    && row.method == method
            });
            row.map(|row| (row.mean, row.std))
        };
        assert_eq!(printed(Regime::Single, 500, "bsr"), Some((36.322, 2.040)));
        assert_eq!(printed(Regime::Repeated, 200, "aof"), Some((43.554, 1.017)));
    }
}
