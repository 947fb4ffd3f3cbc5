//! burn's devices, opened with an error rather than a panic.

use burn::tensor as burn;

use crate::engine::device::Device;
use crate::engine::error::EngineError;

/// An open device of burn.
#[derive(Debug, Clone)]
pub(crate) struct OpenDevice {
    pub(crate) tensors: burn::Device,
    /// What it is, for people.
    pub(crate) name: String,
    /// The driver and its version, on which the last bits of a GPU depend; empty for what is built in.
    #[cfg_attr(not(feature = "gpu"), expect(dead_code, reason = "only a GPU has one"))]
    pub(crate) driver: String,
}

/// Opens the device, and of several GPUs the one that is asked for.
///
/// # Errors
/// [`EngineError::NotBuilt`] without the device's feature, [`EngineError::Unavailable`] if the
/// machine has no such device.
pub(crate) fn open(device: Device, adapter: Option<usize>) -> Result<OpenDevice, EngineError> {
    let _ = adapter;
    match device {
        #[cfg(feature = "flex")]
        Device::Flex => {
            let (tensors, driver) = (burn::Device::flex(), String::new());
            Ok(OpenDevice { tensors, name: "burn flex on the CPU".into(), driver })
        }
        #[cfg(feature = "ndarray")]
        Device::Ndarray => {
            // burn's authors deprecate it; it is offered as long as it exists.
            #[allow(deprecated)]
            let tensors = burn::Device::ndarray();
            let driver = String::new();
            Ok(OpenDevice { tensors, name: "burn ndarray on the CPU".into(), driver })
        }
        #[cfg(feature = "gpu")]
        Device::Gpu | Device::GpuSoftware => gpu::open(device, adapter),
        _ => Err(EngineError::NotBuilt { device }),
    }
}

/// burn's device that runs on the CPU, if the machine has one.
#[cfg(all(test, feature = "gpu"))]
pub(crate) fn open_software_gpu() -> Option<burn::Device> {
    open(Device::GpuSoftware, None).ok().map(|open| open.tensors)
}

#[cfg(feature = "gpu")]
pub(crate) mod gpu {
    use std::sync::{Mutex, PoisonError};

    use ::burn::tensor::DeviceKind;
    use ::burn::tensor::wgpu::{WgpuInitError, wgpu};

    use super::{Device, EngineError, OpenDevice, burn};
    use crate::engine::adapters::{Adapter, adapters};

    /// wgpu opens a device once in a process: what became of it.
    type Outcome = ((Device, Option<usize>), Result<OpenDevice, EngineError>);
    static OUTCOMES: Mutex<Vec<Outcome>> = Mutex::new(Vec::new());

    pub(super) fn open(device: Device, adapter: Option<usize>) -> Result<OpenDevice, EngineError> {
        let mut outcomes = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, outcome)) = outcomes.iter().find(|(known, _)| *known == (device, adapter)) {
            return outcome.clone();
        }
        let outcome =
            acquire(device, adapter).map_err(|reason| EngineError::Unavailable { device, reason });
        outcomes.push(((device, adapter), outcome.clone()));
        outcome
    }

    /// What burn and cubecl call the device.
    ///
    /// # Errors
    /// If there is no GPU of this number.
    pub(crate) fn kind(device: Device, adapter: Option<usize>) -> Result<DeviceKind, String> {
        match (device, adapter) {
            (Device::GpuSoftware, _) => Ok(DeviceKind::Cpu),
            (_, None) => Ok(DeviceKind::DefaultDevice),
            (_, Some(number)) => {
                let adapters = adapters();
                let kind = adapters.get(number).and_then(Adapter::device_kind);
                kind.ok_or_else(|| format!("there is no GPU number {number} that can be chosen"))
            }
        }
    }

    fn acquire(device: Device, adapter: Option<usize>) -> Result<OpenDevice, String> {
        let kind = kind(device, adapter)?;
        let options = burn::Device::wgpu_options().device_kind(kind);
        let (tensors, setup) = options.init_with_setup().map_err(|error| match error {
            WgpuInitError::AdapterUnavailable { .. } => "no adapter was found".to_owned(),
            error => error.to_string(),
        })?;
        let adapter = setup.adapter.get_info();
        // Far slower than a GPU: only the device `gpu-software` asks for it.
        if device == Device::Gpu && adapter.device_type == wgpu::DeviceType::Cpu {
            return Err(format!("{} runs on the CPU", adapter.name));
        }
        let name = format!("burn wgpu on {} ({})", adapter.name, adapter.backend);
        let driver = format!("{} {}", adapter.driver, adapter.driver_info);
        Ok(OpenDevice { tensors, name, driver })
    }
}
