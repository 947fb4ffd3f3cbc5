//! Interruption: a request to stop, which ends in a checkpoint instead of a lost run.
//!
//! Asked by SIGINT (a terminal), SIGTERM (`kill`, `scancel`, preemption) or SIGUSR1 (a scheduler, ahead of its time
//! limit). SIGHUP is left as it was found, so that a command under `nohup` outlives its terminal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::{consts, flag};

use crate::terminal::output::STOPPED;

/// What becomes true with the first request.
static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in signals() {
        // Only a signal that may not be caught is refused, and none of these is one.
        drop(flag::register(signal, Arc::clone(&asked)));
    }
    asked
});

fn signals() -> impl Iterator<Item = i32> {
    let signals = [
        consts::SIGINT,
        consts::SIGTERM,
        #[cfg(unix)]
        consts::SIGUSR1,
    ];
    signals.into_iter()
}

/// Whether a request ends this process at once.
static HAS_NOTHING_TO_KEEP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Until [`flag()`] is called, a request ends this process at once and with the code of what goes on later: all that it has
/// done is to read a run that is on the disk.
pub(crate) fn end_at_once() {
    HAS_NOTHING_TO_KEEP.store(true, Ordering::SeqCst);
    for signal in signals() {
        let condition = Arc::clone(&HAS_NOTHING_TO_KEEP);
        // As below.
        drop(flag::register_conditional_shutdown(signal, STOPPED.into(), condition));
    }
}

/// The flag that is set as soon as this process is asked to stop. From the first call on such a signal no longer ends
/// it, so whoever calls looks at the flag.
pub(crate) fn flag() -> Arc<AtomicBool> {
    let asked = Arc::clone(&ASKED);
    // Only now: a request in between is heard by one or the other.
    HAS_NOTHING_TO_KEEP.store(false, Ordering::SeqCst);
    asked
}
