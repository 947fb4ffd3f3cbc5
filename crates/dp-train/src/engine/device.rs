//! The devices that gradients can be computed on.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What computes. The privacy of a run does not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "config", derive(clap::ValueEnum, schemars::JsonSchema))]
pub enum Device {
    /// The kernels of this program.
    #[default]
    Cpu,
    /// burn's own CPU backend, with the feature `flex`.
    Flex,
    /// burn's first CPU backend, which its authors deprecate, with the feature `ndarray`.
    Ndarray,
    /// A GPU through wgpu, with the feature `gpu`.
    Gpu,
    /// A GPU that the CPU pretends to be, for tests, with the feature `gpu`.
    GpuSoftware,
}

impl Device {
    /// The name in configs and messages.
    pub fn name(self) -> &'static str {
        match self {
            Device::Cpu => "cpu",
            Device::Flex => "flex",
            Device::Ndarray => "ndarray",
            Device::Gpu => "gpu",
            Device::GpuSoftware => "gpu-software",
        }
    }

    /// The Cargo feature that brings it, if it needs one.
    pub fn feature(self) -> Option<&'static str> {
        match self {
            Device::Cpu => None,
            Device::Flex => Some("flex"),
            Device::Ndarray => Some("ndarray"),
            Device::Gpu | Device::GpuSoftware => Some("gpu"),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
