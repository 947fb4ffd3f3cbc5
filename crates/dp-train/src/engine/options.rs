//! How the engine runs.

use serde::{Deserialize, Serialize};

/// How 3 x 3 convolutions of stride 1 and padding 1 are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "config", derive(clap::ValueEnum, schemars::JsonSchema))]
pub enum ConvolutionMethod {
    /// F(4x4, 3x3): a quarter of the multiplications, about six times the rounding error.
    #[default]
    Winograd,
    /// The sum as it is written.
    Direct,
}

/// How the engine runs. Nothing here changes results beyond rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOptions {
    /// Threads; 0 for one per core.
    pub threads: usize,
    /// Examples that go through the network together; 0 for the default. At most 16 on the CPU and 32 on burn's
    /// devices: they are added up in f32, and the noise allows for the rounding of so many. On a GPU, images: its memory is
    /// the limit, for examples are added up in f32 in parts of 16.
    pub microbatch: usize,
    /// How 3 x 3 convolutions are computed.
    pub convolution: ConvolutionMethod,
    /// Whether to do without the CPU's special instructions.
    pub portable: bool,
    /// Which of the machine's GPUs, counted as `adapters` lists them; the fastest kind if there is none. For the device
    /// `gpu` only.
    pub adapter: Option<usize>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        let convolution = ConvolutionMethod::default();
        Self { threads: 0, microbatch: 0, convolution, portable: false, adapter: None }
    }
}
