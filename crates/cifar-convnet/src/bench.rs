//! `bandroot bench engine`: how fast gradients are on this machine, beside what it can do at most.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use clap::{Args, Subcommand, ValueEnum};
use dp_train::engine::{Batch, GradientEngine, sgemm_seconds};
use dp_train::model::{Architecture, convnet, initial_parameters};
use dp_train::seeds::RunSeed;
use serde::Serialize;

use crate::config::{
    self,
    engine::{Convolution, Device},
};
use crate::output;
use crate::table::Table;
use crate::{memory, progress};

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Examples per second: forward, plain gradient, private gradient
    Engine(BenchEngine),
}

#[derive(Debug, Args)]
pub(crate) struct BenchEngine {
    /// What computes; all but cpu need the Cargo feature of that name
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    device: Device,

    /// Examples in a batch
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,

    /// Threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Examples that go through the network together [default: the engine's choice]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    microbatch: Option<u16>,

    /// The model
    #[arg(long, value_enum, default_value_t = Preset::Convnet)]
    model: Preset,

    /// How 3 x 3 convolutions are computed
    #[arg(long, value_enum, default_value_t = Convolution::Winograd)]
    convolution: Convolution,

    /// How often everything is measured, after one round that is not counted
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// A model by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Preset {
    /// The ConvNet of the paper
    Convnet,
    /// The same convolutions with tanh, and two linear layers
    ConvnetTanh,
}

/// What `--json` prints. Speeds are medians over the rounds; GFLOP/s count the work as it is written
/// ([`Architecture::flops`]), so Winograd's saved multiplications may lift them above the peak.
#[derive(Debug, Serialize)]
struct Report {
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
    model: Preset,
    convolution: Convolution,
    rounds: usize,
}

/// Runs one of the benchmarks.
pub(crate) fn run(command: &Bench) -> anyhow::Result<()> {
    let Bench::Engine(arguments) = command;
    let report = measure(arguments)?;
    output::print(&if arguments.json { output::json(&report)? } else { text(&report) })
}

/// Forward, plain, private and sgemm take turns, so that all meet the same disturbances.
fn measure(arguments: &BenchEngine) -> anyhow::Result<Report> {
    let architecture = match arguments.model {
        Preset::Convnet => convnet::convnet(),
        Preset::ConvnetTanh => convnet::convnet_tanh(),
    };
    let settings = config::engine::Engine {
        device: arguments.device,
        threads: arguments.threads.map(usize::from),
        convolution: arguments.convolution,
        microbatch: arguments.microbatch.map(usize::from),
    };
    let mut engine = settings.build(&architecture)?;
    // The limit is that of the CPU, whatever computes.
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = arguments.threads.map_or(cores, usize::from);
    let (size, rounds) = (arguments.batch as usize, arguments.rounds as usize);
    let parameters = initial_parameters(&architecture, RunSeed(1));
    let (images, labels) = examples(&architecture, size);
    let batch = Batch { images: &images, labels: &labels };
    let classes = architecture.shapes().last().map_or(0, |shape| shape.len());
    let mut logits = vec![0.0; size * classes];
    let mut pass = |engine: &mut dyn GradientEngine| -> anyhow::Result<[f64; 3]> {
        let start = Instant::now();
        engine.forward(&parameters, &images, &mut logits)?;
        let forward = start.elapsed().as_secs_f64();
        let start = Instant::now();
        black_box(engine.gradient_sum(&parameters, batch)?);
        let plain = start.elapsed().as_secs_f64();
        let start = Instant::now();
        black_box(engine.clipped_sum(&parameters, batch, 1.0)?);
        Ok([forward, plain, start.elapsed().as_secs_f64()])
    };
    let bar = progress::bar(rounds as u64 + 1).with_message("rounds");
    // The first round allocates. The memory is read before sgemm takes its own.
    pass(&mut *engine)?;
    bar.inc(1);
    let peak_memory_bytes = memory::peak();
    let mut seconds: [Vec<f64>; 4] = Default::default();
    for _ in 0..rounds {
        let [forward, plain, private] = pass(&mut *engine)?;
        let round = [forward, plain, private, sgemm_seconds(threads)];
        seconds.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let [forward, plain, private, sgemm] = seconds.map(median).map(|seconds| 1.0 / seconds);
    let rate = |batches: f64| size as f64 * batches;
    let flops = architecture.flops();
    let gflops = |flops: u64, batches: f64| flops as f64 * rate(batches) / 1e9;
    let sgemm_gflops = threads as f64 * 2.0 * 1.024_f64.powi(3) * sgemm;
    let private_gflops = gflops(flops.gradient(), private);
    Ok(Report {
        private_samples_per_second: rate(private),
        plain_samples_per_second: rate(plain),
        forward_samples_per_second: rate(forward),
        sgemm_gflops,
        private_gflops,
        plain_gflops: gflops(flops.gradient(), plain),
        forward_gflops: gflops(flops.forward, forward),
        fraction_of_peak: private_gflops / sgemm_gflops,
        threads,
        batch_size: size,
        peak_memory_bytes,
        device: arguments.device,
        description: engine.description(),
        model: arguments.model,
        convolution: arguments.convolution,
        rounds,
    })
}

/// Pixels in `[-1, 1)` without any structure, and every class equally often.
fn examples(architecture: &Architecture, size: usize) -> (Vec<f32>, Vec<u32>) {
    let pixels = architecture.shapes()[0].len();
    let classes = architecture.shapes().last().map_or(1, |shape| shape.len());
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

fn text(report: &Report) -> String {
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
    let Report { description, batch_size, rounds, .. } = report;
    format!(
        "{description}, batch {batch_size}, medians of {rounds} rounds\n{}sgemm {:.1} GFLOP/s, private / plain {:.2}, peak memory {}\n",
        table.to_text(),
        report.sgemm_gflops,
        report.private_samples_per_second / report.plain_samples_per_second,
        memory::describe(report.peak_memory_bytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
