//! Secret batches in what is kept of a run: nothing that tells how many examples were in one.
//!
//! A run leaves it out by itself unless `training.record = "all"` asks for it, and the first runs on secret batches wrote
//! it all. Its certificate still lists what was recorded then.

use std::path::Path;

use serde_json::Value;

use cifar_convnet::config;
use cifar_convnet::files;
use cifar_convnet::run::{folder, metrics};

/// Whether the config of a run asks for batches that nobody may know.
pub(super) fn are_secret(run: &Path) -> anyhow::Result<bool> {
    let path = run.join(folder::CONFIG);
    if !path.exists() {
        return Ok(false);
    }
    let table = config::file::read_table(&path, &[])?;
    let sampling = table.get("privacy").and_then(|privacy| privacy.get("sampling"));
    Ok(sampling.is_some_and(|sampling| sampling.as_str() != Some("fixed-order")))
}

/// A file without what tells of the batches.
///
/// # Errors
/// If it cannot be read as what its name says.
pub(super) fn left_out(name: &str, text: &str) -> anyhow::Result<String> {
    match name {
        folder::METRICS => metrics::without_batches(text),
        folder::SUMMARY => {
            let mut summary: Value = serde_json::from_str(text)?;
            for key in ["seconds", "examples_per_second", "peak_memory_bytes"] {
                if let Some(value) = summary.get_mut(key) {
                    *value = Value::Null;
                }
            }
            files::json(&summary)
        }
        _ => Ok(text.to_owned()),
    }
}
