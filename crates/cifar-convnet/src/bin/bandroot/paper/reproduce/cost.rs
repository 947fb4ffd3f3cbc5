//! What a run will cost on this machine, from a few steps that are really made.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cifar_convnet::convnet;
use dp_train::engine::{Batch, Engine, EngineOptions, GradientEngine};
use dp_train::model::initial_parameters;
use dp_train::noise::NoiseStream;
use dp_train::plan::PlanRequest;
use dp_train::seeds::{NoiseKey, RunSeed};
use mf_core::{Factorization, Method, Sgd, Workload};

use crate::sweep::cell::Cell;

/// Steps of every batch size that are timed, after one that is not.
const STEPS: usize = 2;

/// Diagonals of the noise that is timed.
const BANDS: usize = 64;

/// Steps of the noise that are timed: a multiple of the 16 that are computed at once.
const NOISE_STEPS: usize = 32;

/// Examples that a run on CIFAR-10 is tested on, once per epoch.
const TEST_EXAMPLES: f64 = 10_000.0;

/// Examples of a batch that is evaluated.
const TEST_BATCH: usize = 500;

/// Seconds of the parts of a run.
#[derive(Debug, Clone)]
pub(crate) struct Calibration {
    /// Of a clipped sum, by batch size.
    gradients: BTreeMap<usize, f64>,
    /// Of one test example.
    test_example: f64,
    /// Of a step of independent noise.
    noise: f64,
    /// More for every diagonal of the strategy.
    noise_per_band: f64,
}

impl Calibration {
    /// Measures what these cells need; some seconds.
    pub(crate) fn measure(cells: &[Cell]) -> anyhow::Result<Self> {
        let architecture = convnet::convnet();
        let mut engine = Engine::new(&architecture, EngineOptions::default())?;
        let parameters = initial_parameters(&architecture, RunSeed(0));
        let pixels = architecture.shapes().first().map_or(0, |shape| shape.len());
        let classes = architecture.shapes().last().map_or(0, |shape| shape.len());
        let pixel_value = |i: usize| ((i * 37) % 255) as f32 / 127.5 - 1.0;
        let mut gradients = BTreeMap::new();
        for batch_size in cells.iter().map(|cell| cell.config.training.batch_size) {
            if gradients.contains_key(&batch_size) {
                continue;
            }
            let images: Vec<f32> = (0..batch_size * pixels).map(pixel_value).collect();
            let labels: Vec<u32> = (0..batch_size).map(|i| (i % classes) as u32).collect();
            let mut step = || -> anyhow::Result<()> {
                let batch = Batch::new(&images, &labels);
                engine.clipped_sum(&parameters, batch, 1.0)?;
                Ok(())
            };
            step()?;
            gradients.insert(batch_size, seconds(STEPS, step)?);
        }
        let images: Vec<f32> = (0..TEST_BATCH * pixels).map(pixel_value).collect();
        let mut logits = vec![0.0; TEST_BATCH * classes];
        let mut test = || Ok(engine.forward(&parameters, &images, &mut logits)?);
        test()?;
        let test_example = seconds(1, test)? / TEST_BATCH as f64;
        let dim = architecture.parameter_count();
        let noise = noise_seconds(Method::Identity, dim)?;
        let banded = noise_seconds(Method::Bsr { bands: BANDS }, dim)?;
        let noise_per_band = ((banded - noise) / BANDS as f64).max(0.0);
        Ok(Self { gradients, test_example, noise, noise_per_band })
    }

    /// What a cell will take from the start.
    pub(crate) fn cost(&self, cell: &Cell) -> Duration {
        let Ok(request) = cell.config.plan_request() else { return Duration::ZERO };
        let gradients = self.gradients.get(&request.batch_size).copied().unwrap_or(0.0);
        let steps = request.steps as f64;
        // The first steps have less history to read than the rest.
        let bands = bands(&request) as f64;
        let lags = bands * (steps - bands / 2.0).max(steps / 2.0);
        let noise = steps * self.noise + lags * self.noise_per_band;
        let tests = steps / request.min_separation as f64 * TEST_EXAMPLES * self.test_example;
        Duration::from_secs_f64(steps * gradients + noise + tests)
    }

    /// One line for people.
    pub(crate) fn describe(&self) -> String {
        let rates = self.gradients.iter().map(|(batch_size, seconds)| {
            format!("{:.0}/s in batches of {batch_size}", *batch_size as f64 / seconds)
        });
        let rates: Vec<String> = rates.collect();
        format!(
            "measured here: gradients {}; noise {:.1} ms a step and {:.2} ms a band",
            rates.join(", "),
            1e3 * self.noise,
            1e3 * self.noise_per_band
        )
    }
}

/// Diagonals whose history a step of the noise reads.
fn bands(request: &PlanRequest) -> usize {
    match request.method {
        Method::Identity => 1,
        Method::Bsr { bands } | Method::Aof { bands, .. } => bands,
        _ => request.steps,
    }
}

fn noise_seconds(method: Method, dim: usize) -> anyhow::Result<f64> {
    let workload = Workload::sgd(Sgd::new(1.0, 0.9)?, 2 * BANDS + 2 * NOISE_STEPS)?;
    let strategy = Factorization::new(workload, method)?.strategy().clone();
    let mut noise = NoiseStream::new(strategy, dim, NoiseKey::fixed(RunSeed(0)))?;
    let mut target = vec![0.0; dim];
    for _ in 0..BANDS {
        noise.add_next(1.0, &mut target)?;
    }
    seconds(NOISE_STEPS, || Ok(noise.add_next(1.0, &mut target)?))
}

/// The mean time of some calls.
fn seconds(calls: usize, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    for _ in 0..calls {
        call()?;
    }
    Ok(start.elapsed().as_secs_f64() / calls as f64)
}
