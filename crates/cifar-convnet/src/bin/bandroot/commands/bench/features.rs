//! `bandroot bench features`: how fast features of pictures are made.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use anyhow::Context;
use cifar_convnet::data::features::{Extraction, Features, Kind};
use cifar_convnet::data::textures::Textures;
use cifar_convnet::files;
use serde::Serialize;

use super::median;
use crate::cli::BenchFeatures;
use crate::terminal::output;

/// What `--json` prints. The speed is the median over the rounds.
#[derive(Debug, Serialize)]
struct FeatureSpeed {
    images_per_second: f64,
    features: String,
    /// Numbers that a picture becomes.
    numbers: usize,
    threads: usize,
    images: usize,
    rounds: usize,
}

pub(super) fn run(arguments: &BenchFeatures) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = arguments.threads.map_or(cores, usize::from);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let speed = pool.context("no threads to compute with")?.install(|| measure(arguments, threads));
    if arguments.json {
        return output::print(&files::json(&speed)?);
    }
    let FeatureSpeed { images_per_second, features, numbers, images, rounds, .. } = speed;
    output::print(&format!(
        "{images_per_second:.0} images/s: {features}\n{numbers} numbers of 3 x 32 x 32, {threads} threads, {images} images, \
         median of {rounds} rounds\n"
    ))
}

fn measure(arguments: &BenchFeatures, threads: usize) -> FeatureSpeed {
    let images = arguments.images as usize;
    let data = Textures { train: images, test: 0, seed: 0 }.draw();
    let kind = Kind::Scattering;
    let (scales, angles) = (arguments.scales.into(), arguments.angles.into());
    let features = Features { kind, scales, angles };
    let extraction = Extraction::new(features, data.shape);
    let round = |_| {
        let start = Instant::now();
        black_box(extraction.features(&data.train, false));
        start.elapsed().as_secs_f64()
    };
    let rounds = arguments.rounds as usize;
    let seconds = (0..=rounds).map(round).skip(1).collect();
    FeatureSpeed {
        images_per_second: images as f64 / median(seconds),
        features: features.to_string(),
        numbers: extraction.shape().numbers(),
        threads,
        images,
        rounds,
    }
}
