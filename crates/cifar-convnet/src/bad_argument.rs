//! Input that cannot be used, as opposed to a failure of the system.

/// A sentence that names what was given, why it cannot be used and what to do. The program ends with code 2, as for a
/// misspelt flag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadArgument(pub String);
