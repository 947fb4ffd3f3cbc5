//! Models as plain data: a sequence of layers, its shapes, and its parameters in one flat vector.

mod layer;

mod architecture;

mod error;

mod init;

pub use architecture::{Architecture, Flops, Parameter};
pub use error::ArchitectureError;
pub use init::initial_parameters;
pub use layer::{Layer, Shape};
