//! The lengths that an architecture demands of the slices that an engine is given.

use crate::engine::batch::Batch;
use crate::engine::error::EngineError;
use crate::gradient::{CLIP_NORMS, GradientError};
use crate::model::{Architecture, Shape};

/// Numbers of parameters, of pixels per image, and of classes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) parameters: usize,
    pub(crate) pixels: usize,
    pub(crate) classes: usize,
}

impl Sizes {
    /// Those of an architecture that ends with a vector.
    pub(crate) fn of(architecture: &Architecture) -> Result<Self, EngineError> {
        let Shape::Vector { features: classes } = architecture.output() else {
            return Err(EngineError::NoLogits);
        };
        let (parameters, pixels) = (architecture.parameter_count(), architecture.input().len());
        Ok(Self { parameters, pixels, classes })
    }

    /// Whether parameters, images and logits fit together; how many images there are.
    pub(crate) fn check_forward(
        &self,
        parameters: &[f32],
        images: &[f32],
        logits: &[f32],
    ) -> Result<usize, EngineError> {
        let count = images.len() / self.pixels;
        self.check_lengths(parameters.len(), images, count)?;
        let (expected, found) = (count * self.classes, logits.len());
        if expected == found { Ok(count) } else { Err(EngineError::Logits { expected, found }) }
    }

    /// Whether parameters and batch fit together.
    pub(crate) fn check_batch(
        &self,
        parameters: usize,
        batch: Batch<'_>,
    ) -> Result<(), EngineError> {
        if batch.views == 0 {
            return Err(EngineError::NoViews);
        }
        let images = batch.labels.len().saturating_mul(batch.views);
        self.check_lengths(parameters, batch.images, images)?;
        let classes = self.classes;
        match batch.labels.iter().find(|&&label| label as usize >= classes) {
            Some(&label) => Err(EngineError::Label { label, classes }),
            None => Ok(()),
        }
    }

    fn check_lengths(
        &self,
        parameters: usize,
        images: &[f32],
        count: usize,
    ) -> Result<(), EngineError> {
        let (expected, found) = (self.parameters, parameters);
        if expected != found {
            return Err(EngineError::Gradient(GradientError::Dimension { expected, found }));
        }
        let (expected, found) = (count.saturating_mul(self.pixels), images.len());
        if expected == found { Ok(()) } else { Err(EngineError::Images { expected, found }) }
    }
}

/// Whether sums can be clipped to this norm.
pub(crate) fn check_clip_norm(clip_norm: f64) -> Result<(), EngineError> {
    if CLIP_NORMS.contains(&clip_norm) {
        Ok(())
    } else {
        Err(EngineError::Gradient(GradientError::ClipNorm { clip_norm }))
    }
}
