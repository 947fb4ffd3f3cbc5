//! A contact sheet: some images of every class on one page.

use anyhow::Context;
use png::{BitDepth, ColorType, Encoder};

use cifar_convnet::data::{Dataset, Shape};

/// Every pixel of an image is this many pixels wide and high on the sheet.
const ZOOM: usize = 2;

/// White pixels between images.
const GAP: usize = 4;

/// A PNG with one row per class and the first `columns` training images of it; places are left white
/// where there are fewer.
///
/// # Errors
/// If there is nothing to show or the sheet would be too large for a PNG.
pub(crate) fn png(data: &Dataset, columns: usize) -> anyhow::Result<Vec<u8>> {
    let Shape { channels, height, width } = data.shape;
    let (cell_width, cell_height) = (width * ZOOM + GAP, height * ZOOM + GAP);
    let (rows, columns) = (data.classes.len(), columns.clamp(1, 100));
    let (sheet_width, sheet_height) = (columns * cell_width + GAP, rows * cell_height + GAP);
    let mut pixels = vec![255; sheet_width * sheet_height * 3];
    let mut shown = vec![0; rows];
    let mut image = vec![0.0; data.shape.numbers()];
    for (index, &label) in data.train.labels().iter().enumerate() {
        let row = usize::from(label);
        if shown[row] == columns {
            continue;
        }
        let (left, top) = (GAP + shown[row] * cell_width, GAP + row * cell_height);
        shown[row] += 1;
        data.train.decode(&[index as u32], &mut image);
        for y in 0..height * ZOOM {
            for x in 0..width * ZOOM {
                let at = ((top + y) * sheet_width + left + x) * 3;
                for (channel, value) in pixels[at..at + 3].iter_mut().enumerate() {
                    // A grey image has the same plane for all three.
                    let plane = channel.min(channels - 1) * height * width;
                    // From -1 to 1, which gives every byte back.
                    let seen = image[plane + y / ZOOM * width + x / ZOOM];
                    *value = ((seen + 1.0) * 127.5).round() as u8;
                }
            }
        }
    }
    let mut file = vec![];
    let mut encoder = Encoder::new(
        &mut file,
        u32::try_from(sheet_width).context("the sheet is too wide")?,
        u32::try_from(sheet_height).context("the sheet is too high")?,
    );
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(file)
}
