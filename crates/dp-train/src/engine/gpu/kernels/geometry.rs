//! Sizes that a kernel is compiled for.

use super::SIDE;

/// A square window that moves over an image, per group of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Geometry {
    /// Groups of channels that do not see each other.
    pub(crate) groups: usize,
    /// Channels of a group that come in.
    pub(crate) inner: usize,
    /// Channels of a group that go out.
    pub(crate) outer: usize,
    /// Of the image that comes in.
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// Of the image that goes out.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
}

impl Geometry {
    /// Pixels of the image that comes in.
    pub(crate) fn plane(&self) -> usize {
        self.height * self.width
    }

    /// Pixels of the image that goes out: positions of the window.
    pub(crate) fn area(&self) -> usize {
        self.rows * self.columns
    }

    pub(crate) fn taps(&self) -> usize {
        self.kernel * self.kernel
    }

    /// Numbers under a window.
    pub(crate) fn window(&self) -> usize {
        self.inner * self.taps()
    }

    /// All weights, without the bias.
    pub(crate) fn weights(&self) -> usize {
        self.groups * self.outer * self.window()
    }
}

/// Rows of a unit's part of a tile for a matrix of so many rows: as many as leave little of the tile empty.
pub(crate) fn tall(rows: usize) -> usize {
    [1, 2, 4].into_iter().find(|tall| rows <= SIDE * tall).unwrap_or(8)
}
