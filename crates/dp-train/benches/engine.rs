//! Samples per second of the CPU engine on the paper's ConvNet, beside the machine's sgemm.
//!
//! `cargo bench -p dp-train --bench engine` takes about a minute. Forward, plain and private
//! gradients, direct and Winograd convolutions alternate with a 1024^3 sgemm made of the engine's own
//! tiles, and medians are printed. GFLOP/s count the useful work of a direct convolution, 230.1
//! MFLOP per example for forward and backward, so Winograd can be above the peak.
//!
//! With `--features flex` (or `ndarray`, `gpu`) the burn engine runs beside it, and
//! `BANDROOT_BENCH=burn` leaves out all but that. Speed on real GPUs was not measured.

use std::hint::black_box;
use std::time::Instant;

use dp_train::engine::{Batch, ConvolutionMethod, Device, Engine, EngineOptions, sgemm_seconds};
use dp_train::model::{convnet, initial_parameters};
use dp_train::seeds::RunSeed;

const MFLOP_PER_EXAMPLE: f64 = 230.1;
const ROUNDS: usize = 5;

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// The most memory that the process has had, in MB, where the system says.
fn peak_memory() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kb| kb / 1024.0)
}

/// The devices of burn that are built in and there, each beside the CPU engine in the same rounds.
fn burn(parameters: &[f32], images: &[f32], labels: &[u32]) {
    let convnet = convnet::convnet();
    // Some devices are too slow for more.
    let devices = [(Device::Flex, 256), (Device::Ndarray, 8), (Device::Gpu, 256)];
    for (device, batch) in devices {
        let options = EngineOptions::default();
        let mut burn = match device.engine(&convnet, options) {
            Ok(engine) => engine,
            Err(error) => {
                println!("{device}: {error}");
                continue;
            }
        };
        let mut native = Device::Cpu.engine(&convnet, options).expect("the preset fits");
        let one = Batch { images: &images[..batch * 3072], labels: &labels[..batch] };
        let mut times: [[Vec<f64>; 3]; 2] = Default::default();
        let mut logits = vec![0.0; batch * 10];
        for round in 0..ROUNDS + 1 {
            for (engine, times) in [&mut native, &mut burn].into_iter().zip(&mut times) {
                let taken = [
                    seconds(|| engine.forward(parameters, one.images, &mut logits).expect("fits")),
                    seconds(|| drop(black_box(engine.gradient_sum(parameters, one)))),
                    seconds(|| drop(black_box(engine.clipped_sum(parameters, one, 1.0)))),
                ];
                if round > 0 {
                    times.iter_mut().zip(taken).for_each(|(all, t)| all.push(t));
                }
            }
        }
        for (engine, times) in [native, burn].iter().zip(times) {
            let [forward, plain, private] = times.map(|t| batch as f64 / median(t));
            println!(
                "batch {batch}: forward {forward:.1}/s, plain {plain:.1}/s, private {private:.1}/s: {}",
                engine.description()
            );
        }
    }
}

fn main() {
    let convnet = convnet::convnet();
    let parameters = initial_parameters(&convnet, RunSeed(1));
    let images: Vec<f32> =
        (0..500 * 3072).map(|i| (i * 7919 % 2017) as f32 / 1008.5 - 1.0).collect();
    let labels: Vec<u32> = (0..500).map(|i| i % 10).collect();
    if cfg!(feature = "burn") {
        burn(&parameters, &images, &labels);
    }
    if std::env::var("BANDROOT_BENCH").is_ok_and(|what| what == "burn") {
        return;
    }
    println!(
        "{:>8} {:>7} {:>5} {:>9} {:>9} {:>9} {:>13} {:>9} {:>12} {:>9}",
        "method",
        "threads",
        "batch",
        "forward/s",
        "plain/s",
        "private/s",
        "private/plain",
        "GFLOP/s",
        "sgemm GFLOP/s",
        "fraction"
    );
    let mut rates = Vec::new();
    for (method, name) in
        [(ConvolutionMethod::Direct, "direct"), (ConvolutionMethod::Winograd, "winograd")]
    {
        for batch in [64, 256, 500] {
            let mut engines = [1, 2].map(|threads| {
                let options =
                    EngineOptions { threads, convolution: method, ..EngineOptions::default() };
                Engine::new(&convnet, options).expect("the preset fits")
            });
            let mut logits = vec![0.0; batch * 10];
            let mut times: [[Vec<f64>; 4]; 2] = Default::default();
            for round in 0..ROUNDS + 1 {
                for (engine, times) in engines.iter_mut().zip(&mut times) {
                    let images = &images[..batch * 3072];
                    let one = Batch { images, labels: &labels[..batch] };
                    let taken = [
                        seconds(|| engine.forward(&parameters, images, &mut logits).expect("fits")),
                        seconds(|| {
                            black_box(engine.gradient_sum(&parameters, one).expect("fits"));
                        }),
                        seconds(|| {
                            black_box(engine.clipped_sum(&parameters, one, 1.0).expect("fits"));
                        }),
                        sgemm_seconds(engine.threads()),
                    ];
                    // The first round allocates.
                    if round > 0 {
                        times.iter_mut().zip(taken).for_each(|(all, t)| all.push(t));
                    }
                }
            }
            for (engine, times) in engines.iter().zip(times) {
                let [forward, plain, private, sgemm] = times.map(median);
                let rate = |t: f64| batch as f64 / t;
                let gflops = MFLOP_PER_EXAMPLE * rate(private) / 1e3;
                let peak = engine.threads() as f64 * 2.0 * 1.024_f64.powi(3) / sgemm;
                println!(
                    "{name:>8} {:>7} {batch:>5} {:>9.0} {:>9.0} {:>9.0} {:>13.2} {gflops:>9.1} {peak:>12.1} {:>9.2}",
                    engine.threads(),
                    rate(forward),
                    rate(plain),
                    rate(private),
                    plain / private,
                    gflops / peak
                );
                rates.push((name, engine.threads(), batch, rate(private)));
            }
        }
    }
    for pair in rates.chunks(2) {
        let [one, two] = pair else { continue };
        println!("{} batch {}: two threads are {:.2} x one", one.0, one.2, two.3 / one.3);
    }
    if let Some(peak) = peak_memory() {
        println!("peak memory {peak:.0} MB");
    }
}
