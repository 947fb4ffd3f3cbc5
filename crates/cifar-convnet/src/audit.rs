//! `bandroot verify` and `bandroot audit`: for those who do not take our word for it.

use std::path::Path;

use anyhow::{Context, bail};
use dp_train::audit::{self, AuditReport};
use dp_train::certificate::Certificate;
use dp_train::seeds::RunSeed;
use dp_train::verification;
use serde::Serialize;

use crate::cli::{Audit, Verify};
use crate::config;
use crate::config::privacy::Privacy;
use crate::output;
use crate::plan;

/// What `verify --json` prints.
#[derive(Debug, Serialize)]
struct Report {
    holds: bool,
    private: bool,
    sensitivity: Option<f64>,
    noise_multiplier: Option<f64>,
    epsilon: Option<f64>,
    findings: Vec<(bool, String)>,
}

/// Says yes or no; no is an error, so that scripts see it in the exit code.
pub(crate) fn verify(arguments: &Verify) -> anyhow::Result<()> {
    let path = arguments.run.join("privacy.json");
    if !path.exists() && is_open(&arguments.run) {
        bail!(
            "{} was trained with privacy = \"none\": it has no guarantee to check",
            arguments.run.display()
        );
    }
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("could not read the certificate {}", path.display()))?;
    let certificate: Certificate = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a certificate", path.display()))?;
    let verdict = verification::verify(&certificate);
    if arguments.json {
        let findings = verdict.findings.iter().map(|f| (f.holds, f.detail.clone())).collect();
        output::print(&output::json(&Report {
            holds: verdict.holds(),
            private: verdict.is_private(),
            sensitivity: verdict.sensitivity,
            noise_multiplier: verdict.noise_multiplier,
            epsilon: verdict.epsilon,
            findings,
        })?)?;
    } else {
        output::print(&verdict.to_string())?;
    }
    if !verdict.holds() {
        bail!("the claim of {} does not follow from its numbers", path.display());
    }
    if arguments.require_private && !verdict.is_private() {
        bail!(
            "{}: the noise seed was fixed, so the run is reproducible, not private",
            path.display()
        );
    }
    Ok(())
}

/// Whether the config of a run says that it is not private.
fn is_open(run: &Path) -> bool {
    let config = config::file::read(&run.join("config.toml"), &[]);
    config.is_ok_and(|config| config.privacy == Privacy::None)
}

/// Attacks the noise of a config's plan; a bound above the claim is an error.
pub(crate) fn audit(arguments: &Audit) -> anyhow::Result<()> {
    let plan = plan::from_file(&arguments.config, &arguments.aof)?;
    let report: AuditReport = audit::audit(&plan, arguments.trials, RunSeed(arguments.seed))
        .with_context(|| format!("could not audit {}", arguments.config.config.display()))?;
    if arguments.json {
        output::print(&output::json(&report)?)?;
    } else {
        output::print(&report.to_string())?;
    }
    if !report.passed() {
        bail!("the audit found the claim or the noise of the plan to be wrong");
    }
    Ok(())
}
