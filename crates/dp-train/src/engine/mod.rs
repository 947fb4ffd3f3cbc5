//! Engines: clipped sums of per-example gradients.

mod batch;
#[cfg(feature = "burn")]
mod burn;
mod cost;
mod cpu;
mod device;
mod error;
mod gradient_engine;
mod options;
mod sizes;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod reference;

pub use batch::{Batch, BatchMetrics};
#[cfg(feature = "burn")]
pub use burn::BurnEngine;
pub use cpu::{Engine, sgemm_seconds};
pub use device::Device;
pub use error::EngineError;
pub use gradient_engine::GradientEngine;
pub use options::{ConvolutionMethod, EngineOptions};
