//! Damaged data sets: refused, or as many images and labels as they say.

use std::io::Write;

use flate2::read::MultiGzDecoder;
use flate2::{Compression, write::GzEncoder};

use super::idx::{self, Idx, tests::written};
use super::{cifar10, fashion_mnist};
use crate::fuzz::{Kind, Target};

#[test]
fn damaged_cifar_records_are_refused_or_whole() {
    const RECORDS: usize = 2;
    let record = |label: u8| std::iter::once(label).chain((0..3072).map(|i| (i % 251) as u8));
    let target = Target {
        name: "cifar10",
        kind: Kind::Binary,
        corpus: vec![record(9).chain(record(0)).collect(), record(1).chain(record(3)).collect()],
        inputs: 20_000,
        cost: 1,
        most_bytes: 1 << 16,
    };
    target.run(|input| {
        let (mut images, mut labels) = (vec![], vec![]);
        if cifar10::read_records(input.bytes, RECORDS, &mut images, &mut labels).is_err() {
            return Ok(false);
        }
        let whole = images.len() == RECORDS * 3072
            && labels.len() == RECORDS
            && labels.iter().all(|&label| usize::from(label) < cifar10::CLASSES.len());
        if whole { Ok(true) } else { Err(format!("{} labels, {labels:?}", labels.len())) }
    });
}

fn grids() -> Vec<Vec<u8>> {
    let images: Vec<u8> = (0..24).collect();
    vec![written(&[4, 3, 2], &images), written(&[2, 2, 6], &images), written(&[1, 1, 1], &[5])]
}

/// Whether a grid has the bytes that its sizes announce.
fn is_whole(grid: &Idx) -> Result<bool, String> {
    let whole = grid.sizes.len() == 3 && grid.sizes.iter().product::<usize>() == grid.bytes.len();
    if whole { Ok(true) } else { Err(format!("{:?}, {} bytes", grid.sizes, grid.bytes.len())) }
}

#[test]
fn a_damaged_idx_file_is_refused_or_whole() {
    let target = Target {
        name: "idx",
        kind: Kind::Binary,
        corpus: grids(),
        inputs: 50_000,
        cost: 1,
        most_bytes: 1 << 16,
    };
    target.run(|input| Idx::parse(input.bytes, 3).map_or(Ok(false), |grid| is_whole(&grid)));
}

#[test]
fn a_damaged_compressed_idx_file_is_refused_or_whole() {
    let compressed = |content: &Vec<u8>| {
        let mut encoder = GzEncoder::new(vec![], Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    };
    let clothes = fashion_mnist::SHAPE.numbers();
    let image = written(&[1, 28, 28], &vec![0; clothes]);
    let target = Target {
        name: "idx gz",
        kind: Kind::Binary,
        corpus: grids().iter().chain([&image]).map(compressed).collect(),
        inputs: 10_000,
        cost: 1,
        // The window of the decoder, and what a few bytes unpack to.
        most_bytes: 1 << 20,
    };
    target.run(|input| {
        let content = idx::read_whole(MultiGzDecoder::new(input.bytes), 64 << 20);
        let grid = content.ok().and_then(|content| Idx::parse(&content, 3).ok());
        grid.map_or(Ok(false), |grid| is_whole(&grid))
    });
}
