//! The engine of a device.

#[cfg(feature = "burn")]
use crate::engine::burn::BurnEngine;
use crate::engine::cpu::Engine;
use crate::engine::device::Device;
use crate::engine::error::EngineError;
#[cfg(feature = "gpu")]
use crate::engine::gpu::GpuEngine;
use crate::engine::gradient_engine::GradientEngine;
use crate::engine::options::EngineOptions;
use crate::model::Architecture;

impl Device {
    /// An engine for an architecture on this device. A device that is not the CPU's own engine is compared with the CPU engine first.
    ///
    /// # Errors
    /// [`EngineError`] if the program was built without the device, the machine does not have it, it computes something
    /// else than the CPU, or the architecture does not end with logits. Never another device in its place.
    pub fn engine(
        self,
        architecture: &Architecture,
        options: EngineOptions,
    ) -> Result<Box<dyn GradientEngine>, EngineError> {
        if self == Device::Cpu {
            return Ok(Box::new(Engine::new(architecture, options)?));
        }
        #[cfg(feature = "gpu")]
        if matches!(self, Device::Gpu | Device::GpuSoftware) {
            return Ok(Box::new(GpuEngine::open(architecture, self, options)?));
        }
        #[cfg(feature = "burn")]
        return Ok(Box::new(BurnEngine::new(architecture, self, options)?.checked(architecture)?));
        #[cfg(not(feature = "burn"))]
        Err(EngineError::NotBuilt { device: self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cases::classifier;

    #[test]
    fn what_is_not_built_in_is_named_with_its_feature() {
        let model = classifier((1, 4, 4), vec![]);
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
            let error = device.engine(&model, EngineOptions::default()).unwrap_err();
            assert_eq!(error, EngineError::NotBuilt { device });
            assert!(error.to_string().contains(&format!("--features {feature}")), "{error}");
        }
        let cpu = Device::default().engine(&model, EngineOptions::default()).unwrap();
        assert!(cpu.describe().name.contains("threads"), "{:?}", cpu.describe());
    }
}
