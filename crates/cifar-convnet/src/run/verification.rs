//! The files of a run, held against its certificate.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;
use dp_train::certificate::{Certificate, FORMAT_1};
use dp_train::fingerprint::Fingerprint;
use dp_train::plan::PlanRecord;
use dp_train::provenance::Origin;
use dp_train::seeds::KeyOrigin;
use dp_train::verification::{self, Finding, Verdict};
use serde_json::Value;

use super::summary::Summary;
use super::{commitment, folder, metrics};
use crate::config::privacy::{Privacy, RandomStopping};
use crate::config::{self, Config};

/// How checkpoints begin, and the state of the noise in them, before the key.
const CHECKPOINT_MARKS: [&[u8]; 2] = [b"bandroot run 0", b"bandroot noise "];

/// A certificate in the folder of its run.
#[derive(Debug)]
pub struct Folder<'a> {
    run: &'a Path,
    certificate: &'a Certificate,
    /// What follows from the certificate alone, and then from the files too.
    pub verdict: Verdict,
    /// What was not there to be checked.
    pub not_checked: Vec<String>,
    /// Whether nothing was missing that binds the certificate to the run: a file, or a hash. The parameters may be
    /// left out, as results are kept without them.
    pub bound: bool,
}

impl<'a> Folder<'a> {
    /// What follows from the certificate alone.
    pub fn new(run: &'a Path, certificate: &'a Certificate) -> Self {
        Self {
            run,
            certificate,
            verdict: verification::verify(certificate),
            not_checked: Vec::new(),
            bound: certificate.format != FORMAT_1,
        }
    }

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
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
                self.skip(format!("{name} is not in the folder"));
                self.bound &= name == folder::PARAMETERS || name == folder::CONTINUATIONS;
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
        }
    }

    /// Holds all files against it; the training data only if they are asked for.
    ///
    /// # Errors
    /// If a file that exists cannot be read.
    pub fn check(&mut self, data: bool) -> anyhow::Result<()> {
        self.check_hashes();
        let config = match self.read(folder::CONFIG)? {
            None => None,
            // Read as training reads it; what is wrong with it is its message.
            Some(_) => Some(config::file::read(&self.run.join(folder::CONFIG), &[])?),
        };
        if let Some(config) = &config {
            self.check_config(config)?;
        }
        self.check_provenance(config.as_ref())?;
        self.check_plan()?;
        self.check_summary()?;
        self.check_parameters()?;
        self.check_continuations()?;
        self.check_secrets(self.run)?;
        if self.run.join(folder::SALT).exists() {
            self.skip(
                "data-salt opens the hash of the training data: leave it out of what you publish",
            );
        }
        self.skip("accuracies and losses in summary.json, metrics.csv and events: bandroot eval measures them again");
        match (config, data) {
            (Some(config), true) => self.check_data(&config)?,
            _ => self.skip("the training data; --data reads them and compares their SHA-256"),
        }
        Ok(())
    }

    /// A certificate of a run names all three hashes. One that a library's user wrote may name none, and is of no run.
    fn check_hashes(&mut self) {
        if self.certificate.format == FORMAT_1 {
            self.skip(
                "a certificate of format 1 names no hashes: nothing binds it to these files but their numbers, and \
                 the noise of its run was rounded to f32 before it was added",
            );
            return;
        }
        let artifacts = self.certificate.artifacts;
        let hashes = [
            ("config_sha256", artifacts.config_sha256),
            ("training_data_sha256", artifacts.training_data_sha256),
            ("parameters_sha256", artifacts.parameters_sha256),
        ];
        let ours = [folder::CONFIG, folder::SUMMARY, folder::PARAMETERS];
        let ours = ours.iter().any(|name| self.run.join(name).exists());
        for (name, _) in hashes.iter().filter(|(_, hash)| hash.is_none()) {
            self.bound = false;
            self.find(!ours, format!("artifacts.{name}: missing, so nothing binds it to a run"));
        }
    }

    fn check_config(&mut self, config: &Config) -> anyhow::Result<()> {
        let Privacy::Guaranteed(guarantee) = &config.privacy else {
            self.find(false, "config.toml: privacy = \"none\", of which no run has a certificate");
            return Ok(());
        };
        let certificate = self.certificate;
        if let Some(claimed) = certificate.artifacts.config_sha256 {
            let found = config.sha256()?;
            let same = claimed == found;
            self.find(same, format!("artifacts.config_sha256: config.toml has {found}"));
        }
        let asked = config.plan_request();
        self.find(
            asked.as_ref() == Ok(&certificate.plan.request),
            match &asked {
                Ok(_) => "plan.request: what config.toml asks for".to_owned(),
                Err(error) => format!("plan.request: config.toml has none: {error}"),
            },
        );
        let origin = match guarantee.noise_seed {
            Some(_) => KeyOrigin::FixedSeed,
            None => KeyOrigin::OperatingSystem,
        };
        let same = certificate.noise_key == origin;
        self.find(same, format!("noise_key: config.toml asks for a {origin}"));
        let examples = config.data.training_examples();
        self.find(
            examples == Ok(certificate.realized.examples),
            format!("realised.examples: {} in config.toml", examples.unwrap_or(0)),
        );
        let (least, trials) = (config.privacy.trials(), certificate.trials);
        self.find(trials >= least, format!("trials: {trials}, at least {least} in config.toml"));
        if let Some(RandomStopping { mean, shape }) = guarantee.random_stopping {
            let chosen = certificate.selection;
            let same = chosen.is_some_and(|chosen| (chosen.mean, chosen.shape) == (mean, shape));
            let detail = format!(
                "selection: by config.toml it is the best of a random number of runs, mean {mean}, shape {shape}"
            );
            self.find(same, detail);
        }
        if certificate.format != FORMAT_1 {
            let held_out = config.data.held_out_examples();
            let same = held_out == certificate.held_out_examples;
            self.find(same, format!("held_out_examples: config.toml holds {held_out} out"));
            let features = config.data.made_features().map(|features| features.to_string());
            if features.is_some() || certificate.features.is_some() {
                let same = features == certificate.features;
                let features = features.as_deref().unwrap_or("none");
                self.find(same, format!("features: config.toml asks for {features}"));
            }
            let same = certificate.metrics == metrics::metrics(config);
            self.find(same, "metrics: what such a run records, and what of it is private");
        }
        Ok(())
    }

    /// The runs that the parameters before the first step came from, as far as they can be compared.
    fn check_provenance(&mut self, config: Option<&Config>) -> anyhow::Result<()> {
        let claimed = &self.certificate.provenance;
        let source = config.and_then(|config| config.model.start_from.as_ref());
        let written = self.run.join(folder::PROVENANCE).exists();
        if claimed.is_empty() && source.is_none() && !written {
            return Ok(());
        }
        if config.is_some() {
            let same = source.is_some() != claimed.is_empty();
            self.find(same, "provenance: a run started from another as config.toml says");
        }
        if let Some(bytes) = self.read(folder::PROVENANCE)? {
            let found: Result<Vec<Origin>, _> = serde_json::from_slice(&bytes);
            let same = found.is_ok_and(|found| found == *claimed);
            self.find(same, "provenance: the runs that provenance.json names");
        }
        let (Some(source), Some(nearest)) = (source, claimed.first()) else { return Ok(()) };
        match fs::read(source.join(folder::PARAMETERS)) {
            Ok(bytes) => {
                let (found, source) = (Fingerprint::of_bytes(&bytes), source.display());
                let same = nearest.parameters_sha256 == found;
                self.find(same, format!("provenance: the parameters in {source} have {found}"));
            }
            Err(_) => self.skip(format!(
                "the run that it started from is not in {}: its parameters and data are taken from provenance.json",
                source.display()
            )),
        }
        Ok(())
    }

    fn check_plan(&mut self) -> anyhow::Result<()> {
        let Some(bytes) = self.read(folder::PLAN)? else { return Ok(()) };
        let plan: Result<PlanRecord, _> = serde_json::from_slice(&bytes);
        let same = plan.is_ok_and(|plan| plan == self.certificate.plan);
        self.find(same, "plan.json: the plan of the certificate");
        Ok(())
    }

    fn check_summary(&mut self) -> anyhow::Result<()> {
        let Some(bytes) = self.read(folder::SUMMARY)? else { return Ok(()) };
        let summary: Summary = match serde_json::from_slice(&bytes) {
            Ok(summary) => summary,
            Err(error) => {
                self.find(false, format!("summary.json: {error}"));
                return Ok(());
            }
        };
        let Certificate { plan, statement, realized, selection, .. } = self.certificate;
        let epsilon = selection.map_or(plan.request.epsilon, |selection| selection.epsilon);
        let mut claims = vec![
            ("epsilon", summary.epsilon == Some(epsilon)),
            ("delta", summary.delta == Some(plan.request.delta)),
            ("private", summary.private == self.verdict.secret_key),
            ("steps", summary.steps == realized.steps),
        ];
        match (&summary.statement, self.certificate.format.as_str()) {
            // The first runs had no statement in their summary.
            (None, FORMAT_1) => self.skip("summary.json has no statement"),
            (found, _) => claims.push(("statement", found.as_ref() == Some(statement))),
        }
        for (key, same) in claims {
            self.find(same, format!("summary.json: {key} as in the certificate"));
        }
        Ok(())
    }

    fn check_parameters(&mut self) -> anyhow::Result<()> {
        let Some(claimed) = self.certificate.artifacts.parameters_sha256 else { return Ok(()) };
        let Some(bytes) = self.read(folder::PARAMETERS)? else { return Ok(()) };
        let found = Fingerprint::of_bytes(&bytes);
        let same = claimed == found;
        self.find(same, format!("artifacts.parameters_sha256: {} has {found}", folder::PARAMETERS));
        Ok(())
    }

    /// No other run was trained in this folder, whose steps the certificate would not count.
    fn check_continuations(&mut self) -> anyhow::Result<()> {
        let Some(bytes) = self.read(folder::CONTINUATIONS)? else { return Ok(()) };
        let noted: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let runs = noted["released"].as_array().cloned().unwrap_or_default();
        let id = self.certificate.realized.run_id.as_str();
        let alone = runs.len() == 1 && runs[0][0].as_str() == Some(id);
        self.find(
            alone,
            format!("realised.run_id: {} names this run alone", folder::CONTINUATIONS),
        );
        Ok(())
    }

    /// A key that lies beside the model is no secret: a finished run has none, under whatever name.
    fn check_secrets(&mut self, folder: &Path) -> anyhow::Result<()> {
        let entries = fs::read_dir(folder)
            .with_context(|| format!("could not read the folder {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() && !path.is_symlink() {
                self.check_secrets(&path)?;
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let bytes = fs::read(&path);
            let holds = |mark: &&[u8]| {
                let bytes = bytes.as_deref().unwrap_or_default();
                bytes.windows(mark.len()).any(|window| window == *mark)
            };
            if folder::is_secret(&name) || CHECKPOINT_MARKS.iter().any(holds) {
                let detail = format!("{name}: it can hold the noise key, which undoes the noise");
                self.find(false, detail);
            } else if bytes.is_err() {
                // It may hold anything.
                self.bound = false;
                self.skip(format!("{name} could not be read"));
            }
        }
        Ok(())
    }

    fn check_data(&mut self, config: &Config) -> anyhow::Result<()> {
        // The hash is that of the examples, whatever a model sees of them.
        let found = config.data.clone().of_examples().load()?.train.sha256();
        let Some(found) = commitment::of(self.run, config, &found)? else {
            self.skip(
                "the training data: their hash is salted, and data-salt is not in the folder",
            );
            return Ok(());
        };
        let claimed = self.certificate.artifacts.training_data_sha256;
        self.find(
            claimed == Some(found),
            format!("artifacts.training_data_sha256: the training examples have {found}"),
        );
        Ok(())
    }
}
