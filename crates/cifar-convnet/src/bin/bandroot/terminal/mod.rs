//! Everything that people see: text, tables, figures and progress.

pub(crate) mod output;
pub(crate) mod table;
pub(crate) mod figure;
pub(crate) mod progress;
