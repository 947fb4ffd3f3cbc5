//! Damaged data sets: refused, or as many images and labels as they say.

use std::io::Write;

use flate2::read::MultiGzDecoder;
use flate2::{Compression, write::GzEncoder};

use super::idx::{self, Idx, tests::written};
use super::own::{Columns, Form, examples, image_file, npy, parse_table};
use super::{Scaling, Shape, Split, cifar10, fashion_mnist};
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

/// Whether a split has the numbers that its labels announce, all of them finite.
fn is_whole_split(split: &Split, shape: Shape, classes: usize) -> Result<bool, String> {
    let mut seen = vec![0.0; split.len() * shape.numbers()];
    let all: Vec<u32> = (0..split.len() as u32).collect();
    split.decode(&all, &mut seen);
    let finite = seen.iter().all(|x| x.is_finite());
    let labelled = split.labels().iter().all(|&label| usize::from(label) < classes);
    if finite && labelled { Ok(true) } else { Err(format!("{split:?}")) }
}

fn arrays() -> Vec<Vec<u8>> {
    let floats: Vec<u8> = (0..12).flat_map(|i| (i as f32 / 3.0).to_le_bytes()).collect();
    let wide: Vec<u8> = (0..6).flat_map(|i| (f64::from(i) / 3.0).to_be_bytes()).collect();
    vec![
        npy::tests::written("<f4", "(3, 2, 2)", &floats),
        npy::tests::written("<f4", "(1, 2, 2)", &floats[..16]),
        npy::tests::written(">f8", "(1, 2, 2)", &wide[..32]),
    ]
}

/// The examples of an array that can be read and is of 2 x 2 images.
fn from_array(array: anyhow::Result<npy::Array>) -> Option<Split> {
    let shape = Shape { channels: 1, height: 2, width: 2 };
    let scaling = Scaling::new(&[0.5], &[0.25], 1).ok();
    let form = Form { shape, layout: None, scaling };
    let array = array.ok()?;
    let count = array.header.shape.first().copied()?;
    let numbers = examples(array, &form).ok()?;
    Some(Split::new(numbers, vec![0; count], shape))
}

#[test]
fn a_damaged_npy_file_is_refused_or_whole() {
    let target = Target {
        name: "npy",
        kind: Kind::Binary,
        corpus: arrays(),
        inputs: 50_000,
        cost: 1,
        most_bytes: 1 << 16,
    };
    target.run(|input| {
        let split = from_array(npy::Array::read(&mut &input.bytes[..]));
        let shape = Shape { channels: 1, height: 2, width: 2 };
        split.map_or(Ok(false), |split| is_whole_split(&split, shape, 1))
    });
}

#[test]
fn a_damaged_npz_file_is_refused_or_whole() {
    let target = Target {
        name: "npz",
        kind: Kind::Binary,
        corpus: arrays().iter().map(|array| npy::tests::archived("x", array)).collect(),
        inputs: 10_000,
        cost: 1,
        // The window of the decoder.
        most_bytes: 1 << 20,
    };
    target.run(|input| {
        let file = std::io::Cursor::new(input.bytes);
        let array = npy::in_archive(file, "x", |mut reader| npy::Array::read(&mut reader));
        let shape = Shape { channels: 1, height: 2, width: 2 };
        from_array(array).map_or(Ok(false), |split| is_whole_split(&split, shape, 1))
    });
}

#[test]
fn a_damaged_table_is_refused_or_whole() {
    let classes: Vec<String> = ["no", "yes"].map(String::from).into();
    let features: Vec<String> = ["a", "b"].map(String::from).into();
    let scaling = Scaling::new(&[1.0, 2.0], &[0.5], 2).unwrap();
    let columns = Columns { label: "kind".into(), features, scaling };
    let tables = ["a,b,kind\n1,2,no\n-3.5,4e2,yes\n", "kind,b,c,a\nyes,\"1\",x,2\n1,2,y,3\n"];
    let target = Target {
        name: "csv",
        kind: Kind::Text,
        corpus: tables.map(|table| table.as_bytes().to_vec()).into(),
        inputs: 20_000,
        cost: 1,
        // A few times the longest input: the record, trimmed, and the names of the columns.
        most_bytes: 1 << 20,
    };
    target.run(|input| {
        let split = parse_table(input.bytes, &columns, Some(&classes));
        split.map_or(Ok(false), |split| is_whole_split(&split, Shape::vector(2), 2))
    });
}

#[test]
fn a_damaged_image_is_refused_or_resized() {
    let shape = Shape { channels: 3, height: 3, width: 5 };
    let formats = [image::ImageFormat::Png, image::ImageFormat::Jpeg];
    let target = Target {
        name: "image",
        kind: Kind::Binary,
        corpus: formats.map(image_file::tests::drawn).into(),
        inputs: 5_000,
        cost: 4,
        // As many pixels as a few hundred bytes can hold, and what decoding and resizing them takes.
        most_bytes: 256 << 20,
    };
    target.run(|input| {
        let Ok(bytes) = image_file::decode(input.bytes, shape) else { return Ok(false) };
        if bytes.len() == shape.numbers() {
            Ok(true)
        } else {
            Err(format!("{} bytes", bytes.len()))
        }
    });
}
