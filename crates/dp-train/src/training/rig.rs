//! Steps of training on made-up examples, to be counted and timed. Nothing here is private, and nothing is trained.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cubecl::dry_run::DryRun;
use cubecl::logging::{LaunchObservation, LaunchObserver};
use mf_core::{Method, Participation, Sgd};

use crate::engine::{
    Batch, ByteImages, Device, DeviceLimits, EngineError, EngineOptions, GpuEngine, GradientEngine,
    Resident, Shown, Traffic, ViewPlace, Work,
};
use crate::mechanism::{Mechanism, MechanismError};
use crate::model::{Architecture, Shape, initial_parameters};
use crate::plan::{Budget, Clipping, DpPlan, PlanRequest};
use crate::seeds::{NoiseKey, RunSeed};

/// What one step asks of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct StepCounts {
    /// Kernels that are started, by name.
    pub kernels: BTreeMap<String, usize>,
    /// All of them.
    pub dispatches: usize,
    /// Those of a step without clipping and noise.
    pub plain_dispatches: usize,
    /// Uploads and reads of the step.
    pub traffic: Traffic,
    /// Memory of the device after the step, data set included.
    pub device_bytes: u64,
    /// Per image.
    pub work: Work,
}

/// An engine with a run on its device.
#[derive(Debug)]
pub struct StepRig {
    engine: GpuEngine,
    resident: Resident,
    architecture: Architecture,
    parameters: Vec<f32>,
    batch: usize,
    plan: DpPlan,
    mechanism: Mechanism,
}

#[derive(Default)]
struct Counter(Mutex<BTreeMap<String, usize>>);

impl LaunchObserver for Counter {
    fn launched(&self, kernel: &'static str) {
        let name = kernel.split('<').next().unwrap_or(kernel).rsplit("::").next();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(name.unwrap_or(kernel).to_owned()).or_default() += 1;
    }
}

impl StepRig {
    /// A run with a data set of so many examples, in batches of so many.
    ///
    /// # Errors
    /// Those of the device.
    pub fn new(
        architecture: &Architecture,
        device: Device,
        options: EngineOptions,
        batch: usize,
        examples: usize,
    ) -> Result<Self, EngineError> {
        let microbatch = if options.microbatch == 0 { batch } else { options.microbatch };
        let options = EngineOptions { microbatch, ..options };
        let mut engine = GpuEngine::new(architecture, device, options)?;
        let parameters = initial_parameters(architecture, RunSeed(1));
        let (channels, height, width) = match architecture.input() {
            Shape::Image { channels, height, width } => (channels, height, width),
            Shape::Vector { features } => (features, 1, 1),
        };
        let numbers = architecture.input().len();
        let bytes: Vec<u8> = (0..examples * numbers).map(|i| (i * 7919 % 251) as u8).collect();
        let classes = architecture.output().len();
        let labels: Vec<u16> = (0..examples).map(|i| (i % classes) as u16).collect();
        let images = ByteImages {
            bytes: &bytes,
            labels: &labels,
            table: &std::array::from_fn(|byte| byte as f32 / 127.5 - 1.0),
            channels,
            height,
            width,
            padding: 0,
            reflect: false,
        };
        let momenta = vec![0.0; parameters.len()];
        let resident = Resident::new(&mut engine, &parameters, &momenta, Some(images))?;
        let planned = planned(batch, parameters.len());
        let (plan, mechanism) = planned.map_err(|error| engine.failed(&error.to_string()))?;
        let architecture = architecture.clone();
        Ok(Self { engine, resident, architecture, parameters, batch, plan, mechanism })
    }

    /// What the device is.
    pub fn name(&self) -> String {
        self.engine.describe().name
    }

    /// Whether steps are timed with products in the form for GPUs, which is the one that is counted.
    pub fn runs_as_on_a_gpu(&self) -> bool {
        self.engine.runs_as_on_a_gpu()
    }

    fn step(&mut self) -> Result<(), EngineError> {
        if self.resident.is_full() {
            self.resident.read(&mut self.engine)?;
        }
        let slots: Vec<Option<u32>> = (0..self.batch as u32).map(Some).collect();
        let place = |example| ViewPlace { example, down: 0, right: 0, mirrored: false };
        let places: Vec<ViewPlace> = (0..self.batch as u32).map(place).collect();
        let shown = Shown::Stored(&places);
        let failed = self.engine.failed("there is no noise for a step");
        if self.mechanism.next_step() == self.plan.participation().steps() {
            self.mechanism = noise_of(&self.plan).map_err(|_| failed.clone())?;
        }
        let sum = self.resident.clipped_sum(&mut self.engine, &slots, shown, CLIP_NORM)?;
        let gradient = self.mechanism.privatize_resident(sum).map_err(|_| failed)?;
        gradient.step(&mut self.engine, self.plan.request().sgd, 0.0)
    }

    /// Seconds of so many steps, from the first to the time when the device has made all of them.
    ///
    /// # Errors
    /// Those of the device.
    pub fn seconds(&mut self, steps: usize) -> Result<f64, EngineError> {
        let start = Instant::now();
        for _ in 0..steps {
            self.step()?;
        }
        self.resident.read(&mut self.engine)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Counts a step without making it: kernels are compiled and dropped, and with them the run. No kernel of any thread
    /// runs meanwhile. Products are counted in the form for GPUs, wherever this is.
    ///
    /// # Errors
    /// Those of the device.
    pub fn counts(mut self) -> Result<StepCounts, EngineError> {
        let _dry = DryRun::new();
        self.engine.run_as_on_a_gpu();
        // The first step asks for memory.
        self.step()?;
        let before = self.engine.traffic();
        let (kernels, stepped) = observed(|| self.step());
        stepped?;
        let traffic = self.engine.traffic() - before;
        let device_bytes = self.engine.device_bytes();
        let numbers = self.architecture.input().len();
        let images = vec![0.0; self.batch * numbers];
        let labels = vec![0; self.batch];
        let batch = Batch::new(&images, &labels);
        // A dry run loses every kernel, which the engine notices when all of them are counted.
        let (plain, _) = observed(|| self.engine.gradient_sum(&self.parameters, batch));
        let once = ["gather", "tally", "update"];
        let beside = |(name, count): (&String, &usize)| {
            once.iter().any(|once| name.to_lowercase().starts_with(once)).then_some(*count)
        };
        let beside: usize = kernels.iter().filter_map(beside).sum();
        Ok(StepCounts {
            dispatches: kernels.values().sum(),
            // Images come from the host there, and from the data set in a step.
            plain_dispatches: plain.values().sum::<usize>() - sent(&plain) + beside,
            kernels,
            traffic,
            device_bytes,
            work: GpuEngine::work(&self.architecture)?,
        })
    }

    /// What the device can do at most. Takes some seconds.
    pub fn limits(&self) -> DeviceLimits {
        self.engine.limits()
    }
}

const CLIP_NORM: f64 = 1.0;

/// A plan like those of the paper, for as many steps as a measurement has, and its noise.
fn planned(batch_size: usize, dim: usize) -> Result<(DpPlan, Mechanism), Box<dyn Error>> {
    let request = PlanRequest::new(
        Method::Bsr { bands: 16 },
        Sgd::new(1.0, 0.9)?,
        Participation::epochs(10, 100)?,
        Budget { epsilon: 4.0, delta: 1e-5 },
        Clipping { batch_size, clip_norm: CLIP_NORM },
        dim,
    );
    let plan = request.plan()?;
    let mechanism = noise_of(&plan)?;
    Ok((plan, mechanism))
}

fn noise_of(plan: &DpPlan) -> Result<Mechanism, MechanismError> {
    Mechanism::new(plan, NoiseKey::fixed(RunSeed(1)))
}

fn sent(kernels: &BTreeMap<String, usize>) -> usize {
    kernels.iter().find(|(name, _)| name.eq_ignore_ascii_case("arrive")).map_or(0, |(_, n)| *n)
}

/// The kernels that some work starts, and what it returns.
fn observed<R>(work: impl FnOnce() -> R) -> (BTreeMap<String, usize>, R) {
    let counter = Arc::new(Counter::default());
    let watching = LaunchObservation::new(counter.clone());
    let result = work();
    drop(watching);
    let counts = counter.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (counts, result)
}
