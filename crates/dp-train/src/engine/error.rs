//! What can be wrong with what the engine is given.

use std::fmt;

use crate::gradient::GradientError;

/// Why the engine refuses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EngineError {
    /// The architecture does not end with a vector of logits, one pixel each.
    NoLogits,
    /// The threads cannot be started.
    Threads {
        /// How many were asked for.
        threads: usize,
    },
    /// The parameters have the wrong length, or the clip norm is no norm.
    Gradient(GradientError),
    /// The images have the wrong length.
    Images {
        /// Pixels that were needed.
        expected: usize,
        /// Pixels that were found.
        found: usize,
    },
    /// The place for the logits has the wrong length.
    Logits {
        /// Numbers that were needed.
        expected: usize,
        /// Numbers that were found.
        found: usize,
    },
    /// An example without any copy has no gradient.
    NoCopies,
    /// A label is no class.
    Label {
        /// The label.
        label: u32,
        /// How many classes there are.
        classes: usize,
    },
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLogits => {
                write!(f, "the architecture must end with a linear layer that makes the logits")
            }
            Self::Threads { threads } => write!(f, "{threads} threads cannot be started"),
            Self::Gradient(error) => error.fmt(f),
            Self::Images { expected, found } => {
                write!(f, "the images must have {expected} pixels, but they have {found}")
            }
            Self::Logits { expected, found } => {
                write!(f, "there must be room for {expected} logits, but there is for {found}")
            }
            Self::NoCopies => write!(f, "every example needs at least one copy"),
            Self::Label { label, classes } => {
                write!(f, "label {label} is none of the {classes} classes")
            }
        }
    }
}

impl std::error::Error for EngineError {}
