//! The cost of one noise step for the paper's network (307,498 parameters), as a multiple of the
//! time that memory needs.
//!
//! `cargo bench -p dp-train --bench noise` takes about a minute and 2.5 GB. Per step, the plain
//! recurrence must read `p - 1` rows of history, write one, and read and write the target: `p + 2`
//! rows of floats. The limit is a copy on all cores that reads and writes this many bytes in total.
//! Timings are medians over repetitions that alternate with the copy. The last column is the share of the
//! step in the clipped sum of 500 examples that it follows in training, timed in the same run.

use std::hint::black_box;
use std::time::Instant;

use dp_train::engine::{Batch, Engine, EngineOptions, GradientEngine};
use dp_train::model::{Architecture, Layer, Shape, initial_parameters};
use dp_train::noise::{NoiseStream, normal};
use dp_train::seeds::{NoiseKey, RunSeed};
use mf_core::{Factorization, Method, Sgd, Workload};
use rayon::prelude::*;

const DIM: usize = 307_498;
const STEPS: usize = 2000;
/// A multiple of the 16 steps that are computed at once.
const STEPS_PER_SAMPLE: usize = 16;
const SAMPLES: usize = 5;

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Copies `bytes / 2` bytes with all cores: `bytes` are touched.
fn copy(source: &[u8], target: &mut [u8], bytes: usize) {
    let mut left = bytes / 2;
    while left > 0 {
        let piece = left.min(source.len());
        let pairs = target[..piece].par_chunks_mut(1 << 20).zip(source.par_chunks(1 << 20));
        pairs.for_each(|(target, source)| target.copy_from_slice(&source[..target.len()]));
        black_box(&target);
        left -= piece;
    }
}

/// The paper's network.
fn convnet() -> Architecture {
    let mut layers = Vec::new();
    for (inner, outer) in [(3, 32), (32, 64), (64, 128)] {
        layers.extend([Layer::conv(inner, outer, 3), Layer::Relu]);
        layers.extend([Layer::conv(outer, outer, 3), Layer::Relu, Layer::max_pool(2)]);
    }
    layers.extend([Layer::Flatten, Layer::linear(2048, 10)]);
    Architecture::new(Shape::Image { channels: 3, height: 32, width: 32 }, layers).unwrap()
}

/// The other part of a training step: the clipped sum of 500 examples.
fn clipped_sum_seconds() -> f64 {
    let convnet = convnet();
    let parameters = initial_parameters(&convnet, RunSeed(1));
    let mut engine = Engine::new(&convnet, EngineOptions::default()).unwrap();
    let images: Vec<f32> = (0..500 * 3072).map(|i| (i * 7 % 255) as f32 / 127.5 - 1.0).collect();
    let labels: Vec<u32> = (0..500).map(|i| i % 10).collect();
    let batch = Batch::new(&images, &labels);
    let mut once = || seconds(|| drop(engine.clipped_sum(&parameters, batch, 1.0).unwrap()));
    once();
    median((0..3).map(|_| once()).collect())
}

fn main() {
    let workload = Workload::sgd(Sgd::new(0.999, 0.9).unwrap(), STEPS).unwrap();
    let mut target = vec![0.0_f64; DIM];
    let source = vec![1_u8; 1 << 28];
    let mut copied = vec![0_u8; 1 << 28];

    let generate = median(
        (0..SAMPLES)
            .map(|step| {
                seconds(|| {
                    (0..DIM.div_ceil(normal::TILE)).into_par_iter().for_each(|tile| {
                        let mut z = [0.0; normal::TILE];
                        normal::fill(&[1; 32], step, tile * normal::TILE, &mut z);
                        black_box(&z);
                    });
                })
            })
            .collect(),
    );
    let clipped_sum = clipped_sum_seconds();
    println!("one row of Z: {:.2} ms, {} threads", 1e3 * generate, rayon::current_num_threads());
    println!("one clipped sum of 500 examples: {:.0} ms", 1e3 * clipped_sum);
    println!(
        "{:>5} {:>10} {:>12} {:>12} {:>8} {:>16} {:>16}",
        "bands", "MB", "limit ms", "step ms", "ratio", "ratio without Z", "of a sum, %"
    );
    for bands in [1, 10, 100, 2000] {
        let factorization = Factorization::new(workload.clone(), Method::Bsr { bands }).unwrap();
        let key = NoiseKey::fixed(RunSeed(1));
        let mut stream = NoiseStream::new(factorization.strategy().clone(), DIM, key).unwrap();
        let timed = STEPS_PER_SAMPLE * SAMPLES;
        // The history is full, or as full as it gets.
        let warm = (bands + 32).div_ceil(16) * 16;
        for _ in 0..warm.min(STEPS - timed) {
            stream.add_next(1.0, &mut target).unwrap();
        }
        let bytes = 4 * DIM * (bands + 2);
        let (mut limit, mut step) = (Vec::new(), Vec::new());
        for _ in 0..SAMPLES {
            limit.push(seconds(|| copy(&source, &mut copied, bytes)));
            let many = seconds(|| {
                for _ in 0..STEPS_PER_SAMPLE {
                    stream.add_next(1.0, &mut target).unwrap();
                }
            });
            step.push(many / STEPS_PER_SAMPLE as f64);
        }
        let (limit, step) = (median(limit), median(step));
        println!(
            "{bands:>5} {:>10.1} {:>12.2} {:>12.2} {:>8.2} {:>16.2} {:>16.2}",
            bytes as f64 / 1e6,
            1e3 * limit,
            1e3 * step,
            step / limit,
            (step - generate).max(0.0) / limit,
            100.0 * step / clipped_sum
        );
    }
}
