//! `bandroot verify`: whether a certificate's claim follows from its numbers, and belongs to the files beside it.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail};
use dp_train::certificate::{Certificate, FORMAT_1};
use dp_train::fingerprint::Fingerprint;
use dp_train::plan::PlanRecord;
use dp_train::seeds::KeyOrigin;
use dp_train::verification::{self, Finding, NOT_PROVEN, Verdict};
use serde::Serialize;
use serde_json::Value;

use crate::cli::Verify;
use crate::config::privacy::Privacy;
use crate::config::{self, Config};
use crate::output;
use crate::results::ABRIDGED;
use crate::run_folder;
use crate::train::metrics;

/// What `verify --json` prints.
#[derive(Debug, Serialize)]
struct Report {
    holds: bool,
    private: bool,
    sensitivity: Option<f64>,
    noise_multiplier: Option<f64>,
    epsilon: Option<f64>,
    findings: Vec<(bool, String)>,
    /// What was not there to be checked.
    not_checked: Vec<String>,
    /// What no certificate proves.
    not_proven: [&'static str; 3],
}

/// Says yes or no; no is an error, so that scripts see it in the exit code.
pub(crate) fn run(arguments: &Verify) -> anyhow::Result<()> {
    let run = &arguments.run;
    let path = run.join("privacy.json");
    if !path.exists() && is_open(run) {
        bail!(
            "{} was trained with privacy = \"none\": it has no guarantee to check",
            run.display()
        );
    }
    if !path.exists() && run.join(ABRIDGED).exists() {
        return abridged(run);
    }
    let certificate = read_certificate(&path)?;
    let mut folder = Folder {
        run,
        verdict: verification::verify(&certificate),
        certificate: &certificate,
        not_checked: Vec::new(),
    };
    folder.check(arguments.data)?;
    let Folder { verdict, not_checked, .. } = folder;
    if arguments.json {
        let findings = verdict.findings.iter().map(|f| (f.holds, f.detail.clone())).collect();
        output::print(&output::json(&Report {
            holds: verdict.holds(),
            private: verdict.is_private(),
            sensitivity: verdict.sensitivity,
            noise_multiplier: verdict.noise_multiplier,
            epsilon: verdict.epsilon,
            findings,
            not_checked,
            not_proven: NOT_PROVEN,
        })?)?;
    } else {
        output::print(&text(&verdict, &not_checked))?;
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
    Ok(())
}

/// The findings, the verdict in the last line but those that say what it does not cover.
fn text(verdict: &Verdict, not_checked: &[String]) -> String {
    let mut text = verdict.to_string() + "\n";
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
    let path = run.join(ABRIDGED);
    let certificate = read_certificate(&path)?;
    let hash = certificate.plan.strategy_sha256;
    let verdict = verification::verify(&certificate);
    let words = ["strategy", "format", "generator", "limits", "statement", "realised", "request"];
    for finding in &verdict.findings {
        let known = words[1..].iter().any(|word| finding.detail.starts_with(word));
        if known {
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
fn is_open(run: &Path) -> bool {
    let config = config::file::read(&run.join("config.toml"), &[]);
    config.is_ok_and(|config| config.privacy == Privacy::None)
}

/// The files of a run beside its certificate.
struct Folder<'a> {
    run: &'a Path,
    certificate: &'a Certificate,
    verdict: Verdict,
    not_checked: Vec<String>,
}

impl Folder<'_> {
    fn find(&mut self, holds: bool, detail: impl Into<String>) {
        self.verdict.findings.push(Finding { holds, detail: detail.into() });
    }

    fn skip(&mut self, what: impl Into<String>) {
        self.not_checked.push(what.into());
    }

    /// The bytes of a file; a file that does not exist is noted as not checked.
    fn read(&mut self, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let path = self.run.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.skip(format!("{name} is not in the folder"));
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
        }
    }

    fn check(&mut self, data: bool) -> anyhow::Result<()> {
        if self.certificate.format == FORMAT_1 {
            self.skip(
                "a certificate of format 1 names no hashes: nothing binds it to these files but their numbers, and \
                 the noise of its run was rounded to f32 before it was added",
            );
        }
        let config = match self.read("config.toml")? {
            None => None,
            // Read as training reads it; what is wrong with it is its message.
            Some(_) => Some(config::file::read(&self.run.join("config.toml"), &[])?),
        };
        if let Some(config) = &config {
            self.check_config(config)?;
        }
        self.check_plan()?;
        self.check_summary()?;
        self.check_parameters()?;
        self.check_secrets()?;
        match (config, data) {
            (Some(config), true) => self.check_data(&config)?,
            _ => self.skip("the training data; --data reads them and compares their SHA-256"),
        }
        Ok(())
    }

    fn check_config(&mut self, config: &Config) -> anyhow::Result<()> {
        let Privacy::Guaranteed(guarantee) = &config.privacy else {
            self.find(false, "config.toml: privacy = \"none\", of which no run has a certificate");
            return Ok(());
        };
        let certificate = self.certificate;
        let first = certificate.format == FORMAT_1;
        if let Some(claimed) = certificate.artifacts.config_sha256 {
            let found = config.sha256()?;
            self.find(
                claimed == found,
                format!("artifacts.config_sha256: config.toml has {found}"),
            );
        } else if !first {
            self.find(
                false,
                "artifacts.config_sha256: missing, so the certificate is of no config",
            );
        }
        let request = &certificate.plan.request;
        let asked = config.plan_request();
        self.find(
            asked.as_ref() == Ok(request),
            match &asked {
                Ok(_) => "plan.request: what config.toml asks for".to_owned(),
                Err(error) => format!("plan.request: config.toml has none: {error}"),
            },
        );
        let origin = match guarantee.noise_seed {
            Some(_) => KeyOrigin::FixedSeed,
            None => KeyOrigin::OperatingSystem,
        };
        self.find(
            certificate.noise_key == origin,
            format!("noise_key: config.toml asks for a {origin}"),
        );
        let examples = config.data.training_examples();
        self.find(
            examples == Ok(certificate.realised.examples),
            format!("realised.examples: {} in config.toml", examples.unwrap_or(0)),
        );
        if !first {
            let held_out = config.data.held_out_examples();
            let same = held_out == certificate.held_out_examples;
            self.find(same, format!("held_out_examples: config.toml holds {held_out} out"));
            let same = certificate.metrics == metrics::metrics(config);
            self.find(same, "metrics: what such a run records, and what of it is private");
        }
        Ok(())
    }

    fn check_plan(&mut self) -> anyhow::Result<()> {
        let Some(bytes) = self.read("plan.json")? else { return Ok(()) };
        let plan: Result<PlanRecord, _> = serde_json::from_slice(&bytes);
        let same = plan.is_ok_and(|plan| plan == self.certificate.plan);
        self.find(same, "plan.json: the plan of the certificate");
        Ok(())
    }

    fn check_summary(&mut self) -> anyhow::Result<()> {
        let Some(bytes) = self.read("summary.json")? else { return Ok(()) };
        let summary: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let Certificate { plan, statement, realised, .. } = self.certificate;
        let private = self.verdict.secret_key;
        for (key, same) in [
            ("epsilon", summary["epsilon"].as_f64() == Some(plan.request.epsilon)),
            ("delta", summary["delta"].as_f64() == Some(plan.request.delta)),
            ("private", summary["private"].as_bool() == Some(private)),
            ("statement", summary["statement"].as_str() == Some(statement)),
            ("steps", summary["steps"].as_u64() == Some(realised.steps as u64)),
        ] {
            self.find(same, format!("summary.json: {key} as in the certificate"));
        }
        Ok(())
    }

    fn check_parameters(&mut self) -> anyhow::Result<()> {
        let Some(claimed) = self.certificate.artifacts.parameters_sha256 else {
            if self.certificate.format != FORMAT_1 && self.run.join("summary.json").exists() {
                self.find(
                    false,
                    "artifacts.parameters_sha256: missing, though the run is finished",
                );
            }
            return Ok(());
        };
        let Some(bytes) = self.read("parameters.safetensors")? else { return Ok(()) };
        let found = Fingerprint::of_bytes(&bytes);
        self.find(
            claimed == found,
            format!("artifacts.parameters_sha256: parameters.safetensors has {found}"),
        );
        Ok(())
    }

    /// A key that lies beside the model is no secret: a finished run has none.
    fn check_secrets(&mut self) -> anyhow::Result<()> {
        let entries = fs::read_dir(self.run)
            .with_context(|| format!("could not read the folder {}", self.run.display()))?;
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if run_folder::is_secret(&name) {
                self.find(
                    false,
                    format!("{name}: it can hold the noise key, which undoes the noise"),
                );
            }
        }
        Ok(())
    }

    fn check_data(&mut self, config: &Config) -> anyhow::Result<()> {
        let found = config.load_data()?.train.sha256();
        let claimed = self.certificate.artifacts.training_data_sha256;
        self.find(
            claimed == Some(found),
            format!("artifacts.training_data_sha256: the training examples have {found}"),
        );
        Ok(())
    }
}
