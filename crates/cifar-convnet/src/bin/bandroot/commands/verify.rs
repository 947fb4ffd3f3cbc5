//! `bandroot verify`: whether a certificate's claim follows from its numbers, and belongs to the files beside it.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use cifar_convnet::run::folder;
use cifar_convnet::run::verification::Folder;
use dp_train::certificate::Certificate;
use dp_train::verification::{self, NOT_PROVEN, Verdict};
use serde::Serialize;

use crate::cli::Verify;
use crate::terminal::output;
use cifar_convnet::config;
use cifar_convnet::config::privacy::Privacy;
use cifar_convnet::files;

/// What `verify --json` prints.
#[derive(Debug, Serialize)]
struct VerifyOutput {
    holds: bool,
    /// Whether all that binds the certificate to this folder was there and holds.
    bound: bool,
    /// The numbers hold, the certificate is bound, and the key was secret.
    private: bool,
    sensitivity: Option<f64>,
    noise_multiplier: Option<f64>,
    epsilon: Option<f64>,
    findings: Vec<(bool, String)>,
    /// What was not there to be checked.
    not_checked: Vec<String>,
    /// What no certificate proves.
    not_proven: [&'static str; 4],
}

/// Says yes or no; no is an error, so that scripts see it in the exit code.
pub(crate) fn run(arguments: &Verify) -> anyhow::Result<()> {
    let run = &arguments.run;
    let path = run.join(folder::CERTIFICATE);
    if !path.exists() && is_non_private(run) {
        bail!(
            "{} was trained with privacy = \"none\": it has no guarantee to check",
            run.display()
        );
    }
    if !path.exists() && run.join(folder::ABRIDGED).exists() {
        return abridged(run);
    }
    let certificate = read_certificate(&path)?;
    let mut folder = Folder::new(run, &certificate);
    folder.check(arguments.data)?;
    let Folder { verdict, not_checked, bound, .. } = folder;
    let private = verdict.is_private() && bound;
    if arguments.json {
        let findings = verdict.findings.iter().map(|f| (f.holds, f.detail.clone())).collect();
        output::print(&files::json(&VerifyOutput {
            holds: verdict.holds(),
            bound,
            private,
            sensitivity: verdict.sensitivity,
            noise_multiplier: verdict.noise_multiplier,
            epsilon: verdict.epsilon,
            findings,
            not_checked,
            not_proven: NOT_PROVEN,
        })?)?;
    } else {
        output::print(&text(&verdict, &not_checked, bound))?;
    }
    if !verdict.holds() {
        bail!("the claim of {} does not follow from its numbers and files", path.display());
    }
    if arguments.require_private && !verdict.is_private() {
        bail!(
            "{}: the noise seed was fixed, so the run is reproducible, not private",
            path.display()
        );
    }
    if arguments.require_private && !private {
        bail!("{}: nothing binds it to a run: see what was not checked", path.display());
    }
    Ok(())
}

/// The findings, the verdict, and then what it does not cover.
fn text(verdict: &Verdict, not_checked: &[String], bound: bool) -> String {
    let mut text = verdict.to_string();
    if verdict.holds() && !bound {
        text += ", for the numbers of the certificate alone: nothing binds it to a run";
    }
    text += "\n";
    for what in not_checked {
        text += &format!("not checked: {what}\n");
    }
    for what in NOT_PROVEN {
        text += &format!("not proven by any certificate: {what}\n");
    }
    text
}

fn read_certificate(path: &Path) -> anyhow::Result<Certificate> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("could not read the certificate {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a certificate", path.display()))
}

/// A certificate without the rows of its strategy: what can be said of it is said, and that it is no proof.
fn abridged(run: &Path) -> anyhow::Result<()> {
    let path = run.join(folder::ABRIDGED);
    let certificate = read_certificate(&path)?;
    let hash = certificate.plan.strategy_sha256;
    let words = ["format", "generator", "limits", "statement", "realised", "request"];
    for finding in &verification::verify(&certificate).findings {
        if words.iter().any(|word| finding.detail.starts_with(word)) {
            let mark = if finding.holds { "ok" } else { "NO" };
            output::print(&format!("{mark:4} {}", finding.detail))?;
        }
    }
    bail!(
        "{} was imported without the rows of its strategy, so neither sensitivity nor epsilon can be derived; the \
         plan of its config, solved again, must have the strategy SHA-256 {hash}: bandroot plan {}/config.toml",
        path.display(),
        run.display()
    )
}

/// Whether the config of a run says that it is not private.
fn is_non_private(run: &Path) -> bool {
    let config = config::file::read(&run.join(folder::CONFIG), &[]);
    config.is_ok_and(|config| config.privacy == Privacy::None)
}
