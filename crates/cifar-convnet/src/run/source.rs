//! The run that another one starts from: its model, and what is known of the data behind it.
//!
//! All of it is established from the folder of that run, and what cannot be is refused: a certificate must not keep
//! silent about data that nobody knows.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use dp_train::certificate::Certificate;
use dp_train::fingerprint::Fingerprint;
use dp_train::provenance::{Origin, Protection};

use super::summary::Summary;
use super::trained::Trained;
use super::verification::Folder;
use super::{commitment, folder, provenance};
use crate::bad_argument::BadArgument;
use crate::config::Config;
use crate::config::data::DataName;
use crate::config::privacy::Privacy;
use crate::data::Name;

/// A finished run to start from.
pub(super) struct Source<'a> {
    run: &'a Path,
    /// Its config and its model.
    pub(super) trained: Trained,
    /// Itself, and the runs that it started from, nearest first.
    pub(super) provenance: Vec<Origin>,
}

/// A refusal that names the key and the folder.
pub(super) fn refusal(run: &Path, reason: impl std::fmt::Display) -> BadArgument {
    BadArgument(format!("model.start_from = {:?}: {reason}", run.display().to_string()))
}

impl<'a> Source<'a> {
    /// Reads the folder of a run. If the run was private its certificate is checked, which takes seconds.
    ///
    /// # Errors
    /// A [`BadArgument`] if it is no finished run, if its certificate does not hold, or if it cannot be known what it
    /// was trained on.
    pub(super) fn read(run: &'a Path) -> anyhow::Result<Self> {
        let finished = run.join(folder::SUMMARY).is_file();
        ensure!(finished, refusal(run, "it is not the folder of a finished run: no summary.json"));
        let trained = Trained::read(run).map_err(|error| refusal(run, format!("{error:#}")))?;
        let started = trained.config.model.start_from.is_some();
        let before = provenance::read(run).map_err(|error| refusal(run, format!("{error:#}")))?;
        ensure!(
            started == before.as_ref().is_some_and(|before| !before.is_empty()),
            refusal(
                run,
                "config.toml and provenance.json do not agree on whether it started from another run, so it is not \
                 known what it was trained on"
            )
        );
        let data = &trained.config.data;
        let (training_data_sha256, protection) = match (&trained.config.privacy, data.name) {
            (_, DataName::Textures) => (None, Protection::Generated),
            (Privacy::None, _) => (Summary::read(run)?.training_data_sha256, Protection::None),
            (Privacy::Guaranteed(_), _) => certified(run)?,
        };
        ensure!(
            data.is_public() || training_data_sha256.is_some(),
            refusal(
                run,
                "it has no hash of its training examples, so it is not known what it was trained on; a run that is \
                 made now has one"
            )
        );
        let nearest = Origin {
            parameters_sha256: trained.sha256,
            data: data.title(),
            training_data_sha256,
            protection,
        };
        let provenance: Vec<Origin> =
            [nearest].into_iter().chain(before.unwrap_or_default()).collect();
        ensure!(
            provenance.iter().all(is_public) || run.join(folder::SALT).is_file(),
            refusal(
                run,
                format!(
                    "its {} is not there, without which it cannot be seen whether this run is trained on the same data",
                    folder::SALT
                )
            )
        );
        Ok(Self { run, trained, provenance })
    }

    /// That a private run with this config and these training examples may start from it.
    ///
    /// Data are the same if they have one name or one hash; all runs of a chain have one salt. A copy under another name
    /// that differs in one example, or of which another part is held out, is not noticed.
    ///
    /// # Errors
    /// A [`BadArgument`] if it, or a run before it, was trained on the same data.
    pub(super) fn check_data(&self, config: &Config, data: &Fingerprint) -> anyhow::Result<()> {
        let name = config.data.title();
        let salted = commitment::salted(self.run, data)?;
        for (index, origin) in self.provenance.iter().enumerate() {
            let found = origin.training_data_sha256;
            let same_hash = found.is_some() && (found == Some(*data) || found == salted);
            if origin.protection == Protection::Generated || !(same_hash || origin.data == name) {
                continue;
            }
            let reason = match origin.protection {
                Protection::Certified { epsilon, delta, .. } => format!(
                    "with ({epsilon}, {delta:e})-differential privacy, but what two runs on the same data spend adds up, \
                     and no certificate here accounts for that"
                ),
                Protection::None | Protection::Generated => {
                    "without privacy: its parameters show these examples, whatever noise is added now"
                        .to_owned()
                }
            };
            let which = if index == 0 { "it" } else { "a run that it started from" };
            return Err(refusal(
                self.run,
                format!("{which} was trained on {}, as this run is, {reason}", origin.data),
            )
            .into());
        }
        Ok(())
    }
}

/// Whether the data of a run are generated or published, so that their hash has no salt.
fn is_public(origin: &Origin) -> bool {
    let known = [Name::Textures, Name::Cifar10, Name::FashionMnist];
    origin.protection == Protection::Generated
        || known.iter().any(|name| name.as_str() == origin.data)
}

/// What a private run says of its data, if its certificate holds and belongs to its files.
fn certified(run: &Path) -> anyhow::Result<(Option<Fingerprint>, Protection)> {
    let path = run.join(folder::CERTIFICATE);
    let bytes = fs::read(&path).with_context(|| format!("could not read {}", path.display()));
    let bytes = bytes.map_err(|error| refusal(run, format!("{error:#}")))?;
    let certificate: Certificate = serde_json::from_slice(&bytes)
        .map_err(|error| refusal(run, format!("{} is damaged: {error}", path.display())))?;
    let mut files = Folder::new(run, &certificate);
    files.check(false)?;
    ensure!(
        files.verdict.holds() && files.bound,
        refusal(
            run,
            "its certificate does not hold for its files, so it is not known what it was trained on: see bandroot verify"
        )
    );
    let request = &certificate.plan.request;
    let protection = match files.verdict.is_private() {
        true => Protection::Certified {
            epsilon: request.epsilon,
            delta: request.delta,
            certificate_sha256: Fingerprint::of_bytes(&bytes),
        },
        // The noise seed was fixed.
        false => Protection::None,
    };
    Ok((certificate.artifacts.training_data_sha256, protection))
}
