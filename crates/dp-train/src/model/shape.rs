//! The shape of what flows between two layers.

use serde::{Deserialize, Serialize};

/// What flows between two layers, for one example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Planes of pixels.
    Image {
        /// Planes.
        channels: usize,
        /// Rows of a plane.
        height: usize,
        /// Columns of a plane.
        width: usize,
    },
    /// A plain vector.
    Vector {
        /// Entries.
        features: usize,
    },
}

impl Shape {
    /// Numbers in it.
    pub fn len(self) -> usize {
        match self {
            Shape::Image { channels, height, width } => channels * height * width,
            Shape::Vector { features } => features,
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}
