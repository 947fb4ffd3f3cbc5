//! The GPU, opened with an error rather than a panic.

use cubecl::client::Client;
use cubecl::wgpu::{WgpuDevice, WgpuDeviceKind};

use burn_tensor::DeviceKind;

use crate::engine::burn::{device_kind, open_device};
use crate::engine::device::Device;
use crate::engine::error::EngineError;

/// The way to the device, the same as burn's, and its name.
///
/// # Errors
/// [`EngineError::Unavailable`] if the machine has no such device.
pub(super) fn open(
    device: Device,
    adapter: Option<usize>,
) -> Result<(Client, String), EngineError> {
    let name = open_device(device, adapter)?.name.replace("burn wgpu on ", "");
    let unavailable = |reason| EngineError::Unavailable { device, reason };
    let kind = match device_kind(device, adapter).map_err(unavailable)? {
        DeviceKind::DiscreteGpu(index) => WgpuDeviceKind::DiscreteGpu(index),
        DeviceKind::IntegratedGpu(index) => WgpuDeviceKind::IntegratedGpu(index),
        DeviceKind::VirtualGpu(index) => WgpuDeviceKind::VirtualGpu(index),
        DeviceKind::Cpu => WgpuDeviceKind::Cpu,
        _ => WgpuDeviceKind::DefaultDevice,
    };
    Ok((cubecl::Device::Wgpu(WgpuDevice::new(kind)).client(), name))
}
