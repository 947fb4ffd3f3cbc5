//! The paper's tables: as they are printed there, computed again, and set side by side.

pub(crate) mod published;
pub(crate) mod report;
pub(crate) mod reproduce;
