//! The comparison of the engine with the CPU's: clipped sums of made-up examples, and their norms.

use cubecl::prelude::CubeElement;

use super::engine::GpuEngine;
use super::kernels::UNITS;
use crate::engine::batch::Batch;
use crate::engine::error::EngineError;
use crate::engine::gradient_engine::GradientEngine;
use crate::engine::self_check::{self, MadeUp};

impl GpuEngine {
    /// Compares the engine with the CPU's for examples of so many views, unless that was done: other views are other kernels.
    /// Clipped sums of such examples do it anyway; here it is done before one of them is asked for.
    ///
    /// # Errors
    /// [`EngineError::Disagrees`] if their clipped sums differ by more than rounding or a norm is too small, and if one of
    /// them fails.
    pub fn compare(&mut self, views: usize) -> Result<(), EngineError> {
        match &mut self.compared {
            Some(compared) if !compared.contains(&views) => compared.push(views),
            _ => return Ok(()),
        }
        let found = self.deviation_of(views);
        let found = found.inspect_err(|_| self.compared = Some(Vec::new()))?;
        self.deviation = Some(self.deviation.map_or(found, |before| before.max(found)));
        Ok(())
    }

    fn deviation_of(&mut self, views: usize) -> Result<f64, EngineError> {
        let architecture = self.architecture.clone();
        // Examples for three cubes where each unit has one, and more than two parts: what is the same for every cube and
        // every part need not be compared more often.
        let opened = (self.device, 2 * UNITS);
        let found = self_check::deviation(self, &architecture, opened, views)?;
        let examples = MadeUp::beside(&architecture, 2 * UNITS, views);
        let (batch, pixels) = (examples.batch(), self.sizes.pixels);
        // Norms are those of one pass.
        let most = batch.labels.len();
        let together = self.run(|engine| engine.examples_together(most, views))?.min(most);
        let norms = self.norms(&examples.parameters, batch.examples(0..together, pixels))?;
        examples.check_norms(&architecture, self.device, &norms)?;
        Ok(found)
    }

    /// Whether it is one that is compared with the CPU.
    pub(super) fn is_compared(&self) -> bool {
        self.compared.is_some()
    }

    /// The norm of every example's gradient as clipping sees it.
    pub(super) fn norms(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
    ) -> Result<Vec<f32>, EngineError> {
        const CLIP_NORM: f32 = 1e-9;
        self.clipped_sum(parameters, batch, f64::from(CLIP_NORM))?;
        let factors = self.placed.as_ref().map(|(_, buffers)| buffers.factors.clone());
        let factors = factors.ok_or_else(|| self.failed("no memory"))?;
        let found = self.run(|engine| engine.read(&[&factors]))?;
        let factors = &f32::from_bytes(&found[0])[..batch.labels.len()];
        Ok(factors.iter().map(|factor| CLIP_NORM / factor).collect())
    }
}
