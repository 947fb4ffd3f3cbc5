//! What an architecture fixes about the slices that an engine is given.

use crate::engine::EngineError;
use crate::gradient::GradientError;
use crate::model::{Architecture, Shape};

/// Numbers of parameters, of pixels per example, and of classes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) parameters: usize,
    pub(crate) input: usize,
    pub(crate) classes: usize,
}

impl Sizes {
    /// Those of an architecture that ends with a vector.
    pub(crate) fn of(architecture: &Architecture) -> Result<Self, EngineError> {
        let shapes = architecture.shapes();
        let Some(&Shape::Vector { features: classes }) = shapes.last() else {
            return Err(EngineError::NoLogits);
        };
        let parameters = architecture.parameter_count();
        Ok(Self { parameters, input: shapes[0].len(), classes })
    }

    /// Whether parameters and images have the right length.
    pub(crate) fn check(
        &self,
        parameters: &[f32],
        images: &[f32],
        examples: usize,
    ) -> Result<(), EngineError> {
        let (expected, found) = (self.parameters, parameters.len());
        if expected != found {
            return Err(EngineError::Gradient(GradientError::Dimension { expected, found }));
        }
        let (expected, found) = (examples * self.input, images.len());
        if expected != found {
            return Err(EngineError::Images { expected, found });
        }
        Ok(())
    }

    /// Whether there is room for all logits.
    pub(crate) fn check_logits(&self, logits: &[f32], examples: usize) -> Result<(), EngineError> {
        let (expected, found) = (examples * self.classes, logits.len());
        if expected != found { Err(EngineError::Logits { expected, found }) } else { Ok(()) }
    }

    /// Whether every label is a class.
    pub(crate) fn check_labels(&self, labels: &[u32]) -> Result<(), EngineError> {
        let classes = self.classes;
        match labels.iter().find(|&&label| label as usize >= classes) {
            Some(&label) => Err(EngineError::Label { label, classes }),
            None => Ok(()),
        }
    }
}
