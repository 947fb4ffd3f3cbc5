//! Engines: clipped sums of per-example gradients of a model.
//!
//! ```text
//! images, labels -> forward -> backward -> per-example norms -> sum_j min(1, zeta / |g_j|) g_j
//! ```
//!
//! There are three. [`Engine`] has its own kernels for the CPU: the
//! price of private gradients is that of ordinary ones. `GpuEngine`, with the feature `gpu`, has its own for any GPU
//! that wgpu can use. `BurnEngine`, with one of burn's features, goes
//! through burn's tensors and so to any device of burn. [`GradientEngine`] is what training asks of
//! all, [`Device::engine`] chooses one.
//!
//! ```
//! use dp_train::engine::{Batch, Engine, EngineOptions, GradientEngine};
//! use dp_train::model::{Architecture, Layer, Shape, initial_parameters};
//! use dp_train::seeds::RunSeed;
//!
//! let input = Shape::Image { channels: 3, height: 8, width: 8 };
//! let layers = vec![Layer::conv(3, 16, 3), Layer::Relu, Layer::Flatten, Layer::linear(1024, 10)];
//! let model = Architecture::new(input, layers)?;
//! let parameters = initial_parameters(&model, RunSeed(1));
//! let mut engine = Engine::new(&model, EngineOptions::default())?;
//! let images = vec![0.1; 2 * input.len()];
//! let (sum, metrics) = engine.clipped_sum(&parameters, Batch::new(&images, &[3, 7]), 1.0)?;
//! assert_eq!((sum.dim(), metrics.images), (model.parameter_count(), 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "gpu")]
mod adapters;
mod batch;
#[cfg(feature = "burn")]
mod burn;
mod cost;
mod cpu;
mod device;
mod error;
#[cfg(feature = "gpu")]
mod gpu;
mod gradient_engine;
mod options;
#[cfg(feature = "burn")]
mod panics;
mod rounding;
mod select;
#[cfg(any(test, feature = "burn"))]
mod self_check;
mod sizes;

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod reference;

#[cfg(feature = "gpu")]
pub use adapters::{Adapter, AdapterKind, adapters};
pub use batch::{Batch, BatchMetrics};
#[cfg(feature = "burn")]
pub use burn::BurnEngine;
#[cfg(all(test, feature = "gpu"))]
pub(crate) use burn::open_software_gpu;
#[cfg(feature = "burn")]
pub(crate) use burn::{Scales, ghost_pays, rounded_up, squared_norms, sum_of_squares};
#[cfg(feature = "burn")]
pub(crate) use cpu::add_outer_products;
pub use cpu::{Engine, sgemm_seconds};
pub use device::Device;
pub use error::EngineError;
#[cfg(feature = "gpu")]
pub use gpu::{ByteImages, DeviceLimits, GpuEngine, Shown, StepSeen, Traffic, ViewPlace, Work};
#[cfg(feature = "gpu")]
pub(crate) use gpu::{FINER, FixedNoise, Resident, ResidentGradient, ResidentSum};
pub use gradient_engine::{EngineDescription, GradientEngine};
pub use options::{ConvolutionMethod, EngineOptions};
#[cfg(feature = "burn")]
pub(crate) use rounding::rounding_error;
