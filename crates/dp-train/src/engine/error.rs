//! Why an engine refuses.

use thiserror::Error;

use crate::engine::device::Device;
use crate::gradient::GradientError;

/// Why an engine refuses an architecture, its options or a batch, or why a device fails.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum EngineError {
    /// The architecture does not end with a vector of logits that a linear layer made.
    #[error("the architecture must end with a linear layer that makes the logits")]
    NoLogits,
    /// The threads cannot be started.
    #[error("{threads} threads cannot be started")]
    Threads {
        /// How many were asked for.
        threads: usize,
    },
    /// More examples at a time than the noise allows to be rounded together.
    #[error(
        "microbatches of {microbatch} examples would round more than the noise allows for; at most {most}"
    )]
    Microbatch {
        /// How many were asked for.
        microbatch: usize,
        /// How many there may be.
        most: usize,
    },
    /// The parameters have the wrong length, or the clip norm is out of range.
    #[error(transparent)]
    Gradient(#[from] GradientError),
    /// The images have the wrong length.
    #[error("the images must have {expected} pixels, but they have {found}")]
    Images {
        /// Pixels that were needed.
        expected: usize,
        /// Pixels that were found.
        found: usize,
    },
    /// The slice for the logits has the wrong length.
    #[error("there must be room for {expected} logits, but there is for {found}")]
    Logits {
        /// Numbers that were needed.
        expected: usize,
        /// Numbers that were found.
        found: usize,
    },
    /// What is shown is not what the slots of a step hold.
    #[error("what is shown are not the {slots} examples of the step, or not views of their images")]
    Shown {
        /// Slots of the step.
        slots: usize,
    },
    /// A run was begun on another engine.
    #[error("the run is on another engine's device, or for another model")]
    OtherEngine,
    /// Images that do not fit the model, or have other numbers than their sizes say.
    #[error(
        "images of {channels} x {height} x {width} with padding {padding} do not fit the model, or there are not as many bytes and \
         labels of its classes"
    )]
    Stored {
        /// Of one image.
        channels: usize,
        /// Of one image.
        height: usize,
        /// Of one image.
        width: usize,
        /// Around it.
        padding: usize,
    },
    /// An example without any view has no gradient.
    #[error("every example needs at least one view")]
    NoViews,
    /// A label is no class.
    #[error("label {label} is none of the {classes} classes")]
    Label {
        /// The label.
        label: u32,
        /// How many classes there are.
        classes: usize,
    },
    /// The program was built without the feature that the device needs.
    #[error(
        "this program was built without the device {device}: build it again with --features {}",
        device.feature().unwrap_or_default()
    )]
    NotBuilt {
        /// The device.
        device: Device,
    },
    /// The machine has no such device.
    #[error("{}", unavailable(*device, reason))]
    Unavailable {
        /// The device.
        device: Device,
        /// What was found instead.
        reason: String,
    },
    /// The device computes something else than the CPU engine.
    #[error(
        "the device {device} computes something else than the CPU engine, so neither its clipping nor its noise can be trusted: {what}; \
         take the device cpu, or another driver"
    )]
    Disagrees {
        /// The device.
        device: Device,
        /// By how much.
        what: String,
    },
    /// The sums of all parts of a batch are more than one buffer of the device may hold.
    #[error(
        "the device {device} keeps the sums of a batch in one buffer: {bytes} bytes for {examples} examples with their empty places, and it can have {most}; take batches of at most {fitting} examples, or the device cpu"
    )]
    Parts {
        /// The device.
        device: Device,
        /// Examples of a batch.
        examples: usize,
        /// Bytes that their sums need.
        bytes: u64,
        /// Bytes that a buffer may have.
        most: u64,
        /// Examples that one buffer is enough for.
        fitting: usize,
    },
    /// The device has too little memory.
    #[error(
        "the device {device} has too little memory for {images} images at a time: with engine.microbatch = {} half as much is \
         enough; it said: {reason}",
        (images / 2).max(1)
    )]
    Memory {
        /// The device.
        device: Device,
        /// Images that went through the network together.
        images: usize,
        /// What it said.
        reason: String,
    },
    /// The device, its driver or burn failed.
    #[error("the device {device} failed: {reason}")]
    Failed {
        /// The device.
        device: Device,
        /// What it said.
        reason: String,
    },
}

/// What is missing, and how to get it or do without.
fn unavailable(device: Device, reason: &str) -> String {
    match device {
        Device::Gpu => format!(
            "there is no GPU that wgpu can use: {reason}; install the GPU's Vulkan driver \
             (on Debian mesa-vulkan-drivers for AMD and Intel, nvidia-driver for NVIDIA), take the \
             device cpu, or gpu-software to try the GPU's code on the CPU"
        ),
        _ => format!(
            "the device {device} is not there: {reason}; install a Vulkan driver that runs on \
             the CPU (on Debian mesa-vulkan-drivers), or take the device cpu"
        ),
    }
}
