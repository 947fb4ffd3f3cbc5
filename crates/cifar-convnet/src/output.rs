//! What leaves the program: standard output, files, the exit code.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

/// An argument that cannot be used; ends the program with code 2, as a misspelt flag does.
#[derive(Debug)]
pub(crate) struct BadArgument(pub(crate) String);

impl std::fmt::Display for BadArgument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadArgument {}

/// 0 for success, 2 for bad arguments, 1 for everything else, with one sentence on standard error.
/// A reader that closed the pipe early has seen what it wanted.
pub(crate) fn exit_code(outcome: anyhow::Result<()>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    let closed = |cause: &io::Error| cause.kind() == ErrorKind::BrokenPipe;
    if error.downcast_ref::<io::Error>().is_some_and(closed) {
        return ExitCode::SUCCESS;
    }
    eprintln!("bandroot: {error:#}");
    let bad_argument = error.chain().any(|cause| {
        cause.downcast_ref::<BadArgument>().is_some()
            || cause.downcast_ref::<mf_core::Error>().is_some()
    });
    ExitCode::from(if bad_argument { 2 } else { 1 })
}

/// Prints text to standard output, ending it with a line break.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        stdout.write_all(b"\n")?;
    }
    stdout.flush()?;
    Ok(())
}

/// Pretty JSON in full precision, with a line break at the end.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Writes a file so that it is either the old one or the whole new one, whatever happens: a temporary
/// file beside it is written, synchronised and renamed.
pub(crate) fn write_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    replace(path, content, OpenOptions::new())
}

/// As [`write_file`], with the temporary file beside `near`, which must be on the same disk.
pub(crate) fn write_file_through(near: &Path, path: &Path, content: &[u8]) -> anyhow::Result<()> {
    through(near, path, content, OpenOptions::new())
}

/// As [`write_file`], for content that only the owner may read.
pub(crate) fn write_secret(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has a mode to set"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    replace(path, content, options)
}

/// Whether a file of this name is what a crash left of one that was being written.
pub(crate) fn is_partial(name: &str) -> bool {
    name.ends_with(PARTIAL)
}

/// Waits until the names in a folder are on the disk: until then a crash may bring back what was removed.
pub(crate) fn sync_folder(folder: &Path) -> anyhow::Result<()> {
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

fn replace(path: &Path, content: &[u8], options: OpenOptions) -> anyhow::Result<()> {
    through(path, path, content, options)
}

/// Writes `path` by way of a temporary file beside `near`.
fn through(
    near: &Path,
    path: &Path,
    content: &[u8],
    mut options: OpenOptions,
) -> anyhow::Result<()> {
    let name = near
        .file_name()
        .ok_or_else(|| BadArgument(format!("{} does not name a file", near.display())))?;
    let mut temporary_name = name.to_os_string();
    temporary_name.push(format!(".{}{PARTIAL}", std::process::id()));
    let temporary = near.with_file_name(temporary_name);
    let mut write = || -> io::Result<()> {
        // Never into a file that is there: it may be readable by others.
        drop(fs::remove_file(&temporary));
        let mut file = options.write(true).create_new(true).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().with_context(|| {
        // The temporary file may not exist; that is what is wanted.
        drop(fs::remove_file(&temporary));
        format!("could not write {}", path.display())
    })
}
