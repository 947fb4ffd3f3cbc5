//! The burn engine: the same clipped sums as [`engine`](crate::engine), over burn's tensors and so
//! on any device of burn.
//!
//! ```text
//! upload -> forward -> backward, layer by layer -> norms -> scales -> clipped sum -> read back
//! ```
//!
//! One forward and one backward pass per microbatch; nothing is read back before the sum of about 128
//! images is complete, and these sums are added in f64 (`sum.rs` says why). A layer either holds the gradients of a microbatch, or gives their squared
//! norms (ghost norms) and sums scaled examples, whichever is cheaper; never more than one microbatch
//! of gradients exists. Norms are f32 and rounded up by what f32 can have lost (`clip.rs`), so that
//! no example moves the sum by more than the clip norm, up to the rounding of the sum itself.
//! Examples whose squared norm is not finite in f32 contribute zero and are counted, as are those whose
//! clipped gradient is not finite in spite of it.
//!
//! # A layer of your own
//! 1. Add a variant to [`Layer`](crate::model::Layer), with its shapes and parameters.
//! 2. Write one file here with a type that implements `TensorLayer` (`layer.rs`): `forward` and
//!    `input_gradient`; with parameters also `example_gradients` and `gradient_sum`. `linear.rs` is
//!    a short one. Name it in `tensor_layer`.
//! 3. Add it to `autodiff.rs` and a case to `tests.rs`, where burn's automatic differentiation checks it.
//!
//! The CPU engine needs its own kernel for it, or refuses the architecture.

mod clip;
mod device;
mod layer;
mod layers;
mod loss;
mod pass;
mod sum;

#[cfg(all(test, feature = "flex", feature = "autodiff"))]
mod autodiff;
#[cfg(all(test, feature = "flex", feature = "autodiff"))]
mod tests;

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_tensor::{Int, Tensor, TensorData, Transaction};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::engine::sizes::Sizes;
use crate::engine::{Batch, BatchMetrics, Device, EngineError, EngineOptions, GradientEngine};
use crate::gradient::{CLIP_NORMS, ClipCounts, ClippedSum, GradientError};
use crate::model::Architecture;
use device::OpenDevice;
use layer::{TensorLayer, dimensions, tensor_layer};
use pass::{Goal, Pass};

/// Examples of a microbatch if none are asked for, about 100 MB for the ConvNet, and the most: they are added up in
/// f32, and the noise allows for the rounding of so many.
const DEFAULT_MICROBATCH: usize = 32;

/// The layers on a device, ready for batches of any size.
#[derive(Debug)]
pub struct BurnEngine {
    device: Device,
    open: OpenDevice,
    layers: Vec<Box<dyn TensorLayer>>,
    /// Where each layer's tensors lie in the flat vector.
    ranges: Vec<Vec<Range<usize>>>,
    image: [usize; 3],
    sizes: Sizes,
    microbatch: usize,
    pool: Option<ThreadPool>,
}

impl BurnEngine {
    /// Opens the device and puts the layers on it.
    ///
    /// `options.threads` is for the CPU; `options.convolution` and `options.portable` mean nothing to
    /// burn.
    ///
    /// # Errors
    /// [`EngineError::NoLogits`] unless the architecture ends with a vector,
    /// [`EngineError::NotBuilt`] and [`EngineError::Unavailable`] without the device,
    /// [`EngineError::Threads`] if the threads cannot be started.
    pub fn new(
        architecture: &Architecture,
        device: Device,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let sizes = Sizes::of(architecture)?;
        if options.microbatch > DEFAULT_MICROBATCH {
            let (microbatch, most) = (options.microbatch, DEFAULT_MICROBATCH);
            return Err(EngineError::Microbatch { microbatch, most });
        }
        let (kinds, shapes) = (architecture.layers(), architecture.shapes());
        let open = device::open(device)?;
        let threads = options.threads;
        let pool = if threads == 0 {
            None
        } else {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build();
            Some(pool.map_err(|_| EngineError::Threads { threads })?)
        };
        let ranges = |i| architecture.parameters_of(i).iter().map(|p| p.range.clone()).collect();
        Ok(Self {
            device,
            open,
            layers: kinds.iter().zip(shapes).map(|(&l, &shape)| tensor_layer(l, shape)).collect(),
            ranges: (0..kinds.len()).map(ranges).collect(),
            image: dimensions(shapes[0]),
            sizes,
            microbatch: match options.microbatch {
                0 => DEFAULT_MICROBATCH,
                asked => asked,
            },
            pool,
        })
    }

    /// The norm of every example's gradient as clipping sees it: rounded up, and NaN where the
    /// gradient is not finite. Depends on the data: not private.
    ///
    /// # Errors
    /// [`EngineError`] if a slice has the wrong length, a label is no class, or the device fails.
    pub fn norms(&mut self, parameters: &[f32], batch: Batch<'_>) -> Result<Vec<f32>, EngineError> {
        let summed = self.sum(parameters, batch, Goal::Clipped { copies: 1, clip_norm: 1.0 })?;
        let norm = |[_, bad, norm]: [f32; 3]| if bad > 0.0 { f32::NAN } else { norm };
        Ok(summed.examples.into_iter().map(norm).collect())
    }

    /// Runs on the engine's threads, and makes an error of a panic in burn or a driver.
    fn run<R: Send>(
        &self,
        work: impl FnOnce() -> Result<R, EngineError> + Send,
    ) -> Result<R, EngineError> {
        let work = || match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        };
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic: Box<dyn Any + Send>| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(self.failed(text.unwrap_or("it gave no reason")))
        })
    }

    fn failed(&self, reason: impl ToString) -> EngineError {
        EngineError::Failed { device: self.device, reason: reason.to_string() }
    }

    fn pass(&self, parameters: &[f32]) -> Pass<'_> {
        let flat = TensorData::new(parameters.to_vec(), [parameters.len()]);
        let flat = Tensor::<1>::from_data(flat, &self.open.tensors);
        let tensor = |range: &Range<usize>| flat.clone().slice([range.clone()]);
        let tensors = |ranges: &Vec<_>| ranges.iter().map(tensor).collect();
        Pass {
            layers: &self.layers,
            parameters: self.ranges.iter().map(tensors).collect(),
            weights: parameters.len(),
        }
    }

    fn images(&self, images: &[f32]) -> Tensor<4> {
        let [channels, height, width] = self.image;
        let shape = [images.len() / self.sizes.input, channels, height, width];
        Tensor::from_data(TensorData::new(images.to_vec(), shape), &self.open.tensors)
    }

    /// The label of every image: `copies` times each.
    fn classes(&self, labels: &[u32], copies: usize) -> Tensor<2, Int> {
        let repeated = labels.iter().flat_map(|&label| std::iter::repeat_n(label as i32, copies));
        let classes: Vec<i32> = repeated.collect();
        let shape = [classes.len(), 1];
        Tensor::from_data(TensorData::new(classes, shape), &self.open.tensors)
    }

    /// Waits for the device.
    fn read<const N: usize>(&self, from: [Tensor<1>; N]) -> Result<[Vec<f32>; N], EngineError> {
        let all = from.into_iter().fold(Transaction::default(), Transaction::register);
        let all = all.try_execute().map_err(|error| self.failed(error))?;
        let floats = all.into_iter().map(|data| data.try_to_vec::<f32>());
        let floats = floats.collect::<Result<Vec<_>, _>>();
        let floats = floats.map_err(|error| self.failed(format!("{error:?}")))?;
        floats.try_into().map_err(|_| self.failed("it read back something else"))
    }
}

/// All rows one after the other; one number if there are none, for burn reads nothing empty.
fn joined(blocks: Vec<Tensor<2>>, device: &burn_tensor::Device) -> Tensor<1> {
    if blocks.is_empty() {
        return Tensor::zeros([1], device);
    }
    let all = Tensor::cat(blocks, 0);
    let length = all.dims().iter().product::<usize>();
    all.reshape([length])
}

impl GradientEngine for BurnEngine {
    fn description(&self) -> String {
        let threads = self.pool.as_ref().map(ThreadPool::current_num_threads);
        let threads = threads.map_or(String::new(), |threads| format!(", {threads} threads"));
        format!("{}{threads}, microbatches of {}", self.open.name, self.microbatch)
    }

    fn arithmetic(&self) -> String {
        format!("burn, {}", self.open.name)
    }

    fn forward(
        &mut self,
        parameters: &[f32],
        images: &[f32],
        logits: &mut [f32],
    ) -> Result<(), EngineError> {
        let examples = images.len() / self.sizes.input;
        self.sizes.check(parameters, images, examples)?;
        self.sizes.check_logits(logits, examples)?;
        if examples == 0 {
            return Ok(());
        }
        let [found] = self.run(|| {
            let pass = self.pass(parameters);
            let blocks = images.chunks(self.microbatch * self.sizes.input).map(|images| {
                let logits = pass.logits(self.images(images));
                let length = logits.dims().iter().product::<usize>();
                logits.reshape([length])
            });
            self.read([Tensor::cat(blocks.collect(), 0)])
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
        self.clipped_sum_of_means(parameters, batch, 1, clip_norm)
    }

    fn clipped_sum_of_means(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        copies: usize,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError> {
        if !CLIP_NORMS.contains(&clip_norm) {
            return Err(EngineError::Gradient(GradientError::ClipNorm { clip_norm }));
        }
        if copies == 0 {
            return Err(EngineError::NoCopies);
        }
        let summed = self.sum(parameters, batch, Goal::Clipped { copies, clip_norm })?;
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
        let summed = self.sum(parameters, batch, Goal::Plain)?;
        let sum = summed.sum.iter().map(|&value| value as f32).collect();
        Ok((sum, summed.metrics))
    }
}
