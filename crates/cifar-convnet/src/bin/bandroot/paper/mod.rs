//! The paper's tables and figures, computed again and set beside what is printed there.

pub(crate) mod report;
pub(crate) mod reproduce;
