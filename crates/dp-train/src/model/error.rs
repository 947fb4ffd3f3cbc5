//! Why layers do not fit together.

use thiserror::Error;

/// Why layers do not make an architecture. Layers are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ArchitectureError {
    /// A convolution is for another number of channels.
    #[error("layer {layer} takes {expected} channels, but {found} reach it")]
    Channels {
        /// The layer.
        layer: usize,
        /// Channels that it takes.
        expected: usize,
        /// Channels that reach it.
        found: usize,
    },
    /// A linear layer is for another number of features.
    #[error("layer {layer} takes {expected} features, but {found} reach it")]
    Features {
        /// The layer.
        layer: usize,
        /// Features that it takes.
        expected: usize,
        /// Features that reach it.
        found: usize,
    },
    /// The layer takes images, but a vector reaches it.
    #[error("layer {layer} takes an image, but a vector reaches it")]
    NeedsImage {
        /// The layer.
        layer: usize,
    },
    /// The layer takes vectors, but an image reaches it.
    #[error("layer {layer} takes a vector, but an image reaches it: flatten first")]
    NeedsVector {
        /// The layer.
        layer: usize,
    },
    /// The window is larger than the padded image.
    #[error("the window of layer {layer} has side {kernel}, but the padded image only {size}")]
    KernelTooLarge {
        /// The layer.
        layer: usize,
        /// Side of the window.
        kernel: usize,
        /// Side of the padded image.
        size: usize,
    },
    /// The channels do not split into the groups.
    #[error("layer {layer} cannot split {channels} channels into {groups} groups")]
    Groups {
        /// The layer.
        layer: usize,
        /// Groups asked for.
        groups: usize,
        /// Channels there are.
        channels: usize,
    },
    /// A size is zero.
    #[error("layer {layer} has a size of zero")]
    Empty {
        /// The layer.
        layer: usize,
    },
    /// More numbers than memory can address.
    #[error("layer {layer} has more numbers than memory can address")]
    TooLarge {
        /// The layer.
        layer: usize,
    },
}
