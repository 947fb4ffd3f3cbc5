//! The GPU, opened with an error rather than a panic.

use cubecl::client::Client;
use cubecl::wgpu::{WgpuDevice, WgpuDeviceKind};

use burn::tensor::DeviceKind;

use super::kernels::lanes::{Form, LANES};
use crate::engine::burn::{device_kind, open_device};
use crate::engine::device::Device;
use crate::engine::error::EngineError;

/// An open GPU.
pub(super) struct Opened {
    /// The way to the device, the same as burn's.
    pub(super) client: Client,
    /// As its driver calls it.
    pub(super) name: String,
    /// What makes its programs out of kernels: the driver, its version, and the language that it is given.
    pub(super) compiler: String,
    /// The form of products that suits it.
    pub(super) form: Form,
}

/// Opens a GPU. Its form is lanes for software whose planes are that wide, tiles otherwise.
///
/// # Errors
/// [`EngineError::Unavailable`] if the machine has no such device.
pub(super) fn open(device: Device, adapter: Option<usize>) -> Result<Opened, EngineError> {
    let found = open_device(device, adapter)?;
    let name = found.name.replace("burn wgpu on ", "");
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
    let compiler = format!("{}, {}", found.driver.trim(), client.name());
    Ok(Opened { client, name, compiler, form })
}
