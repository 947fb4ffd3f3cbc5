//! The model of a finished run, read from its folder.

use std::fs;
use std::path::Path;

use anyhow::Context;
use dp_train::fingerprint::Fingerprint;
use dp_train::model::Architecture;

use super::{folder, parameters};
use crate::bad_argument::BadArgument;
use crate::config::{self, Config};

/// What `config.toml` and `parameters.safetensors` of a run say.
#[derive(Debug)]
pub struct Trained {
    /// The config of the run.
    pub config: Config,
    /// The layers of the model.
    pub architecture: Architecture,
    /// Its parameters, in one flat vector.
    pub parameters: Vec<f32>,
    /// SHA-256 of the file that they were read from.
    pub sha256: Fingerprint,
}

impl Trained {
    /// Reads both files.
    ///
    /// # Errors
    /// If one of them is missing, or they are not of one model.
    pub fn read(run: &Path) -> anyhow::Result<Self> {
        let config = config::file::read(&run.join(folder::CONFIG), &[])?;
        let wrong = |error| BadArgument(format!("{}: {error}", run.display()));
        let architecture = config.model.architecture(&config.data).map_err(wrong)?;
        let path = run.join(folder::PARAMETERS);
        let bytes = fs::read(&path)
            .with_context(|| format!("could not read {}; is the run finished?", path.display()))?;
        let parameters = parameters::read(&architecture, &bytes)
            .with_context(|| format!("{} is not the model of the config", path.display()))?;
        Ok(Self { config, architecture, parameters, sha256: Fingerprint::of_bytes(&bytes) })
    }
}
