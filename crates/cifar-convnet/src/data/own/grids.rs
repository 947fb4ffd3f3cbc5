//! A data set in IDX files, as MNIST is: grey images and their labels, plain or compressed.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::super::idx::{self, Idx};
use super::super::{Shape, Split};
use super::label;

/// The file of this name, or the compressed one where only that exists.
pub(crate) fn locate(folder: &Path, name: &str) -> PathBuf {
    let (plain, compressed) = (folder.join(name), folder.join(format!("{name}.gz")));
    if !plain.exists() && compressed.exists() { compressed } else { plain }
}

fn remedy(path: &Path) -> String {
    format!(
        "{} cannot be used; data.folder and the file names of [data] say where it is",
        path.display()
    )
}

/// The number and shape of the images of a file, from its header.
///
/// # Errors
/// If it is no such file.
pub(crate) fn facts(path: &Path) -> anyhow::Result<(usize, Shape)> {
    let sizes = idx::read_sizes(path, 3).with_context(|| remedy(path))?;
    Ok((sizes[0], Shape { channels: 1, height: sizes[1], width: sizes[2] }))
}

/// Reads images and their labels.
///
/// # Errors
/// The file and the record that cannot be used.
pub(crate) fn load(
    [images, labels]: &[PathBuf; 2],
    shape: Shape,
    classes: &[String],
) -> anyhow::Result<Split> {
    let grid = |path: &Path, dimensions: u8| {
        let read = || -> anyhow::Result<Idx> {
            let sizes = idx::read_sizes(path, dimensions)?;
            let longest = idx::whole_len(&sizes).context("its sizes make no sense")?;
            Idx::parse(&idx::read_file(path, longest as u64)?, dimensions)
        };
        read().with_context(|| remedy(path))
    };
    let (_, found) = facts(images)?;
    ensure!(
        found == shape,
        "{} holds images of {found}, but data.size is that of {shape}",
        images.display()
    );
    let (pixels, numbers) = (grid(images, 3)?, grid(labels, 1)?);
    ensure!(
        pixels.sizes[0] == numbers.bytes.len(),
        "{} holds {} images, and {} holds {} labels",
        images.display(),
        pixels.sizes[0],
        labels.display(),
        numbers.bytes.len()
    );
    let records = numbers.bytes.iter().enumerate();
    let labels = records
        .map(|(record, &number)| label(record, i128::from(number), classes))
        .collect::<anyhow::Result<_>>()
        .with_context(|| format!("{} cannot be used", labels.display()))?;
    Ok(Split::new(pixels.bytes, labels, shape))
}
