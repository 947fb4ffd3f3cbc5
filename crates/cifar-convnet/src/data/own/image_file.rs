//! One PNG or JPEG as the bytes that a model is trained on.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use anyhow::{Context, ensure};
use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder, ImageReader, Limits};

use super::super::Shape;

/// The longest side of an image that is read.
const LONGEST_SIDE: u32 = 16_384;

/// No PNG or JPEG has more pixels per byte: deflate makes at most 1032 bytes of one, each of at most 8
/// pixels. A few damaged bytes could otherwise announce gigabytes.
const MOST_PIXELS_PER_BYTE: u64 = 1032 * 8;

/// The endings of the names of image files.
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

/// Whether the name of a file is that of a PNG or JPEG.
pub(crate) fn is_image(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending)))
}

/// Reads an image of any size and stretches it to the shape: grey for one channel, red, green and blue for
/// three. A photograph is turned as its camera says; transparency is dropped.
///
/// # Errors
/// The file, and why it cannot be read.
pub(crate) fn read(path: &Path, shape: Shape) -> anyhow::Result<Vec<u8>> {
    fs::read(path)
        .context("it cannot be read")
        .and_then(|file| decode(&file, shape))
        .with_context(|| format!("{} is not a usable image", path.display()))
}

/// As [`read`], of the content of a file.
pub(crate) fn decode(file: &[u8], shape: Shape) -> anyhow::Result<Vec<u8>> {
    let mut reader = ImageReader::new(Cursor::new(file)).with_guessed_format()?;
    ensure!(reader.format().is_some(), "it is neither a PNG nor a JPEG");
    let mut limits = Limits::default();
    limits.max_image_width = Some(LONGEST_SIDE);
    limits.max_image_height = Some(LONGEST_SIDE);
    // Eight bytes for a pixel of the deepest kind, twice over, and some for tables.
    limits.max_alloc = Some((16 * MOST_PIXELS_PER_BYTE * file.len() as u64).max(1 << 20));
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions();
    ensure!(
        u64::from(width) * u64::from(height) <= MOST_PIXELS_PER_BYTE * file.len() as u64,
        "it says it has {width} x {height} pixels, which do not fit into {} bytes",
        file.len()
    );
    let orientation = decoder.orientation()?;
    let mut decoded = DynamicImage::from_decoder(decoder)?;
    decoded.apply_orientation(orientation);
    let (width, height) = (u32::try_from(shape.width)?, u32::try_from(shape.height)?);
    let resize = |image: DynamicImage| {
        if (image.width(), image.height()) == (width, height) {
            return image;
        }
        image.resize_exact(width, height, FilterType::Triangle)
    };
    // Grey or colour first: a palette or an alpha channel has no place between pixels.
    Ok(match shape.channels {
        1 => resize(DynamicImage::ImageLuma8(decoded.into_luma8())).into_bytes(),
        _ => {
            let pixels = resize(DynamicImage::ImageRgb8(decoded.into_rgb8())).into_bytes();
            let plane = |channel: usize| pixels.iter().skip(channel).step_by(3).copied();
            (0..3).flat_map(plane).collect()
        }
    })
}

#[cfg(test)]
pub(in super::super) mod tests {
    use image::{ImageFormat, RgbImage};

    use super::*;

    /// An image file of 4 x 2 pixels: red on the left, green on the right.
    pub(in super::super::super) fn drawn(format: ImageFormat) -> Vec<u8> {
        let image = RgbImage::from_fn(4, 2, |x, _| {
            image::Rgb(if x < 2 { [255, 0, 0] } else { [0, 255, 0] })
        });
        let mut file = Cursor::new(vec![]);
        image.write_to(&mut file, format).unwrap();
        file.into_inner()
    }

    #[test]
    fn pixels_become_planes_of_the_wanted_size() {
        let file = drawn(ImageFormat::Png);
        let shape = |channels, height, width| Shape { channels, height, width };
        let planes = decode(&file, shape(3, 2, 4)).unwrap();
        assert_eq!(planes[..8], [255, 255, 0, 0, 255, 255, 0, 0]);
        assert_eq!(planes[8..16], [0, 0, 255, 255, 0, 0, 255, 255]);
        assert_eq!(planes[16..], [0; 8]);
        let small = decode(&file, shape(3, 1, 2)).unwrap();
        assert_eq!(small.len(), 6);
        assert!(small[0] > 200 && small[1] < 60 && small[3] > 200, "{small:?}");
        let grey = decode(&file, shape(1, 2, 4)).unwrap();
        assert_eq!(grey.len(), 8);
        assert!(grey[0] < grey[3], "green is brighter than red: {grey:?}");
        let jpeg = decode(&drawn(ImageFormat::Jpeg), shape(3, 2, 4)).unwrap();
        assert!(jpeg[0] > 128 && jpeg[3] < 128, "{jpeg:?}");
    }

    #[test]
    fn what_is_no_image_is_refused() {
        let shape = Shape { channels: 3, height: 2, width: 2 };
        let message = format!("{:#}", decode(b"hello", shape).unwrap_err());
        assert!(message.contains("neither a PNG nor a JPEG"), "{message}");
        let file = drawn(ImageFormat::Png);
        assert!(decode(&file[..file.len() / 2], shape).is_err());
        let mut jpeg = drawn(ImageFormat::Jpeg);
        // The sizes stand five bytes after the marker of the frame.
        let frame = jpeg.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
        jpeg[frame + 5..frame + 9].copy_from_slice(&[0x3f, 0xff, 0x3f, 0xff]);
        let message = format!("{:#}", decode(&jpeg, shape).unwrap_err());
        assert!(message.contains("16383 x 16383"), "{message}");
    }
}
