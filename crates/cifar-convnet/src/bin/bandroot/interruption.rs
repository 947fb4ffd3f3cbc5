//! Interruption: a request to stop, which ends in a checkpoint instead of a lost run.
//!
//! Asked by SIGINT (a terminal), SIGTERM (`kill`, `scancel`, preemption) or SIGUSR1 (a scheduler, ahead of its time
//! limit). SIGHUP is left as it was found, so that a command under `nohup` outlives its terminal.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use signal_hook::consts;

/// What becomes true with the first request.
static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| {
    let asked = Arc::new(AtomicBool::new(false));
    let signals = [
        consts::SIGINT,
        consts::SIGTERM,
        #[cfg(unix)]
        consts::SIGUSR1,
    ];
    for signal in signals {
        // Only a signal that may not be caught is refused, and none of these is one.
        drop(signal_hook::flag::register(signal, Arc::clone(&asked)));
    }
    asked
});

/// The flag that is set as soon as this process is asked to stop. From the first call on such a signal no longer ends
/// it, so whoever calls looks at the flag.
pub(crate) fn flag() -> Arc<AtomicBool> {
    Arc::clone(&ASKED)
}
