//! `bandroot bench engine`: how fast gradients are on this machine, beside what it can do at most.

mod features;
mod sweep;
#[cfg(feature = "gpu")]
mod gpu;

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use anyhow::{Context, bail};
use cifar_convnet::{BadArgument, convnet};
use clap::ValueEnum;
use dp_train::engine::{Batch, ConvolutionMethod, Device, GradientEngine, sgemm_seconds};
use dp_train::model::{Architecture, initial_parameters};
use dp_train::seeds::RunSeed;
use serde::Serialize;

use crate::cli::{Bench, BenchEngine, BenchModel};
use crate::terminal::table::Table;
use crate::terminal::{output, progress};
use cifar_convnet::config;
use cifar_convnet::files;
use cifar_convnet::run::memory;

/// What `--json` prints. Speeds are medians over the rounds; GFLOP/s count the work as it is written
/// ([`Architecture::flops`]), so Winograd's saved multiplications may lift them above the peak.
#[derive(Debug, Serialize)]
struct EngineSpeeds {
    private_samples_per_second: f64,
    plain_samples_per_second: f64,
    forward_samples_per_second: f64,
    /// Of a product of 1024 x 1024 matrices per thread: the speed limit of this machine.
    sgemm_gflops: f64,
    private_gflops: f64,
    plain_gflops: f64,
    forward_gflops: f64,
    /// `private_gflops / sgemm_gflops`.
    fraction_of_peak: f64,
    threads: usize,
    batch_size: usize,
    /// Of the process after all three kinds of pass; `null` where the system does not say.
    peak_memory_bytes: Option<u64>,
    device: Device,
    /// What computed, with its instructions.
    description: String,
    model: String,
    convolution: ConvolutionMethod,
    rounds: usize,
}

/// Runs one of the benchmarks.
pub(crate) fn run(command: &Bench) -> anyhow::Result<()> {
    match command {
        Bench::Engine(arguments) => engine(arguments),
        Bench::Features(arguments) => features::run(arguments),
        Bench::Sweep(arguments) => sweep::run(arguments),
        Bench::SweepWorker(arguments) => sweep::work(arguments),
        Bench::SweepRun(arguments) => sweep::sleep(arguments),
    }
}

fn engine(arguments: &BenchEngine) -> anyhow::Result<()> {
    let (gpus, others): (Vec<Device>, Vec<Device>) = arguments
        .device
        .iter()
        .partition(|device| matches!(device, Device::Gpu | Device::GpuSoftware));
    for device in gpus {
        bench_gpu(arguments, device)?;
    }
    if others.is_empty() {
        return Ok(());
    }
    let arguments = &BenchEngine { device: others, ..arguments.clone() };
    let mut reports = Vec::new();
    for &convolution in &arguments.convolution {
        for &batch in &arguments.batch {
            reports.extend(measure(arguments, convolution, batch as usize)?);
        }
    }
    if arguments.json {
        let objects: anyhow::Result<Vec<String>> = reports.iter().map(files::json).collect();
        return output::print(&objects?.concat());
    }
    output::print(&if let [report] = &reports[..] { text(report) } else { table(&reports) })
}

/// GPUs have limits of their own, and steps that are counted.
fn bench_gpu(arguments: &BenchEngine, device: Device) -> anyhow::Result<()> {
    #[cfg(feature = "gpu")]
    return gpu::run(arguments, device);
    #[cfg(not(feature = "gpu"))]
    {
        let _ = arguments;
        Err(dp_train::engine::EngineError::NotBuilt { device }.into())
    }
}

/// An engine and what was measured of it: the seconds of forward, plain, private and sgemm in every round.
struct Measured<'a> {
    model: &'a Model,
    device: Device,
    engine: Box<dyn GradientEngine>,
    threads: usize,
    seconds: [Vec<f64>; 4],
}

/// A model with a batch for it.
struct Model {
    name: String,
    architecture: Architecture,
    parameters: Vec<f32>,
    images: Vec<f32>,
    labels: Vec<u32>,
}

impl Model {
    fn new(model: &BenchModel, size: usize) -> anyhow::Result<Self> {
        let architecture = match model {
            BenchModel::Convnet => convnet::convnet(),
            BenchModel::ConvnetTanh => convnet::convnet_tanh(),
            BenchModel::Config(path) if !path.is_file() => bail!(BadArgument(format!(
                "--model takes convnet, convnet-tanh or a config file, and there is no {}",
                path.display()
            ))),
            BenchModel::Config(path) => {
                let config = config::file::read(path, &[])?;
                config
                    .model
                    .architecture(&config.data)
                    .with_context(|| path.display().to_string())?
            }
        };
        let parameters = initial_parameters(&architecture, RunSeed(1));
        let (images, labels) = examples(&architecture, size);
        Ok(Self { name: model.to_string(), architecture, parameters, images, labels })
    }
}

/// All devices, models and numbers of threads, the passes of each and sgemm taking turns, so that all meet the same
/// disturbances.
fn measure(
    arguments: &BenchEngine,
    convolution: ConvolutionMethod,
    size: usize,
) -> anyhow::Result<Vec<EngineSpeeds>> {
    let models: Vec<Model> = arguments
        .model
        .iter()
        .map(|model| Model::new(model, size))
        .collect::<anyhow::Result<_>>()?;
    let mut engines = engines(arguments, convolution, &models)?;
    let rounds = arguments.rounds as usize;
    let classes = models.iter().map(|model| model.architecture.output().len()).max().unwrap_or(0);
    let mut logits = vec![0.0; size * classes];
    let mut pass = |measured: &mut Measured<'_>| -> anyhow::Result<[f64; 3]> {
        let Measured {
            model: Model { architecture, parameters, images, labels, .. }, engine, ..
        } = measured;
        let (batch, logits) =
            (Batch::new(images, labels), &mut logits[..size * architecture.output().len()]);
        let start = Instant::now();
        engine.forward(parameters, images, logits)?;
        let forward = start.elapsed().as_secs_f64();
        let start = Instant::now();
        black_box(engine.gradient_sum(parameters, batch)?);
        let plain = start.elapsed().as_secs_f64();
        let start = Instant::now();
        black_box(engine.clipped_sum(parameters, batch, 1.0)?);
        Ok([forward, plain, start.elapsed().as_secs_f64()])
    };
    let bar = progress::bar(rounds as u64 + 1).with_message("rounds");
    // The first round allocates. The memory is read before sgemm takes its own.
    for measured in &mut engines {
        pass(measured)?;
    }
    bar.inc(1);
    let peak_memory_bytes = memory::peak();
    for _ in 0..rounds {
        for measured in &mut engines {
            let [forward, plain, private] = pass(measured)?;
            let round = [forward, plain, private, sgemm_seconds(measured.threads)];
            measured.seconds.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = |measured: Measured<'_>| {
        let [forward, plain, private, sgemm] = measured.seconds.map(median).map(f64::recip);
        let rate = |batches: f64| size as f64 * batches;
        let flops = measured.model.architecture.flops();
        let gflops = |flops: u64, batches: f64| flops as f64 * rate(batches) / 1e9;
        let sgemm_gflops = measured.threads as f64 * 2.0 * 1.024_f64.powi(3) * sgemm;
        let private_gflops = gflops(flops.gradient(), private);
        EngineSpeeds {
            private_samples_per_second: rate(private),
            plain_samples_per_second: rate(plain),
            forward_samples_per_second: rate(forward),
            sgemm_gflops,
            private_gflops,
            plain_gflops: gflops(flops.gradient(), plain),
            forward_gflops: gflops(flops.forward, forward),
            fraction_of_peak: private_gflops / sgemm_gflops,
            threads: measured.threads,
            batch_size: size,
            peak_memory_bytes,
            device: measured.device,
            description: measured.engine.describe().name,
            model: measured.model.name.clone(),
            convolution,
            rounds,
        }
    };
    Ok(engines.into_iter().map(report).collect())
}

/// An engine for every device, model and number of threads.
fn engines<'a>(
    arguments: &BenchEngine,
    convolution: ConvolutionMethod,
    models: &'a [Model],
) -> anyhow::Result<Vec<Measured<'a>>> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let asked: Vec<Option<usize>> = match &arguments.threads[..] {
        [] => vec![None],
        threads => threads.iter().map(|&threads| Some(threads.into())).collect(),
    };
    let microbatch = arguments.microbatch.map(usize::from);
    let mut engines = Vec::new();
    for &device in &arguments.device {
        for model in models {
            for &threads in &asked {
                let settings = config::engine::Engine {
                    device,
                    adapter: None,
                    threads,
                    convolution,
                    microbatch,
                };
                engines.push(Measured {
                    model,
                    device,
                    engine: settings.build(&model.architecture)?,
                    // The limit is that of the CPU, whatever computes.
                    threads: threads.unwrap_or(cores),
                    seconds: Default::default(),
                });
            }
        }
    }
    Ok(engines)
}

/// Pixels in `[-1, 1)` without any structure, and every class equally often.
fn examples(architecture: &Architecture, size: usize) -> (Vec<f32>, Vec<u32>) {
    let (pixels, classes) = (architecture.input().len(), architecture.output().len());
    let pixel = |i: usize| (i * 7919 % 2017) as f32 / 1008.5 - 1.0;
    let labels = (0..size).map(|i| (i % classes) as u32).collect();
    ((0..size * pixels).map(pixel).collect(), labels)
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.len() / 2;
    if seconds.len() % 2 == 1 {
        seconds[middle]
    } else {
        (seconds[middle - 1] + seconds[middle]) / 2.0
    }
}

fn text(report: &EngineSpeeds) -> String {
    let mut table = Table::new(&["pass", "examples/s", "GFLOP/s", "of sgemm"]);
    for (pass, rate, gflops) in [
        ("forward", report.forward_samples_per_second, report.forward_gflops),
        ("plain gradient", report.plain_samples_per_second, report.plain_gflops),
        ("private gradient", report.private_samples_per_second, report.private_gflops),
    ] {
        let share = gflops / report.sgemm_gflops;
        let cells = [format!("{rate:.0}"), format!("{gflops:.1}"), format!("{share:.2}")];
        table.push(std::iter::once(pass.to_owned()).chain(cells).collect());
    }
    let EngineSpeeds { description, batch_size, rounds, .. } = report;
    format!(
        "{description}, batch {batch_size}, medians of {rounds} rounds\n{}sgemm {:.1} GFLOP/s, private / plain {:.2}, peak memory {}\n",
        table.to_text(),
        report.sgemm_gflops,
        report.private_samples_per_second / report.plain_samples_per_second,
        memory::describe(report.peak_memory_bytes),
    )
}

/// One row per measurement, how private gradients scale with the threads, and how models compare.
fn table(reports: &[EngineSpeeds]) -> String {
    let mut table = Table::new(&[
        "model",
        "device",
        "method",
        "threads",
        "batch",
        "forward/s",
        "plain/s",
        "private/s",
        "private/plain",
        "GFLOP/s",
        "sgemm GFLOP/s",
        "fraction",
    ]);
    let mut ratios = String::new();
    for report in reports {
        let rate = |rate: f64| format!("{rate:.0}");
        let (device, method) = (name_of(report.device), name_of(report.convolution));
        let private = report.private_samples_per_second;
        table.push(vec![
            report.model.clone(),
            device.clone(),
            method.clone(),
            report.threads.to_string(),
            report.batch_size.to_string(),
            rate(report.forward_samples_per_second),
            rate(report.plain_samples_per_second),
            rate(private),
            format!("{:.2}", private / report.plain_samples_per_second),
            format!("{:.1}", report.private_gflops),
            format!("{:.1}", report.sgemm_gflops),
            format!("{:.2}", report.fraction_of_peak),
        ]);
        let alike = |other: &&EngineSpeeds| {
            let key =
                |report: &EngineSpeeds| (report.device, report.convolution, report.batch_size);
            key(other) == key(report)
        };
        let model = |other: &&EngineSpeeds| alike(other) && other.model == report.model;
        let threads = |other: &&EngineSpeeds| alike(other) && other.threads == report.threads;
        let EngineSpeeds { batch_size, threads: count, model: name, .. } = report;
        if let Some(first) = reports.iter().find(model).filter(|first| first.threads != *count) {
            ratios += &format!(
                "{name}, {device}, {method}, batch {batch_size}: {count} threads are {:.2} x {}\n",
                private / first.private_samples_per_second,
                first.threads
            );
        }
        if let Some(first) = reports.iter().find(threads).filter(|first| first.model != *name) {
            ratios += &format!(
                "{device}, {method}, batch {batch_size}, {count} threads: {name} is {:.2} x {}\n",
                private / first.private_samples_per_second,
                first.model
            );
        }
    }
    let memory = reports.iter().filter_map(|report| report.peak_memory_bytes).max();
    format!("{}{ratios}peak memory {}\n", table.to_text(), memory::describe(memory))
}

/// The name of a device or method on the command line.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn several_measurements_are_rows_and_say_how_threads_scale() {
        let report = |model: &str, threads, private_samples_per_second| EngineSpeeds {
            private_samples_per_second,
            plain_samples_per_second: 400.0,
            forward_samples_per_second: 900.0,
            sgemm_gflops: 100.0,
            private_gflops: 50.0,
            plain_gflops: 60.0,
            forward_gflops: 70.0,
            fraction_of_peak: 0.5,
            threads,
            batch_size: 64,
            peak_memory_bytes: None,
            device: Device::Cpu,
            description: String::new(),
            model: model.to_owned(),
            convolution: ConvolutionMethod::Direct,
            rounds: 1,
        };
        let text = table(&[report("a", 1, 200.0), report("a", 2, 390.0), report("b", 2, 195.0)]);
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("direct  ")).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert!(rows[1].contains("390") && rows[1].contains("0.97"), "{text}");
        assert!(text.contains("a, cpu, direct, batch 64: 2 threads are 1.95 x 1\n"), "{text}");
        assert!(text.contains("cpu, direct, batch 64, 2 threads: b is 0.50 x a\n"), "{text}");
    }
}
