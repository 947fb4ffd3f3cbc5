//! Files that are either the old ones or the whole new ones, whatever happens.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::bad_argument::BadArgument;

/// Pretty JSON in full precision, with a line break at the end.
pub fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Writes a file so that it is either the old one or the whole new one, whatever happens: a temporary
/// file beside it is written, synchronized and renamed.
pub fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    replace(path, |file| file.write_all(content), OpenOptions::new())
}

/// As [`write()`], with the temporary file beside `near`, which must be on the same disk.
pub fn write_through(near: &Path, path: &Path, content: &[u8]) -> anyhow::Result<()> {
    through(near, path, |file| file.write_all(content), OpenOptions::new())
}

/// As [`write()`], for content that only the owner may read.
pub fn write_secret(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    write_secret_with(path, |file| file.write_all(content))
}

/// As [`write_secret()`], for content that is not in memory as bytes.
pub fn write_secret_with(
    path: &Path,
    content: impl FnOnce(&mut fs::File) -> io::Result<()>,
) -> anyhow::Result<()> {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has a mode to set"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    replace(path, content, options)
}

/// Whether a file of this name is what a crash left of one that was being written.
pub fn is_partial(name: &str) -> bool {
    name.ends_with(PARTIAL)
}

/// Waits until the names in a folder are on the disk: until then a crash may bring back what was removed.
pub fn sync_folder(folder: &Path) -> anyhow::Result<()> {
    // Elsewhere a folder cannot be opened, and the system keeps the order by itself.
    #[cfg(unix)]
    fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .with_context(|| format!("could not write the folder {}", folder.display()))?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// How the names of temporary files end.
const PARTIAL: &str = ".partial";

fn replace(
    path: &Path,
    content: impl FnOnce(&mut fs::File) -> io::Result<()>,
    options: OpenOptions,
) -> anyhow::Result<()> {
    through(path, path, content, options)
}

/// Writes `path` by way of a temporary file beside `near`.
fn through(
    near: &Path,
    path: &Path,
    content: impl FnOnce(&mut fs::File) -> io::Result<()>,
    mut options: OpenOptions,
) -> anyhow::Result<()> {
    let name = near
        .file_name()
        .ok_or_else(|| BadArgument(format!("{} does not name a file", near.display())))?;
    let mut temporary_name = name.to_os_string();
    temporary_name.push(format!(".{}{PARTIAL}", std::process::id()));
    let temporary = near.with_file_name(temporary_name);
    let replace = || -> io::Result<()> {
        // Never into a file that is there: it may be readable by others.
        drop(fs::remove_file(&temporary));
        let mut file = options.write(true).create_new(true).open(&temporary)?;
        content(&mut file)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    replace().with_context(|| {
        // The temporary file may not exist; that is what is wanted.
        drop(fs::remove_file(&temporary));
        format!("could not write {}", path.display())
    })
}
