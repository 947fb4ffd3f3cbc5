//! What can be wrong with what the engine is given.

use std::fmt;

use crate::engine::Device;
use crate::gradient::GradientError;

/// Why the engine refuses.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineError {
    /// The architecture does not end with a vector of logits, one pixel each.
    NoLogits,
    /// The threads cannot be started.
    Threads {
        /// How many were asked for.
        threads: usize,
    },
    /// More examples at a time than the noise allows to be rounded together.
    Microbatch {
        /// How many were asked for.
        microbatch: usize,
        /// How many there may be.
        most: usize,
    },
    /// The parameters have the wrong length, or the clip norm is no norm.
    Gradient(GradientError),
    /// The images have the wrong length.
    Images {
        /// Pixels that were needed.
        expected: usize,
        /// Pixels that were found.
        found: usize,
    },
    /// The place for the logits has the wrong length.
    Logits {
        /// Numbers that were needed.
        expected: usize,
        /// Numbers that were found.
        found: usize,
    },
    /// An example without any copy has no gradient.
    NoCopies,
    /// A label is no class.
    Label {
        /// The label.
        label: u32,
        /// How many classes there are.
        classes: usize,
    },
    /// The program was built without the feature that the device needs.
    NotBuilt {
        /// The device.
        device: Device,
    },
    /// The machine has no such device.
    Unavailable {
        /// The device.
        device: Device,
        /// What was found instead.
        reason: String,
    },
    /// The device, its driver or burn gave up.
    Failed {
        /// The device.
        device: Device,
        /// What it said.
        reason: String,
    },
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLogits => {
                write!(f, "the architecture must end with a linear layer that makes the logits")
            }
            Self::Threads { threads } => write!(f, "{threads} threads cannot be started"),
            Self::Microbatch { microbatch, most } => write!(
                f,
                "microbatches of {microbatch} examples would round more than the noise allows for; at most {most}"
            ),
            Self::Gradient(error) => error.fmt(f),
            Self::Images { expected, found } => {
                write!(f, "the images must have {expected} pixels, but they have {found}")
            }
            Self::Logits { expected, found } => {
                write!(f, "there must be room for {expected} logits, but there is for {found}")
            }
            Self::NoCopies => write!(f, "every example needs at least one copy"),
            Self::Label { label, classes } => {
                write!(f, "label {label} is none of the {classes} classes")
            }
            Self::NotBuilt { device } => write!(
                f,
                "this program was built without the device {device}: build it again with --features {}",
                device.feature().unwrap_or_default()
            ),
            Self::Unavailable { device: Device::Gpu, reason } => write!(
                f,
                "there is no GPU that wgpu can use: {reason}; install the GPU's Vulkan driver \
                 (on Debian mesa-vulkan-drivers for AMD and Intel, nvidia-driver for NVIDIA), take the \
                 device cpu, or gpu-software to try the GPU's code on the CPU"
            ),
            Self::Unavailable { device, reason } => write!(
                f,
                "the device {device} is not there: {reason}; install a Vulkan driver that runs on \
                 the CPU (on Debian mesa-vulkan-drivers), or take the device cpu"
            ),
            Self::Failed { device, reason } => write!(f, "the device {device} failed: {reason}"),
        }
    }
}

impl std::error::Error for EngineError {}
