//! The GPUs of this machine, by name.

use burn::tensor::DeviceKind;
use burn::tensor::wgpu::wgpu;

/// What kind of device it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the CPU's memory.
    Integrated,
    /// A GPU of a virtual machine.
    Virtual,
    /// The CPU, which pretends to be one.
    Software,
    /// What the driver does not say.
    Other,
}

/// A device that wgpu can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// As its driver calls it.
    pub name: String,
    /// What kind of device it is.
    pub kind: AdapterKind,
    /// The graphics interface that it is used through.
    pub interface: String,
    /// Its number among those of its kind.
    index: usize,
}

impl Adapter {
    /// What burn calls it; none if it cannot be chosen.
    pub(crate) fn device_kind(&self) -> Option<DeviceKind> {
        Some(match self.kind {
            AdapterKind::Discrete => DeviceKind::DiscreteGpu(self.index),
            AdapterKind::Integrated => DeviceKind::IntegratedGpu(self.index),
            AdapterKind::Virtual => DeviceKind::VirtualGpu(self.index),
            AdapterKind::Software => DeviceKind::Cpu,
            AdapterKind::Other => return None,
        })
    }
}

/// The devices of the first graphics interface that has any, in the order of its driver.
pub fn adapters() -> Vec<Adapter> {
    use wgpu::Backend::{Dx12, Gl, Metal, Vulkan};
    let of = |backend: wgpu::Backend| {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: backend.into(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        cubecl::future::block_on(instance.enumerate_adapters(backend.into()))
    };
    let found = [Vulkan, Metal, Dx12, Gl].into_iter().map(of).find(|found| !found.is_empty());
    let mut adapters: Vec<Adapter> = Vec::new();
    for adapter in found.unwrap_or_default() {
        let wgpu::AdapterInfo { name, device_type, backend, .. } = adapter.get_info();
        let kind = match device_type {
            wgpu::DeviceType::DiscreteGpu => AdapterKind::Discrete,
            wgpu::DeviceType::IntegratedGpu => AdapterKind::Integrated,
            wgpu::DeviceType::VirtualGpu => AdapterKind::Virtual,
            wgpu::DeviceType::Cpu => AdapterKind::Software,
            wgpu::DeviceType::Other => AdapterKind::Other,
        };
        let index = adapters.iter().filter(|other| other.kind == kind).count();
        adapters.push(Adapter { name, kind, interface: backend.to_string(), index });
    }
    adapters
}
