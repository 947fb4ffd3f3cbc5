//! Verification: does the claim of a certificate follow from its own numbers?
//!
//! Strategy, sensitivity, noise and epsilon are derived again from the request in the file, by
//! definitions instead of closed forms: term-by-term sums, tables over all columns, an integral for
//! `delta`. Seconds for `n = 2000`.

use std::fmt;

use mf_core::{BandedLower, Strategy};

use crate::certificate::{Certificate, FORMAT, GENERATOR, RecordedToeplitz};
use crate::fingerprint::Fingerprint;
use crate::plan::DpPlan;
use crate::seeds::KeyOrigin;

mod divergence;

mod reference;

use reference::SlowStrategy;

/// How far a number may be from its re-derivation, relatively: rounding of two different
/// computations.
const TOLERANCE: f64 = 1e-8;

/// Entries of the largest strategy that is checked: 1 GiB of doubles.
const MOST_ENTRIES: usize = 1 << 27;

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Whether it is as the certificate says.
    pub holds: bool,
    /// What was compared, with the numbers.
    pub detail: String,
}

/// The answer to whether a certificate's claim follows from its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// All that was checked.
    pub findings: Vec<Finding>,
    /// `sens(C)`, derived again; none if it could not be.
    pub sensitivity: Option<f64>,
    /// The multiplier that the noise has with that sensitivity.
    pub noise_multiplier: Option<f64>,
    /// The epsilon that this multiplier gives at the certificate's `delta`.
    pub epsilon: Option<f64>,
    /// Whether the noise key was secret. With a fixed seed the numbers may hold, but hide nothing.
    pub secret_key: bool,
}

impl Verdict {
    /// Yes or no: every number follows from the request, and the run kept to the plan.
    pub fn holds(&self) -> bool {
        self.findings.iter().all(|finding| finding.holds)
    }

    /// Whether the run is private: the numbers hold and the key was secret.
    pub fn is_private(&self) -> bool {
        self.holds() && self.secret_key
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{:4} {}", if finding.holds { "ok" } else { "NO" }, finding.detail)?;
        }
        match (self.holds(), self.secret_key) {
            (true, true) => write!(f, "yes"),
            (true, false) => {
                write!(f, "yes, but reproducible, not private: the noise seed was fixed")
            }
            (false, _) => write!(f, "no"),
        }
    }
}

/// Checks a certificate by the slow reference path.
pub fn verify(certificate: &Certificate) -> Verdict {
    let mut verdict = Verdict {
        findings: Vec::new(),
        sensitivity: None,
        noise_multiplier: None,
        epsilon: None,
        secret_key: certificate.noise_key == KeyOrigin::OperatingSystem,
    };
    let (format, generator) = (&certificate.format, &certificate.generator);
    verdict.find(format == FORMAT, format!("format: {format}"));
    verdict.find(generator == GENERATOR, format!("generator: {generator}"));
    verdict.check_participation(certificate);
    let strategy = match (&certificate.strategy, &certificate.toeplitz) {
        (Some(rows), None) => verdict.check_recorded_strategy(certificate, rows),
        (None, Some(recorded)) => verdict.check_recorded_toeplitz(certificate, recorded),
        (None, None) => verdict.check_derived_strategy(certificate),
        (Some(_), Some(_)) => {
            verdict.find(false, "strategy: the file has two".to_string());
            None
        }
    };
    if let Some(strategy) = strategy {
        verdict.check_noise(certificate, &strategy);
    }
    verdict
}

impl Verdict {
    fn find(&mut self, holds: bool, detail: String) {
        self.findings.push(Finding { holds, detail });
    }

    /// Who was to take part, and who did.
    fn check_participation(&mut self, certificate: &Certificate) {
        let (plan, realised) = (&certificate.plan, &certificate.realised);
        let (n, b) = (plan.participation.steps(), plan.participation.min_separation());
        let k = plan.participation.max_participations();
        self.find(
            plan.request.participation() == Ok(plan.participation),
            format!("participation: n = {n}, b = {b}, k = {k} as requested"),
        );
        self.find(realised.steps <= n, format!("steps taken: {} of {n}", realised.steps));
        self.find(
            realised.least_gap.is_none_or(|gap| gap >= b),
            match realised.least_gap {
                Some(gap) => format!("least gap between two uses: {gap}, allowed from {b}"),
                None => "no example was used twice".to_string(),
            },
        );
        self.find(
            realised.most_uses <= k,
            format!("most uses of an example: {}, allowed {k}", realised.most_uses),
        );
    }

    /// The strategy by the definition of its method, beside the one that training computes.
    fn check_derived_strategy(&mut self, certificate: &Certificate) -> Option<SlowStrategy> {
        let (plan, request) = (&certificate.plan, &certificate.plan.request);
        let n = request.steps;
        // What follows makes tables of this size, and indexes them by the steps of the pattern.
        let feasible = plan.participation.steps() == n
            && n.saturating_mul(plan.bands) <= MOST_ENTRIES
            && SlowStrategy::bands(request) == Some(plan.bands);
        self.find(feasible, format!("strategy: {n} rows of {} entries by a formula", plan.bands));
        if !feasible {
            return None;
        }
        let computed = match DpPlan::new(request.clone()) {
            Ok(computed) => computed,
            Err(error) => {
                self.find(false, format!("the request has no plan: {error}"));
                return None;
            }
        };
        let hash = computed.record().strategy_sha256;
        self.find(hash == plan.strategy_sha256, format!("strategy: SHA-256 {hash}"));
        let slow = SlowStrategy::new(request)?;
        let same_length = (0..n).all(|i| computed.strategy().row(i).len() == slow.rows[i].len());
        let difference = (0..n)
            .flat_map(|i| computed.strategy().row(i).iter().zip(&slow.rows[i]))
            .map(|(fast, slow)| (fast - slow).abs())
            .fold(0.0, f64::max);
        self.find(
            same_length && difference <= TOLERANCE * slow.rows[0][0],
            format!("strategy: within {difference:.1e} of its definition"),
        );
        Some(slow)
    }

    /// The strategy as it stands in the file. How it was found has no bearing on privacy.
    fn check_recorded_strategy(
        &mut self,
        certificate: &Certificate,
        rows: &[Vec<f64>],
    ) -> Option<SlowStrategy> {
        let plan = &certificate.plan;
        let (n, p) = (plan.participation.steps(), plan.bands);
        let shaped = p > 0
            && rows.len() == n
            && rows.iter().enumerate().all(|(i, row)| row.len() == p.min(i + 1));
        self.find(shaped, format!("strategy: {n} rows of at most {p} entries in the file"));
        if !shaped {
            return None;
        }
        let padded = rows
            .iter()
            .flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0.0, p - row.len())));
        let strategy = BandedLower::from_entries(n, p, padded.collect()).and_then(Strategy::banded);
        match strategy {
            Ok(strategy) => {
                let hash = Fingerprint::of(&strategy);
                self.find(hash == plan.strategy_sha256, format!("strategy: SHA-256 {hash}"));
                Some(SlowStrategy::recorded(rows.to_vec()))
            }
            Err(error) => {
                self.find(false, format!("strategy: {error}"));
                None
            }
        }
    }

    /// The same for a Toeplitz strategy, whose column follows from few numbers.
    fn check_recorded_toeplitz(
        &mut self,
        certificate: &Certificate,
        recorded: &RecordedToeplitz,
    ) -> Option<SlowStrategy> {
        let plan = &certificate.plan;
        let n = plan.participation.steps();
        let feasible = n.saturating_mul(plan.bands) <= MOST_ENTRIES;
        self.find(feasible, format!("strategy: {n} rows of {} entries", plan.bands));
        if !feasible {
            return None;
        }
        let made = match recorded.clone() {
            RecordedToeplitz::Strategy { coefficients } => Strategy::toeplitz(n, coefficients),
            RecordedToeplitz::Inverse { coefficients } => {
                Strategy::inverse_toeplitz(n, coefficients)
            }
            RecordedToeplitz::Buffered { buffers } => Strategy::buffered(n, buffers),
        };
        match made {
            Ok(strategy) => {
                let hash = Fingerprint::of(&strategy);
                let same = hash == plan.strategy_sha256 && strategy.bands() == plan.bands;
                self.find(same, format!("strategy: SHA-256 {hash}"));
                same.then(|| SlowStrategy::of_toeplitz(recorded, n))
            }
            Err(error) => {
                self.find(false, format!("strategy: {error}"));
                None
            }
        }
    }

    /// Sensitivity, noise and epsilon for a strategy of as many rows as the pattern has steps.
    fn check_noise(&mut self, certificate: &Certificate, strategy: &SlowStrategy) {
        let (plan, request) = (&certificate.plan, &certificate.plan.request);
        let derived = strategy.sensitivity(&plan.participation);
        let kind = if derived.exact { "exact" } else { "upper bound" };
        self.find(
            close(plan.sensitivity.value, derived.value)
                && (derived.exact || !plan.sensitivity.exact),
            format!(
                "sensitivity: {:.9} claimed, {:.9} derived ({kind})",
                plan.sensitivity.value, derived.value
            ),
        );
        let unit = derived.value * request.clip_norm * request.neighbouring.factor();
        let multiplier = plan.noise_std / unit;
        self.find(
            close(plan.noise_multiplier, multiplier),
            format!("multiplier: {:.9} claimed, {multiplier:.9} derived", plan.noise_multiplier),
        );
        let (epsilon, delta) = (request.epsilon, request.delta);
        // The integral needs a positive multiplier and a delta that means something.
        let meaningful = multiplier > 0.0 && delta > 0.0 && delta < 1.0;
        let found = meaningful.then(|| divergence::epsilon(multiplier, delta)).flatten();
        self.find(
            found.is_some_and(|found| found <= epsilon * (1.0 + TOLERANCE)),
            match found {
                Some(found) => {
                    format!("epsilon: {epsilon} claimed, {found:.9} derived at delta {delta:e}")
                }
                None => format!("epsilon: {epsilon} claimed, none derived"),
            },
        );
        self.sensitivity = Some(derived.value);
        self.noise_multiplier = Some(multiplier);
        self.epsilon = found;
    }
}

fn close(claimed: f64, derived: f64) -> bool {
    (claimed / derived - 1.0).abs() <= TOLERANCE
}
