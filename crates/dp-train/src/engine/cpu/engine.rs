//! The engine itself: a compiled network, its weights as the kernels read them, and its threads.

use rayon::prelude::*;

use crate::engine::batch::{Batch, BatchMetrics};
use crate::engine::cpu::compile::compile;
use crate::engine::cpu::kernels::packing::Weights;
use crate::engine::cpu::kernels::vector::Isa;
use crate::engine::cpu::lanes::{EXAMPLES_PER_LANE, Lanes};
use crate::engine::cpu::network::Network;
use crate::engine::cpu::workers::Workers;
use crate::engine::cpu::workspace::{Model, Tally};
use crate::engine::error::EngineError;
use crate::engine::gradient_engine::{EngineDescription, GradientEngine};
use crate::engine::options::EngineOptions;
use crate::engine::sizes::{Sizes, check_clip_norm};
use crate::gradient::{ClipCounts, ClippedSum};
use crate::model::Architecture;

/// Examples of a block if none are asked for.
const DEFAULT_MICROBATCH: usize = 8;

/// The CPU engine: an architecture with its buffers, ready for batches of any size.
///
/// Norms are f64. Those of layers with ghost norms are rounded up by as much as f32 may have lost, so
/// a clipped example moves the sum by at most the clip norm up to the rounding of the sum itself, and
/// one that is within the bound may be scaled by a last digit.
#[derive(Debug)]
pub struct Engine {
    sizes: Sizes,
    network: Network,
    weights: Vec<Weights>,
    isa: Isa,
    workers: Workers,
    microbatch: usize,
    lanes: Lanes,
}

impl Engine {
    /// Compiles an architecture and allocates the buffers.
    ///
    /// # Errors
    /// [`EngineError::NoLogits`] unless it ends with a vector that a linear layer made,
    /// [`EngineError::Microbatch`] for too large ones, [`EngineError::Threads`] if the threads cannot
    /// be started.
    pub fn new(architecture: &Architecture, options: EngineOptions) -> Result<Self, EngineError> {
        let microbatch =
            if options.microbatch == 0 { DEFAULT_MICROBATCH } else { options.microbatch };
        if microbatch > EXAMPLES_PER_LANE {
            return Err(EngineError::Microbatch { microbatch, most: EXAMPLES_PER_LANE });
        }
        let network = compile(architecture, microbatch, options.convolution)?;
        Ok(Self {
            sizes: Sizes::of(architecture)?,
            weights: network.stages.iter().map(|_| Weights::default()).collect(),
            isa: if options.portable { Isa::portable() } else { Isa::detect() },
            workers: Workers::new(&network, options.threads, microbatch)?,
            lanes: Lanes::new(network.packed),
            network,
            microbatch,
        })
    }

    /// The same on another instruction set.
    #[cfg(test)]
    pub(super) fn on(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// Which convolutions and linear layers have ghost norms, in their order.
    #[cfg(test)]
    pub(crate) fn ghost_norms(&self) -> Vec<bool> {
        use crate::engine::cpu::network::Op;
        let ghost = |op: &Op| match op {
            Op::Convolution(convolution) => Some(convolution.ghost),
            Op::Grouped(_) | Op::Pool(_) | Op::GroupNorm(_) | Op::Copy => None,
        };
        self.network.stages.iter().filter_map(|stage| ghost(&stage.op)).collect()
    }

    /// The sum over a batch in PyTorch's order: clipped to a norm, or as it is.
    fn sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        clip_norm: Option<f64>,
    ) -> Result<(Vec<f64>, BatchMetrics, Tally), EngineError> {
        self.sizes.check_batch(parameters.len(), batch)?;
        self.pack(parameters);
        let Self { sizes, network, weights, isa, workers, microbatch, lanes } = self;
        let model = Model { isa: *isa, sizes: *sizes, network, weights, parameters };
        let (total, tally) = lanes.sum(workers, model, batch, clip_norm, *microbatch);
        let mut flat = vec![0.0; parameters.len()];
        network.unpack(total, &mut flat);
        let images = batch.labels.len() * batch.views;
        let metrics = BatchMetrics { images, loss_sum: tally.loss, correct: tally.correct };
        Ok((flat, metrics, tally))
    }

    /// Parameters in the order of the kernels, one layer per task.
    fn pack(&mut self, parameters: &[f32]) {
        let (isa, network, weights) = (self.isa, &self.network, &mut self.weights);
        self.workers.install(|| {
            let stages = weights.par_iter_mut().enumerate();
            stages.for_each(|(stage, weights)| network.pack(stage, isa, parameters, weights));
        });
    }
}

impl GradientEngine for Engine {
    fn describe(&self) -> EngineDescription {
        let threads = self.workers.len();
        EngineDescription {
            name: format!("the CPU engine, {}, {threads} threads", self.isa.name()),
            arithmetic: format!("cpu, {}", self.isa.arithmetic()),
        }
    }

    fn forward(
        &mut self,
        parameters: &[f32],
        images: &[f32],
        logits: &mut [f32],
    ) -> Result<(), EngineError> {
        self.sizes.check_forward(parameters, images, logits)?;
        self.pack(parameters);
        let Sizes { pixels, classes, .. } = self.sizes;
        let Self { sizes, network, weights, isa, workers, microbatch, .. } = self;
        let model = Model { isa: *isa, sizes: *sizes, network, weights, parameters };
        let blocks = images.chunks(*microbatch * pixels);
        let blocks = blocks.zip(logits.chunks_mut(*microbatch * classes));
        workers.share(blocks, |workspace, (images, logits)| {
            workspace.forward(model, images.len() / pixels, images);
            for (sample, logits) in logits.chunks_mut(classes).enumerate() {
                logits.copy_from_slice(workspace.logits(model, sample));
            }
        });
        Ok(())
    }

    fn clipped_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError> {
        check_clip_norm(clip_norm)?;
        let (sum, metrics, tally) = self.sum(parameters, batch, Some(clip_norm))?;
        let counts = ClipCounts {
            examples: batch.labels.len(),
            clipped: tally.clipped,
            non_finite: tally.non_finite,
        };
        Ok((ClippedSum::from_clipping(sum, clip_norm, counts), metrics))
    }

    fn gradient_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
    ) -> Result<(Vec<f32>, BatchMetrics), EngineError> {
        self.sizes.check_batch(parameters.len(), batch)?;
        // Without clipping, views are images like any others.
        let labels = batch.image_labels();
        let images = Batch::new(batch.images, &labels);
        let (sum, metrics, _) = self.sum(parameters, images, None)?;
        Ok((sum.into_iter().map(|value| value as f32).collect(), metrics))
    }
}
