//! The engine's threads, each with its own buffers.

use std::sync::Mutex;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::engine::cpu::network::Network;
use crate::engine::cpu::workspace::Workspace;
use crate::engine::error::EngineError;

/// A pool of threads, and a workspace for each of them.
#[derive(Debug)]
pub(super) struct Workers {
    pool: ThreadPool,
    workspaces: Vec<Workspace>,
}

impl Workers {
    /// Starts threads for blocks of `microbatch` examples; 0 threads are one per core.
    ///
    /// # Errors
    /// [`EngineError::Threads`] if they cannot be started.
    pub(super) fn new(
        network: &Network,
        threads: usize,
        microbatch: usize,
    ) -> Result<Self, EngineError> {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|_| EngineError::Threads { threads })?;
        let workspaces = 0..pool.current_num_threads();
        let workspaces = workspaces.map(|_| Workspace::new(network, microbatch)).collect();
        Ok(Self { pool, workspaces })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.workspaces.len()
    }

    /// Runs on these threads what rayon splits by itself.
    pub(super) fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }

    /// Hands the items out one by one to the threads that are free. Which thread gets which item is
    /// open, so results must not depend on it.
    pub(super) fn share<T>(
        &mut self,
        items: impl Iterator<Item = T> + Send,
        work: impl Fn(&mut Workspace, T) + Sync,
    ) {
        let (items, work) = (&Mutex::new(items), &work);
        self.pool.scope(|scope| {
            for workspace in &mut self.workspaces {
                scope.spawn(move |_| {
                    loop {
                        let next = items.lock().ok().and_then(|mut items| items.next());
                        let Some(item) = next else { break };
                        work(workspace, item);
                    }
                });
            }
        });
    }
}
