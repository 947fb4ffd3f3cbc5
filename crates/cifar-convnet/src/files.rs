//! Files that are either the old ones or the whole new ones, whatever happens.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::bad_argument::BadArgument;
use crate::machine;

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

/// Whether a file system says that it has no locks: as an NFS mount without them does, which is no reason to give up.
pub fn has_no_locks(error: &io::Error) -> bool {
    #[cfg(target_os = "linux")]
    if rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NOLCK) {
        return true;
    }
    error.kind() == io::ErrorKind::Unsupported
}

/// Whether a file or folder is gone, be it that another machine removed it after it was opened here.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::StaleNetworkFileHandle)
}

/// A folder that only the owner may look into; one that exists is left as it is.
pub fn create_closed_folder(path: &Path) -> anyhow::Result<()> {
    let context = || format!("could not make the folder {}", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(context)?;
    }
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has a mode to set"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.with_context(context),
    }
}

/// A name that no other thread, process or machine has, and that tells people where it comes from: processes of two
/// machines can have one number.
pub fn unique_name() -> anyhow::Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| {
        anyhow::anyhow!("the operating system gives no random numbers: {error}")
    })?;
    let host = machine::host().unwrap_or_default();
    let host: String = host.chars().filter(char::is_ascii_alphanumeric).take(24).collect();
    Ok(format!("{host}-{}-{:016x}", std::process::id(), u64::from_le_bytes(random)))
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
    temporary_name.push(format!(".{}{PARTIAL}", unique_name()?));
    let temporary = near.with_file_name(temporary_name);
    let replace = || -> io::Result<()> {
        // Never into a file that is there: it may be readable by others.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_may_write_one_file_at_the_same_moment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sweep.csv");
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        write(path, format!("{thread}").repeat(1000).as_bytes()).unwrap();
                    }
                });
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!((text.len(), text.replace(&text[..1], "")), (1000, String::new()), "one's own");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half-written is left");
    }

    #[test]
    fn a_temporary_name_says_where_it_is_from_and_is_never_used_again() {
        let (one, two) = (unique_name().unwrap(), unique_name().unwrap());
        assert_ne!(one, two);
        assert!(one.contains(&format!("-{}-", std::process::id())), "{one}");
        assert!(one.len() < 60 && one.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_words_of_network_file_systems_are_understood() {
        let (no_lock, stale, no_space) = (37, 116, 28);
        let error = io::Error::from_raw_os_error;
        assert!(has_no_locks(&error(no_lock)) && !has_no_locks(&error(stale)));
        assert!(is_gone(&error(stale)) && !is_gone(&error(no_lock)) && !is_gone(&error(no_space)));
    }

    #[cfg(unix)]
    #[test]
    fn a_closed_folder_is_for_its_owner_and_an_open_one_stays_open() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (new, old) = (folder.path().join("a/new"), folder.path().join("old"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        create_closed_folder(&new).unwrap();
        assert_eq!(mode(&new), 0o700);
        fs::create_dir(&old).unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o750)).unwrap();
        create_closed_folder(&old).unwrap();
        assert_eq!(mode(&old), 0o750);
    }
}
