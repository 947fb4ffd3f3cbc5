//! IDX: bytes in a grid, behind a magic number and the sizes, big-endian; usually compressed.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use anyhow::{Context, ensure};
use flate2::read::MultiGzDecoder;

/// A grid of bytes, `sizes[0]` items of `sizes[1] * sizes[2] * ...` bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Idx {
    pub(super) sizes: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

/// The content of a file, uncompressed if its name ends with `.gz`.
fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let file = BufReader::new(File::open(path)?);
    let compressed = path.extension().is_some_and(|extension| extension == "gz");
    Ok(if compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) })
}

/// The content of a file, uncompressed if its name ends with `.gz`, of at most so many bytes: a compressed
/// file of a few kilobytes could otherwise fill the memory.
pub(super) fn read_file(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    read_whole(open(path)?, longest)
}

/// All that a reader gives, if it is not too long.
pub(super) fn read_whole(reader: impl Read, longest: u64) -> io::Result<Vec<u8>> {
    let mut content = vec![];
    reader.take(longest.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > longest {
        let reason = format!("it holds more than {longest} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(content)
}

/// The sizes of the grid in a file, and nothing of its items.
///
/// # Errors
/// If it is no grid of so many dimensions.
pub(super) fn read_sizes(path: &Path, dimensions: u8) -> anyhow::Result<Vec<usize>> {
    let mut start = vec![];
    open(path)?.take(header_len(dimensions) as u64).read_to_end(&mut start)?;
    sizes(&start, dimensions)
}

/// The length of a file with a grid of these sizes, if there can be one.
pub(super) fn whole_len(sizes: &[usize]) -> Option<usize> {
    let items = sizes.iter().copied().try_fold(1usize, usize::checked_mul)?;
    items.checked_add(4 + 4 * sizes.len())
}

fn header_len(dimensions: u8) -> usize {
    4 + 4 * usize::from(dimensions)
}

/// The sizes of a grid, from the start of its file.
fn sizes(content: &[u8], dimensions: u8) -> anyhow::Result<Vec<usize>> {
    let magic = [0, 0, 8, dimensions];
    let start = content.get(..4).context("it is too short for an IDX file")?;
    ensure!(
        start == magic,
        "it starts with {start:?}, but an IDX file of bytes in {dimensions} dimensions with {magic:?}"
    );
    let sizes = content.get(4..header_len(dimensions)).context("it ends before its sizes")?;
    let size = |size: &[u8]| u32::from_be_bytes([size[0], size[1], size[2], size[3]]) as usize;
    Ok(sizes.chunks_exact(4).map(size).collect())
}

impl Idx {
    /// Reads a grid of `dimensions` dimensions.
    ///
    /// # Errors
    /// If it is no such grid, or has too few or too many bytes: the item at which it ends.
    pub(super) fn parse(content: &[u8], dimensions: u8) -> anyhow::Result<Self> {
        let sizes = sizes(content, dimensions)?;
        let header = header_len(dimensions);
        let item = sizes[1..].iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        let item = item.filter(|&bytes| bytes > 0).context("its sizes make no sense")?;
        let expected = item.checked_mul(sizes[0]).context("its sizes make no sense")?;
        let found = content.len() - header;
        ensure!(
            found >= expected,
            "it ends in item {} of {} (counted from 0): {found} bytes, not {expected}",
            found / item,
            sizes[0]
        );
        ensure!(
            found <= expected,
            "it goes on after its {} items: {found} bytes, not {expected}",
            sizes[0]
        );
        Ok(Self { sizes, bytes: content[header..].to_vec() })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The file that holds this grid.
    pub(in super::super) fn written(sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
        let mut content = vec![0, 0, 8, sizes.len() as u8];
        sizes.iter().for_each(|size| content.extend(size.to_be_bytes()));
        content.extend(bytes);
        content
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes: Vec<u8> = (0..24).collect();
        let grid = Idx::parse(&written(&[4, 3, 2], &bytes), 3).unwrap();
        assert_eq!(grid, Idx { sizes: vec![4, 3, 2], bytes });
    }

    #[test]
    fn a_small_file_that_unpacks_to_more_than_any_data_set_is_refused() {
        use flate2::{Compression, read::GzEncoder};
        let endless = GzEncoder::new(io::repeat(0).take((1 << 20) + 2), Compression::fast());
        let error = read_whole(MultiGzDecoder::new(BufReader::new(endless)), 1 << 20).unwrap_err();
        assert!(error.to_string().contains("more than 1048576 bytes"), "{error}");
        assert_eq!(read_whole(io::repeat(7).take(5), 5).unwrap(), [7; 5]);
    }

    #[test]
    fn damage_is_refused_with_the_item() {
        let good = written(&[4, 3, 2], &[7; 24]);
        let refused = |content: &[u8], dimensions: u8, word: &str| {
            let message = format!("{:#}", Idx::parse(content, dimensions).unwrap_err());
            assert!(message.contains(word), "{message}");
        };
        refused(&good[..good.len() - 7], 3, "item 2 of 4");
        refused(&[&good[..], &[1]].concat(), 3, "after its 4 items");
        refused(&good, 1, "1 dimensions");
        refused(&good[..3], 3, "too short");
        refused(&good[..9], 3, "before its sizes");
        refused(&written(&[u32::MAX; 3], &[]), 3, "make no sense");
        refused(&written(&[5, 0, 2], &[]), 3, "make no sense");
    }
}
