//! CIFAR-10 as PNGs: row `i` of a PNG holds the 1,024 pixels of record `i`.

use std::io::Cursor;

use anyhow::{Context, ensure};
use png::{BitDepth, ColorType, Decoder};

use cifar_convnet::data::cifar10::SHAPE;

/// The records of the binary format, label, red, green, blue, from a PNG and the labels of its rows.
/// Nothing is lost: both hold the same bytes. About 0.3 s for 10,000 records.
///
/// # Errors
/// If it is not a PNG of that kind with one row per label.
pub(super) fn to_records(file: &[u8], labels: &[u8]) -> anyhow::Result<Vec<u8>> {
    let plane = SHAPE.height * SHAPE.width;
    let mut reader = Decoder::new(Cursor::new(file)).read_info().context("it is not a PNG")?;
    let info = reader.info();
    let (width, height) = (info.width as usize, info.height as usize);
    let kind = (info.color_type, info.bit_depth);
    ensure!(
        (width, height) == (plane, labels.len()) && kind == (ColorType::Rgb, BitDepth::Eight),
        "it is {width} x {height} {kind:?}, not {plane} x {} in 8-bit RGB",
        labels.len()
    );
    let mut records = Vec::with_capacity(labels.len() * (1 + SHAPE.numbers()));
    for (index, &label) in labels.iter().enumerate() {
        let row = reader.next_row().with_context(|| format!("row {index} cannot be decoded"))?;
        let row = row.with_context(|| format!("it ends before row {index}"))?;
        records.push(label);
        for channel in 0..SHAPE.channels {
            records.extend(row.data().iter().skip(channel).step_by(SHAPE.channels));
        }
    }
    Ok(records)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A PNG of this kind with the given rows of interleaved red, green and blue.
    pub(in super::super) fn drawn(rows: &[Vec<u8>]) -> Vec<u8> {
        let mut file = vec![];
        let mut encoder = png::Encoder::new(&mut file, 1024, rows.len() as u32);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&rows.concat()).unwrap();
        writer.finish().unwrap();
        file
    }

    #[test]
    fn pixels_become_planes() {
        let row = |first: u8| (0..1024).flat_map(|i| [first, i as u8, (i / 4) as u8]).collect();
        let records = to_records(&drawn(&[row(7), row(8)]), &[3, 4]).unwrap();
        assert_eq!(records.len(), 2 * 3073);
        assert_eq!(records[..3], [3, 7, 7]);
        assert_eq!(records[3073..][..2], [4, 8]);
        let green: Vec<u8> = (0..1024).map(|i| i as u8).collect();
        assert_eq!(records[1 + 1024..][..1024], green);
        assert_eq!(records[1 + 2048..][1023], 255);
    }

    #[test]
    fn another_png_is_refused() {
        let good = drawn(&[vec![0; 3072]]);
        assert!(to_records(&good, &[1, 2]).unwrap_err().to_string().contains("1024 x 1 "));
        assert!(to_records(b"GIF89a", &[1]).is_err());
        assert!(to_records(&good[..good.len() / 2], &[1]).is_err());
    }
}
