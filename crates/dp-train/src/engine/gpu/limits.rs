//! What a device can do at most, and what a step takes of it: for benchmarks.

use cubecl::ir::{ElemType, FloatKind};
use cubecl::std::throughput::measure_peak_throughput;
use cubecl::throughput::{MemoryAccess, ThroughputKey, ThroughputMode};
use cubecl::{MemoryScope, client::Client};

use super::engine::GpuEngine;
use super::kernels::lanes::Form;
use super::network::Network;
use super::work::Work;
use crate::engine::error::EngineError;
use crate::model::Architecture;

/// What a device can do at most, as cubecl measures it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceLimits {
    /// Multiplications and additions of f32 per second.
    pub flops: Option<f64>,
    /// Bytes copied per second, both directions counted.
    pub bytes: Option<f64>,
    /// Seconds to start a kernel.
    pub launch: Option<f64>,
}

impl GpuEngine {
    /// Whether products are made in the form for GPUs.
    pub(crate) fn runs_as_on_a_gpu(&self) -> bool {
        self.form() == Form::Tiles
    }

    /// Makes products in the form for GPUs from now on, wherever this is.
    pub(crate) fn run_as_on_a_gpu(&mut self) {
        self.set_form(Form::Tiles);
    }

    /// Memory that the device has set aside.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.client.memory_report(MemoryScope::Device).usage().bytes_reserved
    }

    /// What an image asks of a GPU.
    ///
    /// # Errors
    /// [`EngineError`] if it has no kernels for the model.
    pub(crate) fn work(architecture: &Architecture) -> Result<Work, EngineError> {
        Ok(Work::of(&Network::new(architecture, 1, Form::Tiles)?))
    }

    /// What the device can do at most. Takes some seconds.
    pub(crate) fn limits(&self) -> DeviceLimits {
        let peak = |mode| measured(&self.client, ThroughputKey { mode });
        let f32 = ElemType::Float(FloatKind::F32);
        let memory = ThroughputKey { mode: ThroughputMode::memory(MemoryAccess::Copy) };
        let bytes = measure_peak_throughput(&self.client, memory).ok();
        DeviceLimits {
            flops: peak(ThroughputMode::ComputeDirect { dtype: f32 }),
            bytes: bytes.map(|value| value.bytes_per_s(&memory)),
            launch: peak(ThroughputMode::Launch).map(f64::recip),
        }
    }
}

fn measured(client: &Client, key: ThroughputKey) -> Option<f64> {
    let value = measure_peak_throughput(client, key).ok()?;
    Some(value.ops_per_s()).filter(|rate| rate.is_finite())
}
