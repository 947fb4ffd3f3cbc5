//! The GPU, opened with an error rather than a panic.

use cubecl::client::Client;
use cubecl::wgpu::{WgpuDevice, WgpuDeviceKind};

use crate::engine::burn::open_device;
use crate::engine::device::Device;
use crate::engine::error::EngineError;

/// The way to the device, the same as burn's, and its name.
///
/// # Errors
/// [`EngineError::Unavailable`] if the machine has no such device.
pub(super) fn open(device: Device) -> Result<(Client, String), EngineError> {
    let name = open_device(device)?.name.replace("burn wgpu on ", "");
    let kind = match device {
        Device::GpuSoftware => WgpuDeviceKind::Cpu,
        _ => WgpuDeviceKind::DefaultDevice,
    };
    Ok((cubecl::Device::Wgpu(WgpuDevice::new(kind)).client(), name))
}
