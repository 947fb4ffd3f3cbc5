//! What `bandroot factorize` prints: JSON, text, and the strategy as CSV.

use std::fmt::Write as _;

use mf_core::bounds::Bound;
use mf_core::{Strategy, sensitivity};
use serde::Serialize;

/// What `--json` prints, in full precision.
#[derive(Debug, Serialize)]
pub(super) struct FactorizeOutput {
    pub(super) method: String,
    pub(super) alpha: f64,
    pub(super) beta: f64,
    pub(super) steps: usize,
    pub(super) bands: usize,
    pub(super) separation: usize,
    pub(super) participations: usize,
    /// Rows of single-precision floats that the noise keeps from step to step.
    pub(super) noise_rows: usize,
    pub(super) sensitivity: f64,
    pub(super) sensitivity_exact: bool,
    pub(super) sensitivity_method: sensitivity::Method,
    pub(super) expected_error: f64,
    /// Absent where only the value of the optimum was computed, not its factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) final_error: Option<f64>,
    pub(super) bounds: Vec<Bound>,
    #[serde(flatten)]
    pub(super) optimum: Option<Optimum>,
    pub(super) seconds: f64,
}

/// How close to optimal a factorization by iteration is.
#[derive(Debug, Serialize)]
pub(super) struct Optimum {
    /// Relative: the expected error is at most this far above the smallest one, with proof.
    pub(super) certified_gap: f64,
    /// No `C` with unit columns and these bands has a smaller expected error.
    pub(super) lower_bound: f64,
    pub(super) iterations: usize,
    pub(super) tolerance: f64,
    pub(super) converged: bool,
    /// Whether the solution was found on disk; the seconds are then those of reading it.
    pub(super) cached: bool,
}

/// `C`: its first column if it is Toeplitz, else its rows by lag.
pub(super) fn strategy_csv(strategy: &Strategy) -> anyhow::Result<String> {
    let mut text = String::new();
    if let Some(coefficients) = strategy.as_toeplitz() {
        text += "lag,coefficient\n";
        for (lag, coefficient) in coefficients.iter().enumerate() {
            writeln!(text, "{lag},{coefficient}")?;
        }
        return Ok(text);
    }
    text += "step";
    for lag in 0..strategy.bands() {
        write!(text, ",lag_{lag}")?;
    }
    text += "\n";
    for step in 0..strategy.steps() {
        write!(text, "{step}")?;
        let row = strategy.row(step);
        for lag in 0..strategy.bands() {
            write!(text, ",{}", row.get(lag).unwrap_or(&0.0))?;
        }
        text += "\n";
    }
    Ok(text)
}

/// One line per number.
pub(super) fn text(report: &FactorizeOutput) -> String {
    let kind = if report.sensitivity_exact { "exact" } else { "upper bound" };
    let not_formed = || "not computed: C is too large to form".to_owned();
    let number = |value: Option<f64>| value.map_or_else(not_formed, |value| format!("{value:.6}"));
    let mut lines = vec![
        ("method", report.method.clone()),
        ("workload", format!("alpha {}, beta {}", report.alpha, report.beta)),
        ("steps n", report.steps.to_string()),
        ("bands p", report.bands.to_string()),
        ("separation b", report.separation.to_string()),
        ("participations k", report.participations.to_string()),
        ("rows of noise", report.noise_rows.to_string()),
        ("sensitivity", format!("{:.6} ({kind})", report.sensitivity)),
        ("expected error", format!("{:.6}", report.expected_error)),
        ("maximum error", number(report.max_error)),
        ("final error", number(report.final_error)),
    ];
    for Bound { theorem, kind, value } in &report.bounds {
        lines.push(("  bound", format!("{value:.6} ({kind}, Theorem {theorem})")));
    }
    if let Some(optimum) = &report.optimum {
        lines.push(("  optimum", format!("at least {:.6}", optimum.lower_bound)));
        lines.push(("  certified gap", format!("{:.2e}", optimum.certified_gap)));
        lines.push(("  iterations", optimum.iterations.to_string()));
    }
    lines.push(("seconds", format!("{:.6}", report.seconds)));
    lines.iter().map(|(name, value)| format!("{name:<18}{value}\n")).collect()
}
