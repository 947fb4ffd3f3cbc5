//! The same run on every device: the noise is that of the plan, the gradients differ by rounding.
#![cfg(feature = "flex")]

use std::io::Write;

use dp_train::engine::{Batch, Device, EngineError, EngineOptions};
use dp_train::model::{Architecture, Layer, Shape, initial_parameters};
use dp_train::plan::{DpPlan, PlanRequest, StrategyFor};
use dp_train::seeds::{NoiseKey, RunSeed};
use dp_train::training::Training;
use mf_core::{Method, Sgd};

const SEED: RunSeed = RunSeed(11);
const EXAMPLES: usize = 12;
const STEPS: usize = 6;

fn architecture() -> Architecture {
    let conv = |in_channels, out_channels, stride| Layer::Conv2d {
        in_channels,
        out_channels,
        kernel: 3,
        stride,
        padding: 1,
        groups: 1,
    };
    let layers = vec![
        conv(2, 4, 1),
        Layer::Relu,
        Layer::MaxPool2d { kernel: 2, stride: 2 },
        conv(4, 20, 2),
        Layer::GroupNorm { groups: 2 },
        Layer::Tanh,
        Layer::Flatten,
        Layer::Linear { in_features: 80, out_features: 5 },
    ];
    Architecture::new(Shape::Image { channels: 2, height: 7, width: 6 }, layers).unwrap()
}

/// The parameters after each step of a run of two epochs.
fn run(device: Device) -> Result<Vec<Vec<f32>>, EngineError> {
    let architecture = architecture();
    let options = EngineOptions { microbatch: 3, ..EngineOptions::default() };
    let mut engine = device.engine(&architecture, options)?;
    let plan = DpPlan::new(PlanRequest {
        sgd: Sgd::new(0.999, 0.9).unwrap(),
        learning_rates: None,
        workload_column: None,
        strategy_for: StrategyFor::default(),
        method: Method::Bsr { bands: 3 },
        steps: STEPS,
        min_separation: 3,
        max_participations: Some(2),
        clip_norm: 0.5,
        batch_size: 4,
        epsilon: 4.0,
        delta: 1e-5,
        neighbouring: Default::default(),
        sampling: Default::default(),
        examples: None,
        accountant: Default::default(),
        dim: architecture.parameter_count(),
        keep_rows: None,
    })
    .unwrap();
    let pixels: Vec<f32> =
        (0..EXAMPLES * 84).map(|i| (i * 7919 % 1009) as f32 / 504.5 - 1.0).collect();
    let start = initial_parameters(&architecture, SEED);
    let key = NoiseKey::fixed(SEED);
    let mut training = Training::new(plan, start, EXAMPLES as u32, 0.1, SEED, key).unwrap();
    let mut history = Vec::new();
    while !training.is_finished() {
        training
            .step(|parameters, batch, sum| -> Result<_, Box<dyn std::error::Error>> {
                let images: Vec<f32> =
                    batch.iter().flat_map(|&i| pixels[i as usize * 84..][..84].to_vec()).collect();
                let labels: Vec<u32> = batch.iter().map(|i| i % 5).collect();
                let batch = Batch::new(&images, &labels);
                *sum = engine.clipped_sum(parameters, batch, 0.5)?.0;
                Ok(())
            })
            .unwrap();
        history.push(training.parameters().to_vec());
    }
    Ok(history)
}

fn check(device: Device, found: &[Vec<f32>]) {
    let expected = run(Device::Cpu).unwrap();
    assert_eq!((found.len(), expected.len()), (STEPS, STEPS));
    for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let size = expected.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let pairs = found.iter().zip(expected);
        let error = pairs.map(|(f, e)| f64::from(f - e).powi(2)).sum::<f64>().sqrt() / size;
        assert!(error < 1e-5, "{device}, step {step}: {error:e}");
    }
    // The noise is large here: without the same noise this could not be.
    let moved = expected[0].iter().zip(&expected[STEPS - 1]);
    let moved = moved.map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
    assert!(moved > 0.1, "{moved}");
}

#[test]
fn runs_on_the_cpu_agree() {
    check(Device::Flex, &run(Device::Flex).unwrap());
    if cfg!(feature = "ndarray") {
        check(Device::Ndarray, &run(Device::Ndarray).unwrap());
    }
}

#[test]
fn a_run_on_the_gpu_agrees() {
    if !cfg!(feature = "gpu") {
        return;
    }
    let found = run(Device::Gpu).map(|history| (Device::Gpu, history));
    match found.or_else(|_| run(Device::GpuSoftware).map(|h| (Device::GpuSoftware, h))) {
        Ok((device, history)) => check(device, &history),
        Err(error) => {
            assert!(std::env::var_os("BANDROOT_REQUIRE_GPU").is_none(), "{error}");
            // Not eprintln: the test harness would swallow it.
            let _ = writeln!(std::io::stderr(), "\nNOT TESTED on a GPU: {error}\n");
        }
    }
}
