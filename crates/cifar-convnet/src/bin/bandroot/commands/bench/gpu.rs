//! What a step of training asks of a GPU, and how much of the device's own limits it reaches.

use std::collections::BTreeMap;

use dp_train::engine::{
    Batch, BurnEngine, Device, DeviceLimits, EngineOptions, GradientEngine, Work,
};
use dp_train::training::rig::{StepCounts, StepRig};
use serde::Serialize;

use super::{Model, median};
use crate::cli::BenchEngine;
use crate::terminal::output;
use crate::terminal::table::Table;
use cifar_convnet::{config, files};

/// Examples of the data set that is on the device: those of CIFAR-10.
const EXAMPLES: usize = 50_000;

/// Devices that nobody has measured here: TFLOP/s in f32 and GB/s as their makers state them, microseconds per launch as
/// wgpu needs on such machines.
const OTHERS: [(&str, f64, f64, f64); 3] = [
    ("an integrated GPU, 2 TFLOP/s, 60 GB/s", 2.0, 60.0, 30.0),
    ("a laptop's GPU, 15 TFLOP/s, 256 GB/s", 15.0, 256.0, 20.0),
    ("a data centre's GPU, 19.5 TFLOP/s, 1555 GB/s", 19.5, 1555.0, 15.0),
];

/// What kernels of this kind reach of both limits: register tiles without matrix units, a third of the operations; streams,
/// seven tenths of the bytes.
const REACHED: (f64, f64) = (0.33, 0.7);

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct GpuReport {
    device: String,
    model: String,
    batch_size: usize,
    /// Of whole private steps, noise left out, which the CPU makes meanwhile.
    step_examples_per_second: f64,
    /// Whether steps are timed with products in the form for GPUs, of which the counts are.
    runs_as_on_a_gpu: bool,
    /// Of private gradients through burn's operations on the same device, with `--beside-burn`.
    burn_examples_per_second: Option<f64>,
    /// The device's own limits, as cubecl measures them.
    device_gflops: Option<f64>,
    device_gigabytes_per_second: Option<f64>,
    launch_microseconds: Option<f64>,
    /// What these limits allow: multiplications of the model as it is written, the bytes below, and the launches.
    roof_examples_per_second: Option<f64>,
    fraction_of_roof: Option<f64>,
    dispatches: usize,
    plain_dispatches: usize,
    kernels: BTreeMap<String, usize>,
    uploads: usize,
    uploaded_bytes: usize,
    reads: usize,
    device_bytes: u64,
    /// Counted, those with the empty parts of tiles included.
    megaflops_per_example: f64,
    /// As the model is written.
    model_megaflops_per_example: f64,
    megabytes_per_example: f64,
    /// Of other devices, by the counts above: not measured.
    estimates: Vec<Estimate>,
}

/// The speed of a device that is not here, if its kernels reach what they usually do of its limits.
#[derive(Debug, Serialize)]
struct Estimate {
    device: &'static str,
    examples_per_second: f64,
}

/// A batch takes the longer of its operations and its bytes, and its launches after that.
fn estimates(work: Work, dispatches: usize, batch_size: usize) -> Vec<Estimate> {
    let estimate = |(device, teraflops, gigabytes, microseconds): (_, f64, f64, f64)| {
        let operations = work.flops / (REACHED.0 * teraflops * 1e12);
        let bytes = work.bytes / (REACHED.1 * gigabytes * 1e9);
        let launches = dispatches as f64 * microseconds * 1e-6 / batch_size as f64;
        Estimate { device, examples_per_second: (operations.max(bytes) + launches).recip() }
    };
    OTHERS.map(estimate).into()
}

/// Measures every model and batch on a GPU, and prints what it found.
pub(super) fn run(arguments: &BenchEngine, device: Device) -> anyhow::Result<()> {
    for model in &arguments.model {
        for &batch in &arguments.batch {
            let model = Model::new(model, batch as usize)?;
            let report = measure(arguments, device, &model, batch as usize)?;
            output::print(&if arguments.json { files::json(&report)? } else { text(&report) })?;
        }
    }
    Ok(())
}

fn measure(
    arguments: &BenchEngine,
    device: Device,
    model: &Model,
    batch_size: usize,
) -> anyhow::Result<GpuReport> {
    let architecture = &model.architecture;
    let adapter = config::engine::adapter_number(arguments.adapter.as_deref(), device)?;
    let microbatch = arguments.microbatch.map_or(0, usize::from);
    let options = EngineOptions { adapter, microbatch, ..EngineOptions::default() };
    let examples = EXAMPLES.max(batch_size);
    let rig = || StepRig::new(architecture, device, options, batch_size, examples);
    let StepCounts { kernels, dispatches, plain_dispatches, traffic, device_bytes, work } =
        rig()?.counts()?;
    let mut rig = rig()?;
    let DeviceLimits { flops, bytes, launch } = rig.limits();
    let mut burn = arguments
        .beside_burn
        .then(|| BurnEngine::new(architecture, device, EngineOptions { microbatch: 0, ..options }))
        .transpose()?;
    let batch = Batch::new(&model.images, &model.labels);
    let (mut steps, mut of_burn) = (Vec::new(), Vec::new());
    // The first round compiles and allocates.
    for round in 0..=arguments.rounds {
        let step = rig.seconds(1)?;
        let start = std::time::Instant::now();
        if let Some(burn) = &mut burn {
            burn.clipped_sum(&model.parameters, batch, 1.0)?;
        }
        if round > 0 {
            steps.push(step);
            of_burn.push(start.elapsed().as_secs_f64());
        }
    }
    let rate = |seconds: Vec<f64>| batch_size as f64 / median(seconds);
    let step_examples_per_second = rate(steps);
    let written = architecture.flops().gradient() as f64;
    let roof = flops.zip(bytes).map(|(flops, bytes)| {
        let launches = launch.unwrap_or(0.0) * dispatches as f64 / batch_size as f64;
        ((written / flops).max(work.bytes / bytes).max(launches)).recip()
    });
    Ok(GpuReport {
        device: rig.name(),
        model: model.name.clone(),
        batch_size,
        step_examples_per_second,
        runs_as_on_a_gpu: rig.runs_as_on_a_gpu(),
        burn_examples_per_second: burn.map(|_| rate(of_burn)),
        device_gflops: flops.map(|flops| flops / 1e9),
        device_gigabytes_per_second: bytes.map(|bytes| bytes / 1e9),
        launch_microseconds: launch.map(|seconds| 1e6 * seconds),
        roof_examples_per_second: roof,
        fraction_of_roof: roof.map(|roof| step_examples_per_second / roof),
        dispatches,
        plain_dispatches,
        kernels,
        uploads: traffic.uploads,
        uploaded_bytes: traffic.uploaded_bytes,
        reads: traffic.reads,
        device_bytes,
        megaflops_per_example: work.flops / 1e6,
        model_megaflops_per_example: written / 1e6,
        megabytes_per_example: work.bytes / 1e6,
        estimates: estimates(work, dispatches, batch_size),
    })
}

fn text(report: &GpuReport) -> String {
    let mut table = Table::new(&["per step", "count"]);
    let mut row = |what: &str, count: String| table.push(vec![what.to_owned(), count]);
    row("kernels", report.dispatches.to_string());
    row("kernels without privacy", report.plain_dispatches.to_string());
    row("uploads", report.uploads.to_string());
    row("uploaded MB", format!("{:.2}", report.uploaded_bytes as f64 / 1e6));
    row("reads", report.reads.to_string());
    row("memory of the device, MB", format!("{:.0}", report.device_bytes as f64 / 1e6));
    row("MFLOP per example", format!("{:.1}", report.megaflops_per_example));
    row("MFLOP of the model", format!("{:.1}", report.model_megaflops_per_example));
    row("MB per example", format!("{:.2}", report.megabytes_per_example));
    let number = |number: Option<f64>| number.map_or("?".to_owned(), |n| format!("{n:.1}"));
    let share = report.fraction_of_roof.map_or("?".to_owned(), |share| format!("{share:.2}"));
    let burn = report.burn_examples_per_second.map_or(String::new(), |burn| {
        let ratio = report.step_examples_per_second / burn;
        format!(
            "through burn's operations {burn:.2} examples/s: own kernels are {ratio:.1} x as fast\n"
        )
    });
    let estimates = report.estimates.iter().map(|estimate| {
        format!(
            "estimated, not measured: {}: {:.0} examples/s\n",
            estimate.device, estimate.examples_per_second
        )
    });
    let estimates: String = estimates.collect();
    let form = if report.runs_as_on_a_gpu {
        ""
    } else {
        "counted in tiles, which GPUs run; timed in lanes, for software\n"
    };
    let kernels: Vec<String> =
        report.kernels.iter().map(|(name, count)| format!("{count} {name}")).collect();
    format!(
        "{}, {}, batch {}\n{}kernels: {}\n{form}the device itself: {} GFLOP/s in f32, {} GB/s, {} us per launch\n\
         private steps {:.2} examples/s, of {} at the device's limits: {share}\n{burn}{estimates}",
        report.device,
        report.model,
        report.batch_size,
        table.to_text(),
        kernels.join(", "),
        number(report.device_gflops),
        number(report.device_gigabytes_per_second),
        number(report.launch_microseconds),
        report.step_examples_per_second,
        number(report.roof_examples_per_second),
    )
}
