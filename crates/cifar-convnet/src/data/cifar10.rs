//! CIFAR-10 in its binary format: six files of 10,000 records, each a label and three planes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use super::checksum::{self, KnownFile};
use super::{Dataset, Shape, Split};

/// The folder that the official archive unpacks to.
pub const FOLDER: &str = "cifar-10-batches-bin";

/// In configs and on the command line.
pub const NAME: &str = "cifar10";

/// Records in one file.
pub const RECORDS: usize = 10_000;

/// Of every image.
pub const SHAPE: Shape = Shape { channels: 3, height: 32, width: 32 };

/// The five files to train on and the one to test on.
pub const FILES: [KnownFile; 6] = [
    KnownFile { file: "data_batch_1.bin", md5: "5dd7e06a14cb22eb9f671a540d1b7c25" },
    KnownFile { file: "data_batch_2.bin", md5: "5ea93a67294ea407fff1d09f752e9692" },
    KnownFile { file: "data_batch_3.bin", md5: "942cd6a4bcdd0dd3c604fbe906cb4421" },
    KnownFile { file: "data_batch_4.bin", md5: "ae636b3ba5c66a11e91e8cb52e771fcb" },
    KnownFile { file: "data_batch_5.bin", md5: "53f37980c15c3d472c316c40844f3f0d" },
    KnownFile { file: "test_batch.bin", md5: "803d5f7f4d78ea53de84dbe85f74fb6d" },
];

/// The names of the labels 0 to 9.
pub const CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Reads the six files under `datasets`. About 0.3 s, and 184 MB of memory.
///
/// # Errors
/// If a file is missing, too short or too long, or a label is not below 10: the file and the record.
pub fn load(datasets: &Path) -> anyhow::Result<Dataset> {
    let read = |files: &[KnownFile]| -> anyhow::Result<Split> {
        let (mut images, mut labels) = (vec![], vec![]);
        for KnownFile { file, .. } in files {
            let path = datasets.join(FOLDER).join(file);
            let bytes = fs::read(&path).with_context(|| remedy(&path))?;
            read_records(&bytes, RECORDS, &mut images, &mut labels)
                .with_context(|| remedy(&path))?;
        }
        let labels = labels.into_iter().map(u16::from).collect();
        Ok(Split::new(images, labels, SHAPE))
    };
    let (train, test) = (read(&FILES[..5])?, read(&FILES[5..])?);
    let classes = CLASSES.map(String::from).into();
    Ok(Dataset { name: NAME, shape: SHAPE, classes, train, test })
}

fn remedy(path: &Path) -> String {
    format!("{} cannot be used (`bandroot data fetch cifar10` gets it)", path.display())
}

/// Checks the MD5 of the six files and gives their paths. About 0.4 s.
///
/// # Errors
/// The first file that is missing or has another sum.
pub fn verify(datasets: &Path) -> anyhow::Result<Vec<PathBuf>> {
    verify_files(&datasets.join(FOLDER), &FILES)
}

/// As [`verify`], for other files.
///
/// # Errors
/// The first file that is missing or has another sum.
pub fn verify_files(folder: &Path, files: &[KnownFile]) -> anyhow::Result<Vec<PathBuf>> {
    let check = |known: &KnownFile| {
        let path = folder.join(known.file);
        let found = checksum::of_file(&path).with_context(|| remedy(&path))?;
        if found != known.md5 {
            bail!("{}: MD5 {found}, it must be {}", remedy(&path), known.md5);
        }
        Ok(path)
    };
    files.iter().map(check).collect()
}

/// Appends the images and labels of exactly `records` records.
pub fn read_records(
    bytes: &[u8],
    records: usize,
    images: &mut Vec<u8>,
    labels: &mut Vec<u8>,
) -> anyhow::Result<()> {
    let len = 1 + SHAPE.numbers();
    let (found, expected) = (bytes.len(), records * len);
    ensure!(
        found >= expected,
        "it ends in record {} of {records} (counted from 0): {found} bytes, not {expected}",
        found / len
    );
    ensure!(
        found <= expected,
        "it goes on after record {} (counted from 0), its last: {found} bytes, not {expected}",
        records - 1
    );
    for (index, record) in bytes.chunks_exact(len).enumerate() {
        let label = record[0];
        ensure!(
            usize::from(label) < CLASSES.len(),
            "record {index} (counted from 0) has label {label}, but labels are 0 to 9"
        );
        labels.push(label);
        images.extend_from_slice(&record[1..]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(labels: &[u8]) -> Vec<u8> {
        let record = |&label: &u8| std::iter::once(label).chain((0..3072).map(|i| (i / 12) as u8));
        labels.iter().flat_map(record).collect()
    }

    fn read(bytes: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
        let (mut images, mut labels) = (vec![], vec![]);
        let outcome = read_records(bytes, 3, &mut images, &mut labels);
        outcome.map(|()| (images, labels)).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn good_records_give_planes_and_labels() {
        let (images, labels) = read(&records(&[9, 0, 5])).unwrap();
        assert_eq!(labels, [9, 0, 5]);
        assert_eq!(images.len(), 3 * 3072);
        // Red ends, green begins.
        assert_eq!(images[3072 + 1023..][..2], [85, 85]);
        assert_eq!((images[0], images[3071]), (0, 255));
    }

    #[test]
    fn truncated_oversized_and_mislabelled_files_are_refused_with_the_record() {
        let good = records(&[1, 2, 3]);
        let message = read(&good[..2 * 3073 + 1]).unwrap_err();
        assert!(message.contains("record 2 of 3"), "{message}");
        let message = read(&good[..good.len() - 1]).unwrap_err();
        assert!(message.contains("record 2 of 3"), "{message}");
        assert!(read(&[]).unwrap_err().contains("record 0 of 3"));
        let message = read(&[&good[..], &[0]].concat()).unwrap_err();
        assert!(message.contains("after record 2"), "{message}");
        let message = read(&records(&[0, 10, 1])).unwrap_err();
        assert!(message.contains("record 1 ") && message.contains("label 10"), "{message}");
    }

    #[test]
    fn a_missing_or_damaged_folder_names_the_file_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let message = format!("{:#}", load(folder.path()).unwrap_err());
        assert!(message.contains("data_batch_1.bin") && message.contains("data fetch cifar10"));
        fs::create_dir(folder.path().join(FOLDER)).unwrap();
        fs::write(folder.path().join(FOLDER).join(FILES[0].file), records(&[1, 2])).unwrap();
        for message in [load(folder.path()).unwrap_err(), verify(folder.path()).unwrap_err()]
            .map(|error| format!("{error:#}"))
        {
            assert!(message.contains("data_batch_1.bin"), "{message}");
        }
    }
}
