//! The engine itself, on a model that was placed on a device.

use burn::tensor::Tensor;

use crate::engine::batch::{Batch, BatchMetrics};
use crate::engine::burn::placed::PlacedModel;
use crate::engine::burn::sum::sum;
use crate::engine::device::Device;
use crate::engine::error::EngineError;
use crate::engine::gradient_engine::{EngineDescription, GradientEngine};
use crate::engine::options::EngineOptions;
use crate::engine::self_check;
use crate::engine::sizes::check_clip_norm;
use crate::gradient::{ClipCounts, ClippedSum};
use crate::model::Architecture;

/// Examples of a microbatch if none are asked for, about 100 MB for the paper's ConvNet, and the most:
/// they are added up in f32, and the noise allows for the rounding of so many.
const DEFAULT_MICROBATCH: usize = 32;

/// The burn engine: the layers of an architecture on a device, ready for batches of any size.
#[derive(Debug)]
pub struct BurnEngine {
    pub(super) model: PlacedModel,
    pub(super) microbatch: usize,
    /// How far its sums were from those of the CPU engine, if they were compared.
    deviation: Option<f64>,
}

impl BurnEngine {
    /// Opens the device and puts the layers on it.
    ///
    /// `options.threads` is for the CPU; `options.convolution` and `options.portable` mean nothing to
    /// burn.
    ///
    /// # Errors
    /// [`EngineError::NoLogits`] unless the architecture ends with a vector,
    /// [`EngineError::Microbatch`] for too large ones, [`EngineError::NotBuilt`] and
    /// [`EngineError::Unavailable`] without the device, [`EngineError::Threads`] if the threads cannot
    /// be started.
    pub fn new(
        architecture: &Architecture,
        device: Device,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let microbatch = match options.microbatch {
            0 => DEFAULT_MICROBATCH,
            asked => asked,
        };
        if microbatch > DEFAULT_MICROBATCH {
            return Err(EngineError::Microbatch { microbatch, most: DEFAULT_MICROBATCH });
        }
        let model = PlacedModel::new(architecture, device, options)?;
        Ok(Self { model, microbatch, deviation: None })
    }

    /// The same engine, compared with the CPU engine on made-up examples.
    ///
    /// # Errors
    /// [`EngineError::Disagrees`] if their clipped sums differ by more than rounding, and if one of them fails.
    pub fn checked(mut self, architecture: &Architecture) -> Result<Self, EngineError> {
        let opened = (self.model.device, self.microbatch);
        self.deviation = Some(self_check::deviation(&mut self, architecture, opened, 1)?);
        Ok(self)
    }
}

impl GradientEngine for BurnEngine {
    fn describe(&self) -> EngineDescription {
        let device = &self.model.open.name;
        let threads = self.model.threads();
        let threads = threads.map_or(String::new(), |threads| format!(", {threads} threads"));
        let deviation = self.deviation.map_or(String::new(), |deviation| {
            format!(", within {deviation:.0e} of the CPU engine")
        });
        EngineDescription {
            name: format!("{device}{threads}, microbatches of {}{deviation}", self.microbatch),
            arithmetic: format!("burn, {device}"),
        }
    }

    fn forward(
        &mut self,
        parameters: &[f32],
        images: &[f32],
        logits: &mut [f32],
    ) -> Result<(), EngineError> {
        let model = &self.model;
        if model.sizes.check_forward(parameters, images, logits)? == 0 {
            return Ok(());
        }
        let [found] = model.run(|| {
            let pass = model.pass(parameters);
            let blocks = images.chunks(self.microbatch * model.sizes.pixels).map(|images| {
                let logits = pass.logits(model.images(images));
                let length = logits.dims().iter().product::<usize>();
                logits.reshape([length])
            });
            model.read([Tensor::cat(blocks.collect(), 0)])
        })?;
        logits.copy_from_slice(&found);
        Ok(())
    }

    fn clipped_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError> {
        check_clip_norm(clip_norm)?;
        let summed = sum(&self.model, self.microbatch, parameters, batch, Some(clip_norm))?;
        let counts = ClipCounts {
            examples: batch.labels.len(),
            clipped: summed.examples.iter().filter(|[clipped, ..]| *clipped > 0.0).count(),
            non_finite: summed.examples.iter().filter(|[_, bad, _]| *bad > 0.0).count(),
        };
        Ok((ClippedSum::from_clipping(summed.sum, clip_norm, counts), summed.metrics))
    }

    fn gradient_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
    ) -> Result<(Vec<f32>, BatchMetrics), EngineError> {
        self.model.sizes.check_batch(parameters.len(), batch)?;
        // Without clipping, views are images like any others.
        let labels = batch.image_labels();
        let images = Batch::new(batch.images, &labels);
        let summed = sum(&self.model, self.microbatch, parameters, images, None)?;
        let sum = summed.sum.iter().map(|&value| value as f32).collect();
        Ok((sum, summed.metrics))
    }
}
