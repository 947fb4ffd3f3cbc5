//! The engine: batches from the host, sums to the host.

use std::any::Any;
use std::fmt;
use std::ops::Sub;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use cubecl::bytes::Bytes;
use cubecl::client::Client;
use cubecl::prelude::CubeElement;

use super::adapter;
use super::buffers::{Buffer, Buffers};
use super::kernels::ledger::{FAILED, WORDS};
use super::network::Network;
use super::pass::{PART, Pass};
use crate::engine::batch::{Batch, BatchMetrics};
use crate::engine::device::Device;
use crate::engine::error::EngineError;
use crate::engine::gradient_engine::{EngineDescription, GradientEngine};
use crate::engine::options::EngineOptions;
use crate::engine::self_check;
use crate::engine::sizes::{Sizes, check_clip_norm};
use crate::gradient::{ClipCounts, ClippedSum};
use crate::model::Architecture;

/// Images that go through the network together if none are asked for: 0.6 GB for the paper's ConvNet, whose batch of 500
/// they hold.
const DEFAULT_MICROBATCH: usize = 512;

/// The most images: cubes along one axis of a grid are counted in 16 bits.
const MOST_IMAGES: usize = 32_768;

/// The engine of a GPU: kernels of its own for the layers of an architecture.
pub struct GpuEngine {
    device: Device,
    name: String,
    client: Client,
    architecture: Architecture,
    sizes: Sizes,
    microbatch: usize,
    /// The network for the views of the last batch, and its memory.
    placed: Option<(Network, Buffers)>,
    /// The views that it was compared with the CPU engine for, if it is to be.
    compared: Option<Vec<usize>>,
    /// How far its sums were from those of the CPU engine then.
    deviation: Option<f64>,
    traffic: Traffic,
    /// Its number in this process: a run stays with its engine.
    number: u64,
}

static ENGINES: AtomicU64 = AtomicU64::new(0);

/// What went to a device and came back, besides kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Uploads.
    pub uploads: usize,
    /// Their bytes.
    pub uploaded_bytes: usize,
    /// Times that the device was waited for.
    pub reads: usize,
    /// Bytes that were read back.
    pub read_bytes: usize,
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            uploads: self.uploads - before.uploads,
            uploaded_bytes: self.uploaded_bytes - before.uploaded_bytes,
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
        }
    }
}

/// Without the way to the device, which has no form for people.
impl fmt::Debug for GpuEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GpuEngine({}, {:?})", self.name, self.architecture)
    }
}

/// What the device found out about a batch.
struct Found {
    /// Sums of parts of at most [`PART`] examples, one after the other.
    parts: Vec<f32>,
    /// Loss and correctness of every image.
    measures: Vec<f32>,
    /// Of every example: 1 if it was clipped, 2 if it is not finite. Empty without clipping.
    marks: Vec<u32>,
}

impl GpuEngine {
    /// Opens the device. `options.threads` is for the CPU; `options.convolution` and `options.portable` mean nothing
    /// here.
    ///
    /// # Errors
    /// [`EngineError::NoLogits`] unless the architecture ends with a vector, [`EngineError::Microbatch`] for too
    /// large ones, [`EngineError::Unavailable`] without the device.
    pub fn new(
        architecture: &Architecture,
        device: Device,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let microbatch = match options.microbatch {
            0 => DEFAULT_MICROBATCH,
            asked => asked,
        };
        if microbatch > MOST_IMAGES {
            return Err(EngineError::Microbatch { microbatch, most: MOST_IMAGES });
        }
        let sizes = Sizes::of(architecture)?;
        let (client, name) = adapter::open(device, options.adapter)?;
        let architecture = architecture.clone();
        let (placed, compared, deviation) = (None, None, None);
        Ok(Self {
            device,
            name,
            client,
            architecture,
            sizes,
            microbatch,
            placed,
            compared,
            deviation,
            traffic: Traffic::default(),
            number: ENGINES.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// The same engine, compared with the CPU engine on made-up examples.
    ///
    /// # Errors
    /// [`EngineError::Disagrees`] if their clipped sums differ by more than rounding, and if one of them fails.
    pub fn checked(mut self) -> Result<Self, EngineError> {
        self.compared = Some(Vec::new());
        self.compare(1)?;
        Ok(self)
    }

    /// Compares the engine with the CPU's for examples of so many views, if it is one that is compared and that was not done:
    /// other views are other kernels.
    pub(super) fn compare(&mut self, views: usize) -> Result<(), EngineError> {
        match &mut self.compared {
            Some(compared) if !compared.contains(&views) => compared.push(views),
            _ => return Ok(()),
        }
        let architecture = self.architecture.clone();
        // Two whole parts: what is the same for every part need not be compared more often.
        let opened = (self.device, 2 * PART);
        let found = self_check::deviation(self, &architecture, opened, views);
        let found = found.inspect_err(|_| self.compared = Some(Vec::new()))?;
        self.deviation = Some(self.deviation.map_or(found, |before| before.max(found)));
        Ok(())
    }

    /// The norm of every example's gradient as clipping sees it.
    #[cfg(test)]
    pub(super) fn norms(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
    ) -> Result<Vec<f32>, EngineError> {
        self.clipped_sum(parameters, batch, 1.0)?;
        let norms = self.placed.as_ref().map(|(_, buffers)| buffers.norms.clone());
        let norms = norms.ok_or_else(|| self.failed("no memory"))?;
        let found = self.run(|engine| engine.read(&[&norms]))?;
        Ok(f32::from_bytes(&found[0])[..batch.labels.len()].to_vec())
    }

    /// What went to the device and came back since the engine was opened, besides kernels.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Numbers of an image.
    pub(super) fn pixels(&self) -> usize {
        self.sizes.pixels
    }

    /// How many of some examples, of so many views, go through the network together: all, or whole parts of no more images
    /// than were asked for and than every buffer has room for.
    pub(super) fn examples_together(&self, examples: usize, views: usize) -> Result<usize, String> {
        let network = Network::new(&self.architecture, views).map_err(|error| error.to_string())?;
        let values = network.lengths.iter().copied().max().unwrap_or(1) * views;
        let numbers = values.max(network.held_row).max(network.slots).max(1);
        let most = self.client.properties().memory.max_page_size as usize / (4 * numbers);
        if most < PART {
            let bytes = 4 * PART * numbers;
            return Err(format!(
                "{PART} examples need a buffer of {bytes} bytes, and it has none so large"
            ));
        }
        let asked = (self.microbatch / views).max(1).next_multiple_of(PART);
        if examples <= asked.min(most) {
            return Ok(examples.max(1));
        }
        Ok(asked.min(most / PART * PART))
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn count_upload(&mut self, bytes: usize) {
        self.traffic.uploads += 1;
        self.traffic.uploaded_bytes += bytes;
    }

    /// An upload, counted.
    pub(super) fn upload<T: CubeElement>(&mut self, numbers: &[T]) -> Buffer {
        self.count_upload(size_of_val(numbers));
        Buffer::of(&self.client, numbers)
    }

    /// Waits for the device.
    pub(super) fn read(&mut self, buffers: &[&Buffer]) -> Result<Vec<Bytes>, String> {
        self.traffic.reads += 1;
        self.traffic.read_bytes += 4 * buffers.iter().map(|buffer| buffer.length).sum::<usize>();
        let handles = buffers.iter().map(|buffer| buffer.handle.clone()).collect();
        self.client.read(handles).map_err(|error| format!("{error:?}"))
    }

    pub(super) fn failed(&self, reason: &str) -> EngineError {
        EngineError::Failed { device: self.device, reason: reason.to_owned() }
    }

    pub(super) fn check_batch(
        &self,
        parameters: usize,
        batch: Batch<'_>,
    ) -> Result<(), EngineError> {
        self.sizes.check_batch(parameters, batch)
    }

    /// Room for the images of a pass.
    pub(super) fn input(&self) -> Result<Buffer, String> {
        self.placed.as_ref().map(|(_, buffers)| buffers.values[0].clone()).ok_or("no memory".into())
    }

    /// A pass over images that were put in place.
    pub(super) fn pass<'a>(
        &'a self,
        parameters: &'a Buffer,
        input: &'a Buffer,
        parts: (&'a Buffer, usize),
        ledger: (&'a Buffer, u32),
        images: usize,
    ) -> Result<Pass<'a>, String> {
        let (network, buffers) = self.placed.as_ref().ok_or("no memory")?;
        Ok(Pass {
            client: &self.client,
            network,
            buffers,
            parameters,
            input,
            parts,
            ledger,
            images,
        })
    }

    /// Makes an error of a panic in cubecl or a driver.
    pub(super) fn run<R>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<R, String>,
    ) -> Result<R, EngineError> {
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self)));
        let outcome = outcome.unwrap_or_else(|panic: Box<dyn Any + Send>| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(text.unwrap_or("it gave no reason").to_owned())
        });
        outcome.map_err(|reason| {
            // What is on the device is not known any more.
            self.placed = None;
            let device = self.device;
            if !reason.contains("allocate") && !reason.to_lowercase().contains("out of memory") {
                return EngineError::Failed { device, reason };
            }
            EngineError::Memory { device, images: self.microbatch, reason }
        })
    }

    /// Memory for so many images of examples with so many views.
    pub(super) fn place(&mut self, images: usize, views: usize) -> Result<(), String> {
        let fits = |(network, buffers): &(Network, Buffers)| {
            network.views == views && buffers.images >= images
        };
        if !self.placed.as_ref().is_some_and(fits) {
            self.placed = None;
            let network =
                Network::new(&self.architecture, views).map_err(|error| error.to_string())?;
            let buffers = Buffers::new(&self.client, &network, images);
            self.placed = Some((network, buffers));
        }
        Ok(())
    }

    /// The sums of a few images, clipped or not.
    fn sums(
        &mut self,
        parameters: &Buffer,
        batch: Batch<'_>,
        clip_norm: Option<f64>,
    ) -> Result<Found, String> {
        let examples = batch.labels.len();
        let images = examples * batch.views;
        self.place(images, batch.views)?;
        let (input, labels) = (self.upload(batch.images), self.upload(batch.labels));
        let parts = Buffer::new(&self.client, parameters.length * examples.div_ceil(PART).max(1));
        let ledger = Buffer::of(&self.client, &[0_u32; WORDS]);
        let pass = self.pass(parameters, &input, (&parts, 0), (&ledger, 1), images)?;
        pass.forward();
        pass.losses(&labels);
        let buffers = pass.buffers;
        let mut wanted = vec![parts.clone(), buffers.measures.clone(), ledger.clone()];
        match clip_norm {
            Some(clip_norm) => {
                pass.clipped(clip_norm);
                wanted.push(buffers.marks.clone());
            }
            None => pass.plain(),
        }
        let found = self.read(&wanted.iter().collect::<Vec<_>>())?;
        if u32::from_bytes(&found[2])[FAILED] != 0 {
            return Err("it lost a kernel".into());
        }
        let floats = |at: usize, length: usize| f32::from_bytes(&found[at])[..length].to_vec();
        let marks = found.get(3).map_or(Vec::new(), |b| u32::from_bytes(b)[..examples].to_vec());
        Ok(Found { parts: floats(0, parts.length), measures: floats(1, 2 * images), marks })
    }

    /// Shows `take` what was found out about parts of a batch that fit onto the device.
    fn each(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        clip_norm: Option<f64>,
        mut take: impl FnMut(Found),
    ) -> Result<(), EngineError> {
        let pixels = self.sizes.pixels;
        self.run(|engine| {
            let together = engine.examples_together(batch.labels.len(), batch.views)?;
            let parameters = engine.upload(parameters);
            for block in batch.chunks(together, pixels) {
                take(engine.sums(&parameters, block, clip_norm)?);
            }
            Ok(())
        })
    }
}

/// Adds sums of parts in f64.
fn add(sum: &mut [f64], parts: &[f32]) {
    for part in parts.chunks_exact(sum.len().max(1)) {
        sum.iter_mut().zip(part).for_each(|(sum, &value)| *sum += f64::from(value));
    }
}

fn add_measures(metrics: &mut BatchMetrics, measures: &[f32]) {
    for measure in measures.chunks_exact(2) {
        metrics.images += 1;
        metrics.loss_sum += f64::from(measure[0]);
        metrics.correct += usize::from(measure[1] > 0.0);
    }
}

impl GradientEngine for GpuEngine {
    fn describe(&self) -> EngineDescription {
        let Self { name, microbatch, .. } = self;
        let deviation = self.deviation.map_or(String::new(), |deviation| {
            format!(", within {deviation:.0e} of the CPU engine")
        });
        EngineDescription {
            name: format!("{name}, up to {microbatch} images at a time{deviation}"),
            arithmetic: format!("own kernels, {name}"),
        }
    }

    fn forward(
        &mut self,
        parameters: &[f32],
        images: &[f32],
        logits: &mut [f32],
    ) -> Result<(), EngineError> {
        if self.sizes.check_forward(parameters, images, logits)? == 0 {
            return Ok(());
        }
        let (pixels, classes) = (self.sizes.pixels, self.sizes.classes);
        self.run(|engine| {
            let parameters = engine.upload(parameters);
            let together = engine.examples_together(images.len() / pixels, 1)?;
            let blocks = images.chunks(together * pixels);
            for (images, logits) in blocks.zip(logits.chunks_mut(together * classes)) {
                let count = images.len() / pixels;
                engine.place(count, 1)?;
                let input = engine.upload(images);
                // A forward pass has neither sums nor a ledger.
                let pass = engine.pass(&parameters, &input, (&input, 0), (&input, 0), count)?;
                pass.forward();
                let last = pass.buffers.values[pass.network.ops.len()].clone();
                let found = engine.read(&[&last])?;
                logits.copy_from_slice(&f32::from_bytes(&found[0])[..logits.len()]);
            }
            Ok(())
        })
    }

    fn clipped_sum(
        &mut self,
        parameters: &[f32],
        batch: Batch<'_>,
        clip_norm: f64,
    ) -> Result<(ClippedSum, BatchMetrics), EngineError> {
        check_clip_norm(clip_norm)?;
        self.sizes.check_batch(parameters.len(), batch)?;
        self.compare(batch.views)?;
        let mut sum = vec![0.0; parameters.len()];
        let mut metrics = BatchMetrics::default();
        let mut counts = ClipCounts { examples: batch.labels.len(), ..ClipCounts::default() };
        self.each(parameters, batch, Some(clip_norm), |found| {
            add(&mut sum, &found.parts);
            add_measures(&mut metrics, &found.measures);
            counts.clipped += found.marks.iter().filter(|&&mark| mark == 1).count();
            counts.non_finite += found.marks.iter().filter(|&&mark| mark == 2).count();
        })?;
        // The kernels promise it, whatever the examples are.
        if !sum.iter().all(|value| value.is_finite()) {
            let reason = "its sum of clipped gradients is not finite".to_owned();
            return Err(EngineError::Failed { device: self.device, reason });
        }
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
        let mut sum = vec![0.0; parameters.len()];
        let mut metrics = BatchMetrics::default();
        self.each(parameters, images, None, |found| {
            add(&mut sum, &found.parts);
            add_measures(&mut metrics, &found.measures);
        })?;
        Ok((sum.into_iter().map(|value| value as f32).collect(), metrics))
    }

    fn gpu(&mut self) -> Option<&mut GpuEngine> {
        Some(self)
    }
}
