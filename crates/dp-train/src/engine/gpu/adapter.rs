//! The GPU, opened with an error rather than a panic.

use cubecl::client::Client;
use cubecl::wgpu::{WgpuDevice, WgpuDeviceKind};

use burn::tensor::DeviceKind;

use super::kernels::lanes::{Form, LANES};
use crate::engine::burn::{device_kind, open_device};
use crate::engine::device::Device;
use crate::engine::error::EngineError;

/// The way to the device, the same as burn's, its name, and the form of products that suits it: lanes for software whose planes are
/// that wide, tiles otherwise.
///
/// # Errors
/// [`EngineError::Unavailable`] if the machine has no such device.
pub(super) fn open(
    device: Device,
    adapter: Option<usize>,
) -> Result<(Client, String, Form), EngineError> {
    let name = open_device(device, adapter)?.name.replace("burn wgpu on ", "");
    let unavailable = |reason| EngineError::Unavailable { device, reason };
    let kind = match device_kind(device, adapter).map_err(unavailable)? {
        DeviceKind::DiscreteGpu(index) => WgpuDeviceKind::DiscreteGpu(index),
        DeviceKind::IntegratedGpu(index) => WgpuDeviceKind::IntegratedGpu(index),
        DeviceKind::VirtualGpu(index) => WgpuDeviceKind::VirtualGpu(index),
        DeviceKind::Cpu => WgpuDeviceKind::Cpu,
        _ => WgpuDeviceKind::DefaultDevice,
    };
    let software = matches!(kind, WgpuDeviceKind::Cpu);
    let client = cubecl::Device::Wgpu(WgpuDevice::new(kind)).client();
    let hardware = &client.properties().hardware;
    let planes = [hardware.plane_size_min, hardware.plane_size_max];
    let lanes = software && planes == [LANES as u32; 2];
    let form = if lanes { Form::Lanes } else { Form::Tiles };
    Ok((client, name, form))
}
