//! The engine that damages inputs; the targets stand beside what they read, `fuzz.rs` in each folder.

#[path = "../../../../mf-core/tests/fuzzing/mod.rs"]
mod engine;

pub(crate) use engine::{Kind, Target};
