//! What goes over the bus besides kernels.

use std::ops::Sub;

/// What went to a device and came back, besides kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Uploads.
    pub uploads: usize,
    /// Their bytes.
    pub uploaded_bytes: usize,
    /// Times that the device was waited for.
    pub reads: usize,
    /// Bytes that were read back.
    pub read_bytes: usize,
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            uploads: self.uploads - before.uploads,
            uploaded_bytes: self.uploaded_bytes - before.uploaded_bytes,
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
        }
    }
}
