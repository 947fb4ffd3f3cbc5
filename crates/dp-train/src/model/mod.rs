//! Models as plain data: a sequence of layers, its shapes, and its parameters in one flat vector.
//!
//! ```
//! use dp_train::model::{Architecture, Layer, Shape};
//!
//! let digits = Shape::Image { channels: 1, height: 28, width: 28 };
//! let layers = vec![
//!     Layer::conv(1, 16, 3),
//!     Layer::Relu,
//!     Layer::max_pool(4),
//!     Layer::Flatten,
//!     Layer::linear(16 * 7 * 7, 10),
//! ];
//! let model = Architecture::new(digits, layers)?;
//! assert_eq!(model.parameter_count(), 16 * 9 + 16 + 784 * 10 + 10);
//! # Ok::<(), dp_train::model::ArchitectureError>(())
//! ```

mod architecture;
mod error;
mod fitting;
mod init;
mod layer;
mod shape;

#[cfg(test)]
mod tests;

pub use architecture::{Architecture, Flops, Parameter};
pub use error::ArchitectureError;
pub use init::{Distribution, Initialization, initial_parameters};
pub use layer::Layer;
pub use shape::Shape;
