//! Where gradients are computed.

use std::fmt;

use crate::engine::{Engine, EngineError, EngineOptions, GradientEngine};
use crate::model::Architecture;

/// What computes. The privacy of a run does not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// The kernels of [`engine`](crate::engine) on the CPU.
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

    /// An engine for an architecture on this device.
    ///
    /// # Errors
    /// [`EngineError`] if the program was built without the device, the machine does not have it,
    /// or the architecture does not end with logits. Never another device in its place.
    pub fn engine(
        self,
        architecture: &Architecture,
        options: EngineOptions,
    ) -> Result<Box<dyn GradientEngine>, EngineError> {
        if self == Device::Cpu {
            return Ok(Box::new(Engine::new(architecture, options)?));
        }
        #[cfg(feature = "burn")]
        return Ok(Box::new(crate::engine::burn::BurnEngine::new(architecture, self, options)?));
        #[cfg(not(feature = "burn"))]
        Err(EngineError::NotBuilt { device: self })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_built_in_is_named_with_its_feature() {
        let convnet = crate::engine::cases::convnet();
        let built = |feature: &str| match feature {
            "flex" => cfg!(feature = "flex"),
            "ndarray" => cfg!(feature = "ndarray"),
            _ => cfg!(feature = "gpu"),
        };
        for device in [Device::Flex, Device::Ndarray, Device::Gpu, Device::GpuSoftware] {
            let feature = device.feature().unwrap();
            if built(feature) {
                continue;
            }
            let error = device.engine(&convnet, EngineOptions::default()).unwrap_err();
            assert_eq!(error, EngineError::NotBuilt { device });
            assert!(error.to_string().contains(&format!("--features {feature}")), "{error}");
        }
        let cpu = Device::default().engine(&convnet, EngineOptions::default()).unwrap();
        assert!(cpu.description().contains("threads"), "{}", cpu.description());
    }
}
