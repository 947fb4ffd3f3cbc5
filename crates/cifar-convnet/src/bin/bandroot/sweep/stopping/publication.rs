//! What is shown of a search with random stopping: its best run, and nothing that tells of the others.

use std::fs;
use std::path::Path;

use anyhow::Context;
use dp_train::accounting::stopping::Selection;

use cifar_convnet::files;
use cifar_convnet::run::folder;
use cifar_convnet::run::summary::Summary;

/// The folder of the best run, beside that of all.
pub(super) const CHOSEN: &str = "chosen";

/// Moves a run to where it may be seen, without what its noise does not cover and what tells of the others.
pub(super) fn publish(
    run: &Path,
    selection: Selection,
    secret: &Path,
    chosen: &Path,
) -> anyhow::Result<()> {
    let certificate = folder::read_certificate(run)?.with_selection(selection);
    let found = Summary::read(run)?;
    let summary = Summary {
        run: chosen.to_owned(),
        validation_accuracy: None,
        validation_loss: None,
        last_iterate_validation_accuracy: None,
        last_iterate_validation_loss: None,
        epsilon: Some(selection.epsilon),
        statement: Some(certificate.statement.clone()),
        seconds: None,
        examples_per_second: None,
        peak_memory_bytes: None,
        ..found
    };
    let whole = secret.join(CHOSEN);
    if whole.exists() {
        fs::remove_dir_all(&whole)
            .with_context(|| format!("could not remove {}", whole.display()))?;
    }
    fs::create_dir(&whole).with_context(|| format!("could not make {}", whole.display()))?;
    // When it began, where and beside how many at a time would tell of the others.
    let path = run.join(folder::ENVIRONMENT);
    let text = fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
    let mut environment: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))?;
    for key in ["command", "threads", "engine", "unix_time"] {
        environment.remove(key);
    }
    files::write(&whole.join(folder::ENVIRONMENT), files::json(&environment)?.as_bytes())?;
    for name in [folder::CONFIG, folder::PLAN, folder::PARAMETERS] {
        let (from, to) = (run.join(name), whole.join(name));
        let content =
            fs::read(&from).with_context(|| format!("could not read {}", from.display()))?;
        files::write(&to, &content)?;
    }
    files::write(&whole.join(folder::CERTIFICATE), files::json(&certificate)?.as_bytes())?;
    files::write(&whole.join(folder::SUMMARY), files::json(&summary)?.as_bytes())?;
    fs::rename(&whole, chosen)
        .with_context(|| format!("could not move the best run to {}", chosen.display()))
}
