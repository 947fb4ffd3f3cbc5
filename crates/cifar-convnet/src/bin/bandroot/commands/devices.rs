//! `bandroot devices`: what can compute, and how a config names it.

use dp_train::engine::Device;
use serde::Serialize;

use crate::cli::Devices;
use crate::terminal::output;
use crate::terminal::table::Table;
use cifar_convnet::files;

/// What `--json` prints, one for each device.
#[derive(Debug, Serialize)]
struct DeviceOutput {
    /// For `engine.device`.
    device: Device,
    /// For `engine.adapter`.
    adapter: Option<String>,
    kind: String,
    /// The Cargo feature that brings it, if this program has been built without.
    missing_feature: Option<&'static str>,
}

/// Lists them.
pub(crate) fn run(arguments: &Devices) -> anyhow::Result<()> {
    let mut devices = vec![DeviceOutput {
        device: Device::Cpu,
        adapter: None,
        kind: "own kernels".to_owned(),
        missing_feature: None,
    }];
    for (device, built) in
        [(Device::Flex, cfg!(feature = "flex")), (Device::Ndarray, cfg!(feature = "ndarray"))]
    {
        devices.push(DeviceOutput {
            device,
            adapter: None,
            kind: "burn on the CPU".to_owned(),
            missing_feature: if built { None } else { device.feature() },
        });
    }
    devices.extend(gpus());
    if arguments.json {
        return output::print(&files::json(&devices)?);
    }
    let mut table = Table::new(&["engine.device", "engine.adapter", "kind", "built in"]);
    for DeviceOutput { device, adapter, kind, missing_feature } in devices {
        let built = missing_feature.map_or("yes".to_owned(), |feature| {
            format!("no: cargo build --release --features {feature}")
        });
        table.push(vec![device.to_string(), adapter.unwrap_or_default(), kind, built]);
    }
    output::print(&table.to_text())
}

#[cfg(feature = "gpu")]
fn gpus() -> Vec<DeviceOutput> {
    use dp_train::engine::{AdapterKind, adapters};
    let adapters = adapters().into_iter().map(|adapter| {
        let software = adapter.kind == AdapterKind::Software;
        DeviceOutput {
            device: if software { Device::GpuSoftware } else { Device::Gpu },
            kind: format!("{:?}, {}", adapter.kind, adapter.interface).to_lowercase(),
            adapter: Some(adapter.name),
            missing_feature: None,
        }
    });
    adapters.collect()
}

#[cfg(not(feature = "gpu"))]
fn gpus() -> Vec<DeviceOutput> {
    vec![DeviceOutput {
        device: Device::Gpu,
        adapter: None,
        kind: "any GPU".to_owned(),
        missing_feature: Device::Gpu.feature(),
    }]
}
