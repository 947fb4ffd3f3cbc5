//! Models as plain data: a sequence of layers, its shapes, and its parameters in one flat vector.

mod architecture;

mod error;

mod init;

pub use architecture::{Architecture, Flops, Layer, Parameter, Shape};
pub use error::ArchitectureError;
pub use init::initial_parameters;
