//! Verification: does the claim of a certificate follow from its own numbers?
//!
//! Strategy, sensitivity, noise and epsilon are derived again from the request in the file, by
//! definitions instead of closed forms: term-by-term sums, tables over all columns, an integral for
//! `delta`. Every other number and every sentence of the certificate is derived too and compared. Seconds for
//! `n = 2000`.

use std::fmt;

use crate::certificate::Certificate;
use crate::seeds::KeyOrigin;

mod claim;
mod divergence;
mod numbers;
mod participation;
mod reference;
mod strategy;
mod tuning;

/// How far a number may be from its re-derivation, relatively: rounding of two different
/// computations.
const TOLERANCE: f64 = 1e-8;

/// What no certificate can prove, however its numbers fit: for whoever reads a yes.
pub const NOT_PROVEN: [&str; 4] = [
    "that this program, and no other, made the run: the numbers follow from each other, whoever wrote them",
    "that the noise key was random, kept secret and used for nothing else",
    "that secret batches, where the plan has them, were drawn as it says and that nobody learned them, by timing or else",
    "that the files and the data are those that were used, beyond their hashes",
];

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
    verdict.check_claim(certificate);
    verdict.check_participation(certificate);
    // What follows divides by the numbers of the request and makes tables of its sizes.
    if verdict.check_request(certificate)
        && let Some((strategy, slow)) = verdict.check_strategy(certificate)
    {
        verdict.check_numbers(certificate, strategy);
        verdict.check_noise(certificate, &slow);
        verdict.check_tuning(certificate);
    }
    verdict
}

impl Verdict {
    fn find(&mut self, holds: bool, detail: String) {
        self.findings.push(Finding { holds, detail });
    }
}

fn close(claimed: f64, derived: f64) -> bool {
    claimed == derived || (claimed / derived - 1.0).abs() <= TOLERANCE
}
