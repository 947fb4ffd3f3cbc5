//! The section `[engine]`: what computes. It is no part of the plan, for privacy does not depend on it.

use dp_train::engine::{ConvolutionMethod, Device, EngineError, EngineOptions, GradientEngine};
use dp_train::model::Architecture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bad_argument::BadArgument;
use crate::machine;

/// What computes. Results differ by rounding only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Where gradients are computed. All but `cpu` need a program that was built with the Cargo feature
    /// of this name (`gpu` for `gpu-software`).
    #[serde(default)]
    pub device: Device,
    /// Which GPU computes, if there are several: a part of its name, as `bandroot devices` shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Examples that go through the network together, at most 16 on the device `cpu` and 32 on those of burn; on a GPU
    /// images, with whole batches of up to 512 if left out. Less needs less memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microbatch: Option<usize>,
    /// Threads on the CPU; if left out, as many as Slurm gave to the task (`SLURM_CPUS_PER_TASK`), or one per core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// How 3 x 3 convolutions are computed by the device `cpu`.
    #[serde(default)]
    pub convolution: ConvolutionMethod,
}

/// Most threads or examples at a time; what an engine cannot do of it, it refuses itself.
const MOST: usize = 1024;

impl Engine {
    /// The engine for an architecture.
    ///
    /// # Errors
    /// A number that is no number of threads or examples, a device that is not built in or not there.
    pub fn build(&self, architecture: &Architecture) -> anyhow::Result<Box<dyn GradientEngine>> {
        let positive = |key: &str, number: Option<usize>| match number {
            Some(number) if !(1..=MOST).contains(&number) => Err(BadArgument(format!(
                "engine.{key} must be between 1 and {MOST}, but it is {number}"
            ))),
            number => Ok(number.unwrap_or(0)),
        };
        let options = EngineOptions {
            threads: positive("threads", self.threads.or_else(machine::allotted_threads))?,
            microbatch: positive("microbatch", self.microbatch)?,
            convolution: self.convolution,
            adapter: adapter_number(self.adapter.as_deref(), self.device)?,
            ..EngineOptions::default()
        };
        self.device.engine(architecture, options).map_err(|error| match error {
            EngineError::NotBuilt { .. } | EngineError::Unavailable { .. } => {
                BadArgument(format!("engine.device: {error}")).into()
            }
            EngineError::Microbatch { .. } => {
                BadArgument(format!("engine.microbatch: {error}")).into()
            }
            error => error.into(),
        })
    }
}

/// The number of the GPU with this name among those of the machine; none if none is asked for.
///
/// # Errors
/// If no name or several have it, or the device is no GPU.
pub fn adapter_number(name: Option<&str>, device: Device) -> Result<Option<usize>, BadArgument> {
    let Some(name) = name else { return Ok(None) };
    if device != Device::Gpu {
        return Err(BadArgument(format!(
            "engine.adapter chooses among GPUs, but engine.device is {device}"
        )));
    }
    #[cfg(feature = "gpu")]
    {
        let wanted = name.to_lowercase();
        let adapters = dp_train::engine::adapters();
        let fits = |name: &str| name.to_lowercase().contains(&wanted);
        let found: Vec<usize> = (0..adapters.len()).filter(|&i| fits(&adapters[i].name)).collect();
        if let [only] = found[..] {
            return Ok(Some(only));
        }
        let names: Vec<&str> = adapters.iter().map(|adapter| adapter.name.as_str()).collect();
        Err(BadArgument(format!(
            "engine.adapter = {name:?} is a part of {} of these names: {names:?}",
            found.len()
        )))
    }
    #[cfg(not(feature = "gpu"))]
    Err(BadArgument(format!(
        "engine.adapter = {name:?} needs a program that was built with --features gpu"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_cpu_and_zeros_are_refused() {
        let convnet = crate::convnet::convnet();
        let built = Engine::default().build(&convnet).unwrap();
        assert!(built.describe().name.contains("CPU engine"), "{:?}", built.describe());
        for zero in [
            Engine { threads: Some(0), ..Engine::default() },
            Engine { microbatch: Some(0), ..Engine::default() },
        ] {
            let error = zero.build(&convnet).unwrap_err().to_string();
            assert!(error.contains("engine.") && error.contains("between 1 and"), "{error}");
        }
        let adapter = Some("no such GPU".to_owned());
        for device in [Device::Cpu, Device::Gpu] {
            let error = Engine { adapter: adapter.clone(), device, ..Engine::default() }
                .build(&convnet)
                .unwrap_err();
            assert!(error.to_string().contains("engine.adapter"), "{error}");
        }
    }
}
