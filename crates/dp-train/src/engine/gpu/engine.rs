//! The engine: an open device, a network on it, and the way there and back.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use cubecl::bytes::Bytes;
use cubecl::client::Client;
use cubecl::prelude::CubeElement;

use super::adapter::{self, Opened};
use super::buffers::{Buffer, Buffers};
use super::kernels::lanes::Form;
use super::ledger::Ledger;
use super::network::Network;
use super::pass::{PART, Pass};
use super::traffic::Traffic;
use crate::engine::batch::Batch;
use crate::engine::device::Device;
use crate::engine::error::EngineError;
use crate::engine::gradient_engine::GradientEngine;
use crate::engine::options::EngineOptions;
use crate::engine::panics::reason_of;
use crate::engine::sizes::Sizes;
use crate::model::Architecture;

/// Images that go through the network together if none are asked for: 0.6 GB for the paper's ConvNet, whose batch of 500
/// they hold.
const DEFAULT_MICROBATCH: usize = 512;

/// The most images: cubes along one axis of a grid are counted in 16 bits.
const MOST_IMAGES: usize = 32_768;

/// The engine of a GPU: kernels of its own for the layers of an architecture.
pub struct GpuEngine {
    pub(super) device: Device,
    pub(super) name: String,
    /// What makes programs out of kernels there.
    pub(super) compiler: String,
    pub(super) client: Client,
    /// How products are made on it.
    pub(super) form: Form,
    pub(super) architecture: Architecture,
    pub(super) sizes: Sizes,
    pub(super) microbatch: usize,
    /// The network for the views of the last batch, and its memory.
    pub(super) placed: Option<(Network, Buffers)>,
    /// Images that there was to be memory for when it was last asked for; 0 before.
    asked: usize,
    /// The views that it was compared with the CPU engine for, if it is to be.
    pub(super) compared: Option<Vec<usize>>,
    /// How far its sums were from those of the CPU engine then.
    pub(super) deviation: Option<f64>,
    traffic: Traffic,
    /// Its number in this process: a run stays with its engine.
    pub(super) number: u64,
}

static ENGINES: AtomicU64 = AtomicU64::new(0);

/// Without the way to the device, which has no form for people.
impl fmt::Debug for GpuEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GpuEngine({}, {:?})", self.name, self.architecture)
    }
}

impl GpuEngine {
    /// Opens the device and compares it with the CPU engine on made-up examples. `options.threads` is for the CPU;
    /// `options.convolution` and `options.portable` mean nothing here.
    ///
    /// # Errors
    /// [`EngineError::NoLogits`] unless the architecture ends with a vector, [`EngineError::Microbatch`] for too
    /// large ones, [`EngineError::Unavailable`] without the device, [`EngineError::Disagrees`] if it computes something else
    /// than the CPU engine, and if one of them fails.
    pub fn open(
        architecture: &Architecture,
        device: Device,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let mut engine = Self::new(architecture, device, options)?;
        engine.compared = Some(Vec::new());
        engine.compare(1)?;
        Ok(engine)
    }

    /// The device without a comparison: for what is counted and timed.
    ///
    /// # Errors
    /// [`EngineError::NoLogits`] unless the architecture ends with a vector, [`EngineError::Microbatch`] for too
    /// large ones, [`EngineError::Unavailable`] without the device.
    pub(crate) fn new(
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
        let Opened { client, name, compiler, form } = adapter::open(device, options.adapter)?;
        let architecture = architecture.clone();
        let (placed, compared, deviation) = (None, None, None);
        Ok(Self {
            device,
            name,
            compiler,
            client,
            form,
            architecture,
            sizes,
            microbatch,
            placed,
            asked: 0,
            compared,
            deviation,
            traffic: Traffic::default(),
            number: ENGINES.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// An engine as one that can keep a whole run on its device, if it is such a one.
    pub fn of<'a>(engine: &'a mut (dyn GradientEngine + 'static)) -> Option<&'a mut Self> {
        (engine as &mut dyn Any).downcast_mut()
    }

    /// What went to the device and came back since the engine was opened, besides kernels.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// How many of some examples, of so many views, go through the network together: all, or whole parts of no more images
    /// than were asked for and than every buffer has room for.
    pub(super) fn examples_together(&self, examples: usize, views: usize) -> Result<usize, String> {
        let network = self.network(views)?;
        let values = network.lengths.iter().copied().max().unwrap_or(1) * views;
        let sums = network.parameters.div_ceil(PART);
        let numbers = values.max(network.held_row).max(network.slots).max(sums).max(1);
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

    /// That the sums of all parts of a batch fit into one buffer.
    ///
    /// # Errors
    /// [`EngineError::Parts`] if they do not.
    pub(crate) fn check_parts(&self, examples: usize) -> Result<(), EngineError> {
        let most = self.client.properties().memory.max_page_size;
        let bytes = |parts: usize| 4 * (self.sizes.parameters * parts) as u64;
        let needed = bytes(examples.div_ceil(PART));
        if needed <= most {
            return Ok(());
        }
        let fitting = PART * (most / bytes(1)) as usize;
        Err(EngineError::Parts { device: self.device, examples, bytes: needed, most, fitting })
    }

    /// The form of its products.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Makes products in another form, which no device needs.
    pub(super) fn set_form(&mut self, form: Form) {
        self.placed = None;
        self.form = form;
    }

    fn network(&self, views: usize) -> Result<Network, String> {
        Network::new(&self.architecture, views, self.form).map_err(|error| error.to_string())
    }

    /// An upload, counted.
    pub(super) fn upload<T: CubeElement>(&mut self, numbers: &[T]) -> Buffer {
        self.traffic.uploads += 1;
        self.traffic.uploaded_bytes += size_of_val(numbers);
        Buffer::of(&self.client, numbers)
    }

    /// Waits for the device.
    pub(super) fn read(&mut self, buffers: &[&Buffer]) -> Result<Vec<Bytes>, String> {
        self.traffic.reads += 1;
        self.traffic.read_bytes += 4 * buffers.iter().map(|buffer| buffer.length).sum::<usize>();
        let handles = buffers.iter().map(|buffer| buffer.handle.clone()).collect();
        self.client.read(handles).map_err(|error| format!("{error:?}"))
    }

    pub(crate) fn failed(&self, reason: &str) -> EngineError {
        EngineError::Failed { device: self.device, reason: reason.to_owned() }
    }

    pub(super) fn check_batch(&self, batch: Batch<'_>) -> Result<(), EngineError> {
        self.sizes.check_batch(self.sizes.parameters, batch)
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
        ledger: (&'a Ledger, u32),
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
        let outcome = outcome.unwrap_or_else(|panic| Err(reason_of(&*panic)));
        outcome.map_err(|reason| {
            // What is on the device is not known any more.
            self.placed = None;
            let device = self.device;
            if !reason.contains("allocate") && !reason.to_lowercase().contains("out of memory") {
                return EngineError::Failed { device, reason };
            }
            // The first batch may be smaller than what was asked for.
            let images = if self.asked == 0 { self.microbatch } else { self.asked };
            EngineError::Memory { device, images: images.min(self.microbatch), reason }
        })
    }

    /// Memory for so many images of examples with so many views.
    pub(super) fn place(&mut self, images: usize, views: usize) -> Result<(), String> {
        let fits = |(network, buffers): &(Network, Buffers)| {
            network.views == views && buffers.images >= images
        };
        if !self.placed.as_ref().is_some_and(fits) {
            self.placed = None;
            self.asked = images;
            let network = self.network(views)?;
            let buffers = Buffers::new(&self.client, &network, images);
            self.placed = Some((network, buffers));
        }
        Ok(())
    }
}
