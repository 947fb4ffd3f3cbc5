//! Fashion-MNIST: 70,000 images of clothes in four IDX files.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::checksum::KnownFile;
use super::idx::{self, Idx};
use super::{Dataset, Shape, Split};

/// The folder among the data sets.
pub const FOLDER: &str = "fashion-mnist";

/// Where Debian's package puts the files.
pub const INSTALLED: &str = "/usr/share/datasets/fashion-mnist";

/// The four files. The sums are of the uncompressed content, as packers compress differently, and were
/// taken from Debian's package 0.0~git20200523.55506a9-1.
pub const FILES: [KnownFile; 4] = [
    KnownFile { file: "train-images-idx3-ubyte", md5: "f4a8712d7a061bf5bd6d2ca38dc4d50a" },
    KnownFile { file: "train-labels-idx1-ubyte", md5: "9018921c3c673c538a1fc5bad174d6f9" },
    KnownFile { file: "t10k-images-idx3-ubyte", md5: "8181f5470baa50b63fa0f6fddb340f0a" },
    KnownFile { file: "t10k-labels-idx1-ubyte", md5: "15d484375f8d13e6eb1aabb0c3f46965" },
];

/// No file is longer, uncompressed: the largest has 47 MB.
const LONGEST: u64 = 64 << 20;

/// In configs and on the command line.
pub const NAME: &str = "fashion-mnist";

/// What the images of the real data set look like.
pub const SHAPE: Shape = Shape { channels: 1, height: 28, width: 28 };

/// The names of the labels 0 to 9.
pub const CLASSES: [&str; 10] = [
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
];

/// Reads the four files under `datasets`, or those of Debian's package where there are none. About
/// 0.5 s.
///
/// # Errors
/// If a file is missing or is not a grid of the right sizes, or a label is not below 10.
pub fn load(datasets: &Path) -> anyhow::Result<Dataset> {
    load_folder(&locate(datasets))
}

/// Checks the MD5 of the four files and gives their paths.
///
/// # Errors
/// The first file that is missing, damaged or different.
pub fn verify(datasets: &Path) -> anyhow::Result<Vec<PathBuf>> {
    verify_folder(&locate(datasets))
}

/// As [`verify`], in the folder with the files themselves.
///
/// # Errors
/// The first file that is missing, damaged or different.
pub fn verify_folder(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let check = |known: &KnownFile| {
        let (path, content) = read(folder, known)?;
        known.check(&content, &path.display().to_string())?;
        Ok(path)
    };
    FILES.iter().map(check).collect()
}

fn load_folder(folder: &Path) -> anyhow::Result<Dataset> {
    let grid = |known: &KnownFile, dimensions: u8| {
        let (path, content) = read(folder, known)?;
        let grid = Idx::parse(&content, dimensions);
        grid.with_context(|| remedy(&path))
    };
    let split = |images: &KnownFile, labels: &KnownFile| {
        let (images, numbers) = (grid(images, 3)?, grid(labels, 1)?);
        let [count, height, width] = images.sizes[..] else { unreachable!("three dimensions") };
        let folder = folder.display();
        ensure!(
            count == numbers.bytes.len(),
            "{folder} holds {count} images and {} labels in {}",
            numbers.bytes.len(),
            labels.file
        );
        if let Some(index) = numbers.bytes.iter().position(|&l| usize::from(l) >= CLASSES.len()) {
            let label = numbers.bytes[index];
            anyhow::bail!(
                "{folder}: record {index} (counted from 0) of {} has label {label}, but labels are 0 to 9",
                labels.file
            );
        }
        let shape = Shape { channels: 1, height, width };
        let labels = numbers.bytes.into_iter().map(u16::from).collect();
        Ok((shape, Split::new(images.bytes, labels, shape)))
    };
    let [train_images, train_labels, test_images, test_labels] = &FILES;
    let (shape, train) = split(train_images, train_labels)?;
    let (test_shape, test) = split(test_images, test_labels)?;
    ensure!(
        shape == test_shape,
        "{}: images to train on and to test on have different sizes",
        folder.display()
    );
    let classes = CLASSES.map(String::from).into();
    Ok(Dataset { name: NAME, shape, classes, train, test })
}

/// The fetched folder if there is one, else the installed one if there is one.
fn locate(datasets: &Path) -> PathBuf {
    let fetched = datasets.join(FOLDER);
    let installed = Path::new(INSTALLED);
    if !fetched.exists() && installed.exists() { installed.to_owned() } else { fetched }
}

/// The uncompressed content of a file that may or may not be compressed, and its path.
fn read(folder: &Path, known: &KnownFile) -> anyhow::Result<(PathBuf, Vec<u8>)> {
    let compressed = folder.join(format!("{}.gz", known.file));
    let plain = folder.join(known.file);
    let path = if !compressed.exists() && plain.exists() { plain } else { compressed };
    let content = idx::read_file(&path, LONGEST).with_context(|| remedy(&path))?;
    Ok((path, content))
}

fn remedy(path: &Path) -> String {
    format!("{} cannot be used (`bandroot data fetch fashion-mnist` gets it)", path.display())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::super::idx::tests::written;
    use super::*;

    /// Two images of 2 x 3 to train on and one to test on, compressed but for the last file.
    fn made() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let contents = [
            written(&[2, 2, 3], &(0..12).collect::<Vec<u8>>()),
            written(&[2], &[9, 0]),
            written(&[1, 2, 3], &[255; 6]),
            written(&[1], &[4]),
        ];
        for (index, content) in contents.iter().enumerate() {
            put(folder.path(), index, content, index < 3);
        }
        folder
    }

    fn put(folder: &Path, index: usize, content: &[u8], compress: bool) {
        let file = FILES[index].file;
        if compress {
            let mut encoder = GzEncoder::new(vec![], Compression::fast());
            encoder.write_all(content).unwrap();
            fs::write(folder.join(format!("{file}.gz")), encoder.finish().unwrap()).unwrap();
        } else {
            fs::write(folder.join(file), content).unwrap();
        }
    }

    #[test]
    fn four_files_make_a_data_set() {
        let data = load_folder(made().path()).unwrap();
        assert_eq!(data.shape, Shape { channels: 1, height: 2, width: 3 });
        assert_eq!((data.train.len(), data.test.len()), (2, 1));
        assert_eq!(data.train.labels(), [9, 0]);
        assert_eq!(data.train.image(1).unwrap(), [6, 7, 8, 9, 10, 11]);
    }

    #[test]
    fn damage_is_refused_with_file_and_record() {
        let refused = |index: usize, content: &[u8], words: &[&str]| {
            let folder = made();
            put(folder.path(), index, content, index < 3);
            let message = format!("{:#}", load_folder(folder.path()).unwrap_err());
            for word in words {
                assert!(message.contains(word), "no {word:?} in {message:?}");
            }
        };
        refused(0, &written(&[2, 2, 3], &[0; 11]), &["train-images", "item 1 of 2", "data fetch"]);
        refused(1, &written(&[2], &[3, 10]), &["train-labels", "record 1 ", "label 10"]);
        refused(1, &written(&[3], &[1, 2, 3]), &["2 images and 3 labels"]);
        refused(2, &written(&[1, 3, 2], &[0; 6]), &["different sizes"]);
        refused(3, &[], &["t10k-labels", "too short"]);
        let folder = made();
        let path = folder.path().join(format!("{}.gz", FILES[0].file));
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let message = format!("{:#}", load_folder(folder.path()).unwrap_err());
        assert!(message.contains("train-images"), "{message}");
        assert!(verify_folder(made().path()).is_err(), "the sums are those of the real files");
    }
}
