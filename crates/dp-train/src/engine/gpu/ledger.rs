//! The host's side of the ledger: which kernels were started, and so how many must have run.

use std::cell::Cell;

use cubecl::client::Client;
use cubecl::prelude::{BufferArg, CubeElement};

use super::buffers::Buffer;
use super::kernels::ledger::{FAILED, KERNELS, WORDS};

/// A ledger on the device, and what it must say.
#[derive(Debug)]
pub(super) struct Ledger {
    words: Buffer,
    /// Kernels that were started with it.
    started: Cell<u32>,
    /// The number of one that is not started although it is counted, as if the driver had lost it.
    #[cfg(test)]
    pub(super) lost: Cell<Option<u32>>,
}

impl Ledger {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            words: Buffer::of(client, &[0_u32; WORDS]),
            started: Cell::new(0),
            #[cfg(test)]
            lost: Cell::new(None),
        }
    }

    /// Starts a kernel that enters itself.
    pub(super) fn start(&self, launch: impl FnOnce(BufferArg)) {
        self.started.set(self.started.get().wrapping_add(1));
        #[cfg(test)]
        if self.lost.get() == Some(self.started.get()) {
            return;
        }
        launch(self.words.argument());
    }

    /// How many kernels were started so far.
    #[cfg(test)]
    pub(super) fn started(&self) -> u32 {
        self.started.get()
    }

    /// What the device wrote into it, to be read.
    pub(super) fn words(&self) -> &Buffer {
        &self.words
    }

    /// That all kernels have run, and none of them found anything wrong.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(super) fn check(&self, found: &[u8]) -> Result<(), String> {
        let found = u32::from_bytes(found);
        let (run, started) = (found[KERNELS], self.started.get());
        if run != started {
            return Err(format!("of {started} kernels that were started {run} have run"));
        }
        if found[FAILED] != 0 {
            return Err(
                "it lost an upload, or a sum of clipped gradients was not finite".to_owned()
            );
        }
        Ok(())
    }
}
