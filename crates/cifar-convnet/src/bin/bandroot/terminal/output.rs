//! What leaves the program besides files: standard output and the exit code.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use cifar_convnet::BadArgument;
use cifar_convnet::run::folder::ContinuationRefused;

/// The exit code of what was asked to stop and can go on later: `EX_TEMPFAIL` of sysexits.h.
pub(crate) const STOPPED: u8 = 75;

/// The exit code of a checkpoint that is not continued, because it began with something else: another program, processor,
/// config or data. Where these are as they were it goes on.
pub(crate) const REFUSED: u8 = 3;

/// Work that was asked to stop and has kept what it needs to go on; the sentence says how.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Stopped(pub(crate) String);

/// 0 for success, 2 for bad arguments, [`REFUSED`] for a checkpoint of something else, [`STOPPED`] for what goes on later, 1
/// for everything else, with one sentence on standard error.
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
    ExitCode::from(if bad_argument {
        2
    } else if error.chain().any(|cause| cause.is::<ContinuationRefused>()) {
        REFUSED
    } else if error.chain().any(|cause| cause.is::<Stopped>()) {
        STOPPED
    } else {
        1
    })
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
