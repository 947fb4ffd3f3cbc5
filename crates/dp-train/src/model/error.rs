//! Why layers do not fit together.

use std::fmt;

/// Why layers do not make an architecture. Layers are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchitectureError {
    /// A convolution is for another number of channels.
    Channels {
        /// The layer.
        layer: usize,
        /// Channels that it takes.
        expected: usize,
        /// Channels that reach it.
        found: usize,
    },
    /// A linear layer is for another number of features.
    Features {
        /// The layer.
        layer: usize,
        /// Features that it takes.
        expected: usize,
        /// Features that reach it.
        found: usize,
    },
    /// The layer takes images, but a vector reaches it.
    NeedsImage {
        /// The layer.
        layer: usize,
    },
    /// The layer takes vectors, but an image reaches it.
    NeedsVector {
        /// The layer.
        layer: usize,
    },
    /// The window is larger than the padded image.
    KernelTooLarge {
        /// The layer.
        layer: usize,
        /// Side of the window.
        kernel: usize,
        /// Side of the padded image.
        size: usize,
    },
    /// The channels do not split into the groups.
    Groups {
        /// The layer.
        layer: usize,
        /// Groups asked for.
        groups: usize,
        /// Channels there are.
        channels: usize,
    },
    /// A size is zero.
    Empty {
        /// The layer.
        layer: usize,
    },
    /// More numbers than memory can address.
    TooLarge {
        /// The layer.
        layer: usize,
    },
}

impl fmt::Display for ArchitectureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channels { layer, expected, found } => {
                write!(f, "layer {layer} takes {expected} channels, but {found} reach it")
            }
            Self::Features { layer, expected, found } => {
                write!(f, "layer {layer} takes {expected} features, but {found} reach it")
            }
            Self::NeedsImage { layer } => {
                write!(f, "layer {layer} takes an image, but a vector reaches it")
            }
            Self::NeedsVector { layer } => {
                write!(f, "layer {layer} takes a vector, but an image reaches it: flatten first")
            }
            Self::KernelTooLarge { layer, kernel, size } => write!(
                f,
                "the window of layer {layer} has side {kernel}, but the padded image only {size}"
            ),
            Self::Groups { layer, groups, channels } => {
                write!(f, "layer {layer} cannot split {channels} channels into {groups} groups")
            }
            Self::Empty { layer } => write!(f, "layer {layer} has a size of zero"),
            Self::TooLarge { layer } => {
                write!(f, "layer {layer} has more numbers than memory can address")
            }
        }
    }
}

impl std::error::Error for ArchitectureError {}
