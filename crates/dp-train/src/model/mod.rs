//! Models as plain data: a sequence of layers, its shapes, and its parameters in one flat vector.

mod architecture;

mod init;

pub use architecture::{Architecture, ArchitectureError, Layer, Parameter, Shape};
pub use init::initial_parameters;
