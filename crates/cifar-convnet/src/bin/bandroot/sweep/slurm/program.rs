//! The program as it was when workers were submitted: a build in between changes nothing for those that start later,
//! and a checkpoint is continued by the program that wrote it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use dp_train::fingerprint::Fingerprint;

use cifar_convnet::files;

/// This program's file, and where a copy of it belongs: another place for another program.
fn content(notes: &Path) -> anyhow::Result<(Vec<u8>, PathBuf)> {
    let program = std::env::current_exe().context("the path of this program")?;
    let bytes = std::fs::read(&program)
        .with_context(|| format!("could not read this program, {}", program.display()))?;
    let hash = Fingerprint::of_bytes(&bytes).to_string();
    let short: String = hash.chars().take(12).collect();
    let place = std::path::absolute(notes.join(format!("bandroot-{short}")))?;
    Ok((bytes, place))
}

/// Where the copy belongs; nothing is written.
pub(super) fn place(notes: &Path) -> anyhow::Result<PathBuf> {
    content(notes).map(|(_, place)| place)
}

/// Makes the copy unless it is there, and gives its place.
pub(super) fn pin(notes: &Path) -> anyhow::Result<PathBuf> {
    let (bytes, place) = content(notes)?;
    if !place.exists() {
        let partial = place.with_extension("new");
        // At no moment may others write to it, whatever the umask.
        files::write_secret(&partial, &bytes)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&partial, std::fs::Permissions::from_mode(0o700))?;
        }
        std::fs::rename(&partial, &place)
            .with_context(|| format!("could not write {}", place.display()))?;
    }
    Ok(place)
}
