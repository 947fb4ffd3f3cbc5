//! A model placed on a device of burn: its layers, the threads that drive them, and the way there and
//! back.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{Int, Tensor, TensorData, Transaction};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::engine::batch::Batch;
use crate::engine::burn::device::{self, OpenDevice};
use crate::engine::burn::layer::{TensorLayer, dimensions};
use crate::engine::burn::layers::tensor_layer;
use crate::engine::burn::pass::Pass;
use crate::engine::device::Device;
use crate::engine::error::EngineError;
use crate::engine::options::EngineOptions;
use crate::engine::panics::reason_of;
use crate::engine::sizes::Sizes;
use crate::model::Architecture;

/// The layers of an architecture on an open device.
#[derive(Debug)]
pub(super) struct PlacedModel {
    pub(super) device: Device,
    pub(super) open: OpenDevice,
    pub(super) layers: Vec<Box<dyn TensorLayer>>,
    /// Where each layer's tensors lie in the flat vector.
    ranges: Vec<Vec<Range<usize>>>,
    image: [usize; 3],
    pub(super) sizes: Sizes,
    pool: Option<ThreadPool>,
}

impl PlacedModel {
    /// Opens the device and puts the layers on it; 0 threads leave their number to burn.
    ///
    /// # Errors
    /// Those of [`BurnEngine::new`](crate::engine::BurnEngine::new).
    pub(super) fn new(
        architecture: &Architecture,
        device: Device,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let sizes = Sizes::of(architecture)?;
        let open = device::open(device, options.adapter)?;
        let threads = options.threads;
        let pool = if threads == 0 {
            None
        } else {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build();
            Some(pool.map_err(|_| EngineError::Threads { threads })?)
        };
        let (kinds, shapes) = (architecture.layers(), architecture.shapes());
        let ranges = |i| architecture.parameters_of(i).iter().map(|p| p.range.clone()).collect();
        Ok(Self {
            device,
            open,
            layers: kinds.iter().zip(shapes).map(|(&l, &shape)| tensor_layer(l, shape)).collect(),
            ranges: (0..kinds.len()).map(ranges).collect(),
            image: dimensions(architecture.input()),
            sizes,
            pool,
        })
    }

    /// Threads of its own, if there are any.
    pub(super) fn threads(&self) -> Option<usize> {
        self.pool.as_ref().map(ThreadPool::current_num_threads)
    }

    /// Runs on the engine's threads, and makes an error of a panic in burn or a driver.
    pub(super) fn run<R: Send>(
        &self,
        work: impl FnOnce() -> Result<R, EngineError> + Send,
    ) -> Result<R, EngineError> {
        let work = || match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        };
        catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|panic| Err(self.failed(reason_of(&*panic))))
    }

    fn failed(&self, reason: impl ToString) -> EngineError {
        EngineError::Failed { device: self.device, reason: reason.to_string() }
    }

    /// The layers with parameters on the device.
    pub(super) fn pass(&self, parameters: &[f32]) -> Pass<'_> {
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

    /// Images on the device: `[n, channels, height, width]`.
    pub(super) fn images(&self, images: &[f32]) -> Tensor<4> {
        let [channels, height, width] = self.image;
        let shape = [images.len() / self.sizes.pixels, channels, height, width];
        Tensor::from_data(TensorData::new(images.to_vec(), shape), &self.open.tensors)
    }

    /// The class of every image, views of an example included.
    pub(super) fn classes(&self, batch: Batch<'_>) -> Tensor<2, Int> {
        let classes: Vec<i32> = batch.image_labels().iter().map(|&label| label as i32).collect();
        let shape = [classes.len(), 1];
        Tensor::from_data(TensorData::new(classes, shape), &self.open.tensors)
    }

    /// Waits for the device.
    pub(super) fn read<const N: usize>(
        &self,
        from: [Tensor<1>; N],
    ) -> Result<[Vec<f32>; N], EngineError> {
        let all = from.into_iter().fold(Transaction::default(), Transaction::register);
        let all = all.try_execute().map_err(|error| self.failed(error))?;
        let floats = all.into_iter().map(|data| data.try_to_vec::<f32>());
        let floats = floats.collect::<Result<Vec<_>, _>>();
        let floats = floats.map_err(|error| self.failed(format!("{error:?}")))?;
        floats.try_into().map_err(|_| self.failed("it read back something else"))
    }
}
