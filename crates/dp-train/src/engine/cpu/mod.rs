//! The CPU engine: clipped sums of per-example gradients at the price of ordinary gradients.
//!
//! ```text
//! images, labels -> forward -> backward -> per-example norms -> sum_j min(1, zeta / |g_j|) g_j
//! ```
//!
//! One forward and one backward pass per block of examples. Activations lie channels last in
//! buffers that are made once; 3 x 3 convolutions go through Winograd's F(4x4, 3x3)
//! ([`ConvolutionMethod`]), all others through products of 6 x 16 tiles, grouped ones group by
//! group. A layer's per-example
//! gradient is either held for one example at a time, or its norm comes from Gram matrices (ghost
//! norms) and the scaled examples of a block are summed in one product, whichever is cheaper.
//!
//! # Guarantees
//! * The same bits for any number of threads: examples are dealt to lanes by the size of the batch
//!   alone, and lanes are added in their order.
//! * An example with a non-finite gradient contributes exactly zero and is counted.
//! * After the first call no buffer is allocated but the result.
//!
//! ```
//! use dp_train::engine::{Batch, Engine, EngineOptions};
//! use dp_train::model::{Architecture, Layer, Shape, initial_parameters};
//! use dp_train::seeds::RunSeed;
//!
//! let input = Shape::Image { channels: 3, height: 8, width: 8 };
//! let layers = vec![Layer::conv(3, 16, 3), Layer::Relu, Layer::Flatten, Layer::linear(1024, 10)];
//! let model = Architecture::new(input, layers)?;
//! let parameters = initial_parameters(&model, RunSeed(1));
//! let mut engine = Engine::new(&model, EngineOptions::default())?;
//! let images = vec![0.1; 2 * input.len()];
//! let batch = Batch { images: &images, labels: &[3, 7] };
//! let (sum, metrics) = engine.clipped_sum(&parameters, batch, 1.0)?;
//! assert_eq!((sum.dim(), metrics.examples), (model.parameter_count(), 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block;
mod ghost;
mod kernels;
mod lanes;
mod loss;
mod network;
mod peak;
#[cfg(test)]
mod tests;

pub use peak::sgemm_seconds;

use std::sync::Mutex;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::engine::options::DEFAULT_MICROBATCH;
use crate::engine::sizes::Sizes;
use crate::engine::{Batch, BatchMetrics, EngineError, EngineOptions};
use crate::gradient::{CLIP_NORMS, ClipCounts, ClippedSum, GradientError};
use crate::model::Architecture;
use block::{Goal, Model, Workspace};
use kernels::convolution::Weights;
use kernels::vector::Isa;
use lanes::{EXAMPLES_PER_LANE, Lane};
use network::{Network, Op};

/// The network with its buffers, ready for batches of any size.
#[derive(Debug)]
pub struct Engine {
    sizes: Sizes,
    network: Network,
    weights: Vec<Weights>,
    isa: Isa,
    pool: ThreadPool,
    microbatch: usize,
    workspaces: Vec<Workspace>,
    lanes: Vec<Lane>,
    total: Vec<f64>,
}

impl Engine {
    /// Compiles an architecture and allocates the buffers.
    ///
    /// # Errors
    /// [`EngineError::NoLogits`] unless it ends with a vector that a linear layer made,
    /// [`EngineError::Microbatch`] for too large ones, [`EngineError::Threads`] if the threads cannot be started.
    pub fn new(architecture: &Architecture, options: EngineOptions) -> Result<Self, EngineError> {
        let microbatch =
            if options.microbatch == 0 { DEFAULT_MICROBATCH } else { options.microbatch };
        if microbatch > EXAMPLES_PER_LANE {
            return Err(EngineError::Microbatch { microbatch, most: EXAMPLES_PER_LANE });
        }
        let network = Network::new(architecture, microbatch, options.convolution)?;
        let pool = ThreadPoolBuilder::new()
            .num_threads(options.threads)
            .build()
            .map_err(|_| EngineError::Threads { threads: options.threads })?;
        let threads = pool.current_num_threads();
        let isa = if options.portable { Isa::portable() } else { Isa::detect() };
        Ok(Self {
            sizes: Sizes::of(architecture)?,
            weights: network.weights(),
            workspaces: (0..threads).map(|_| Workspace::new(&network, microbatch)).collect(),
            lanes: Vec::new(),
            total: vec![0.0; network.packed],
            network,
            isa,
            pool,
            microbatch,
        })
    }

    /// Threads that work.
    pub fn threads(&self) -> usize {
        self.workspaces.len()
    }

    /// Which convolutions and linear layers have ghost norms, in their order.
    #[cfg(test)]
    pub(crate) fn ghost_norms(&self) -> Vec<bool> {
        let ghost = |op: &Op| match op {
            Op::Convolution(convolution) => Some(convolution.ghost),
            Op::Grouped(_) | Op::Pool(_) | Op::GroupNorm(_) | Op::Copy => None,
        };
        self.network.stages.iter().filter_map(|stage| ghost(&stage.op)).collect()
    }

    /// Name of the instruction set in use.
    pub fn instruction_set(&self) -> &'static str {
        self.isa.name()
    }

    /// The logits of every image, `classes` numbers each.
    ///
    /// # Errors
    /// [`EngineError`] if a slice has the wrong length.
    pub fn forward(
        &mut self,
        parameters: &[f32],
        images: &[f32],
        logits: &mut [f32],
    ) -> Result<(), EngineError> {
        let examples = images.len() / self.network.input;
        self.sizes.check(parameters, images, examples)?;
        self.sizes.check_logits(logits, examples)?;
        let classes = self.network.classes;
        self.pack(parameters);
        let (network, weights, isa) = (&self.network, &self.weights, self.isa);
        let model = Model { isa, network, weights, parameters };
        let (step, pixels) = (self.microbatch, self.microbatch * network.input);
        let blocks = Mutex::new(images.chunks(pixels).zip(logits.chunks_mut(step * classes)));
        self.pool.scope(|scope| {
            for workspace in &mut self.workspaces {
                let blocks = &blocks;
                scope.spawn(move |_| {
                    loop {
                        let next = blocks.lock().ok().and_then(|mut blocks| blocks.next());
                        let Some((images, logits)) = next else { break };
                        workspace.forward(model, images.len() / network.input, images);
                        for (sample, logits) in logits.chunks_mut(classes).enumerate() {
                            logits.copy_from_slice(workspace.logits(network, sample));
                        }
                    }
                });
            }
        });
        Ok(())
    }

    /// `sum_j min(1, clip_norm / |g_j|) g_j` over the gradients of the examples' losses.
    ///
    /// Norms are f64. Those of layers with ghost norms are rounded up by as much as f32 may have
    /// lost, so a clipped example moves the sum by at most `clip_norm` up to the rounding of the sum
    /// itself, and one that is within the bound may be scaled by a last digit. An empty batch sums
    /// to zero.
    ///
    /// # Errors
    /// [`EngineError`] if a slice has the wrong length, a label is no class, or the clip norm is not
    /// positive and finite.
    pub fn clipped_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError> {
        self.clip(parameters, batch, Goal::Clipped(clip_norm), clip_norm)
    }

    fn clip(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        goal: Goal,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError> {
        if !CLIP_NORMS.contains(&clip_norm) {
            return Err(EngineError::Gradient(GradientError::ClipNorm { clip_norm }));
        }
        let (sum, metrics, tally) = self.sum(parameters, batch, goal)?;
        let counts = ClipCounts {
            examples: batch.labels.len(),
            clipped: tally.clipped,
            non_finite: tally.non_finite,
        };
        Ok((ClippedSum::from_clipping(sum, clip_norm, counts), metrics))
    }

    /// As [`clipped_sum`](Self::clipped_sum) for examples with several copies, say random crops: the
    /// gradients of the copies are averaged, and the mean is clipped, so that an example moves the sum by
    /// at most `clip_norm` however many copies it has.
    ///
    /// The images of a label lie one after the other, `copies` of them. Metrics count every copy as an
    /// example, the counts of the sum do not.
    ///
    /// # Errors
    /// As [`clipped_sum`](Self::clipped_sum); also [`EngineError::NoCopies`].
    pub fn clipped_sum_of_means(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        copies: usize,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError> {
        match copies {
            0 => Err(EngineError::NoCopies),
            1 => self.clipped_sum(parameters, batch, clip_norm),
            _ => self.clip(parameters, batch, Goal::ClippedMeans { copies, clip_norm }, clip_norm),
        }
    }

    /// The plain sum of the gradients: no clipping, no privacy.
    ///
    /// # Errors
    /// [`EngineError`] if a slice has the wrong length or a label is no class.
    pub fn gradient_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
    ) -> Result<(Vec<f32>, BatchMetrics), EngineError> {
        let (sum, metrics, _) = self.sum(parameters, batch, Goal::Plain)?;
        Ok((sum.into_iter().map(|value| value as f32).collect(), metrics))
    }

    /// Parameters in the order of the kernels, one layer per task.
    fn pack(&mut self, parameters: &[f32]) {
        let (isa, stages, weights) = (self.isa, &self.network.stages, &mut self.weights);
        self.pool.install(|| {
            weights.par_iter_mut().zip(stages).for_each(|(weights, stage)| match &stage.op {
                Op::Convolution(c) => {
                    let (weight, bias) = (c.weight.clone(), c.bias.clone());
                    c.pack(isa, (&parameters[weight], &parameters[bias]), weights);
                }
                Op::Grouped(grouped) => grouped.pack(isa, parameters, weights),
                Op::Pool(_) | Op::GroupNorm(_) | Op::Copy => {}
            });
        });
    }
}
