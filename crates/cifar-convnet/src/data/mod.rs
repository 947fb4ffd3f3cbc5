//! Labelled examples: images, or vectors of numbers.
//!
//! ```text
//! name                    data sets that are known: textures, cifar10, fashion_mnist
//! own                     those of one's own: class folders, .npy, IDX, CSV
//! -> Dataset { Split }    examples in memory
//! views                   random views of images, for training
//! features, scattering    what a model sees in place of pixels
//! mirror                  mirror images, for evaluation
//! ```

mod scaling;
mod feature_rows;
mod split;
pub mod textures;
mod scene;
pub mod cifar10;
pub mod fashion_mnist;
mod idx;
pub mod checksum;
pub mod views;
pub mod mirror;
mod name;
pub mod own;
pub mod scattering;
pub mod features;

#[cfg(test)]
mod fuzz;

pub use feature_rows::FeatureRows;
pub use name::Name;
pub use scaling::Scaling;
#[cfg(feature = "gpu")]
pub use split::BYTE_NUMBERS;
pub use split::{Numbers, Split, share_of};

/// What an example looks like in memory: `channels` planes of `height` rows of `width` numbers. A vector
/// is an image of one pixel with as many channels as it has numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Planes: 3 for colour, 1 for grey.
    pub channels: usize,
    /// Rows of a plane.
    pub height: usize,
    /// Numbers of a row.
    pub width: usize,
}

impl Shape {
    /// The shape of a vector.
    pub const fn vector(features: usize) -> Self {
        Self { channels: features, height: 1, width: 1 }
    }

    /// Whether it is a vector rather than an image.
    pub fn is_vector(self) -> bool {
        (self.height, self.width) == (1, 1)
    }

    /// Numbers in one example.
    pub fn numbers(self) -> usize {
        self.channels * self.height * self.width
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { channels, height, width } = self;
        match self.is_vector() {
            true => write!(f, "{channels} numbers"),
            false => write!(f, "{channels} x {height} x {width}"),
        }
    }
}

/// Examples to learn from and examples to be judged by.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Which one, as in a config.
    pub name: &'static str,
    /// Of every example.
    pub shape: Shape,
    /// The names of the labels 0, 1, ...
    pub classes: Vec<String>,
    /// To learn from.
    pub train: Split,
    /// To be judged by.
    pub test: Split,
}

impl Dataset {
    /// The data set to tune on: `share` of the training examples are held out and take the place of
    /// the test examples, which are dropped, so that no choice can depend on them.
    ///
    /// Which examples are held out follows from their number and the share only: the same in every
    /// run. Copies the training examples once.
    ///
    /// # Errors
    /// A [`BadArgument`](crate::BadArgument) unless both parts get at least one example.
    pub fn for_tuning(self, share: f64) -> anyhow::Result<Self> {
        let (train, validation) = self.train.hold_out(share)?;
        Ok(Self { train, test: validation, ..self })
    }
}
