//! Fashion-MNIST from Debian's package, which need not be installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::{FetchedFiles, create_folder, run};
use cifar_convnet::data::fashion_mnist::{FILES, FOLDER, INSTALLED, verify_folder};
use cifar_convnet::files;

const PACKAGE: &str = "dataset-fashion-mnist";

/// Brings the four files under `datasets`, verified; does nothing where they are or where the package is
/// installed. Downloads 31 MB; needs no rights but to write there.
///
/// # Errors
/// If there is no Debian's `apt-get`, it cannot find the package, or the files are not the right ones.
pub(crate) fn fetch(datasets: &Path) -> anyhow::Result<FetchedFiles> {
    let folder = datasets.join(FOLDER);
    // Looked at in the order in which loading does.
    let used = if folder.exists() { &folder } else { Path::new(INSTALLED) };
    if let Ok(files) = verify_folder(used) {
        return Ok(FetchedFiles::AlreadyThere(files));
    }
    create_folder(datasets)?;
    let temporary = tempfile::Builder::new().prefix(".deb-").tempdir_in(datasets)?;
    let mut download = Command::new("apt-get");
    download.args(["download", "-qq", PACKAGE]).current_dir(&temporary);
    run(&mut download, "Fashion-MNIST by apt-get, 31 MB", None).with_context(|| {
        format!(
            "Fashion-MNIST comes in Debian's package {PACKAGE}, which could not be downloaded (does \
             `apt-get update` help? else put its four IDX files into {})",
            folder.display()
        )
    })?;
    let packed = fs::read_dir(&temporary)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get wrote no package {PACKAGE}"))?;
    let unpacked = temporary.path().join("unpacked");
    let mut unpack = Command::new("dpkg-deb");
    run(unpack.arg("-x").args([&packed, &unpacked]), "unpacking", None)?;
    let installed = unpacked.join(INSTALLED.trim_start_matches('/'));
    verify_folder(&installed).with_context(|| format!("the package {PACKAGE} is not as it was"))?;
    create_folder(&folder)?;
    for known in &FILES {
        let name = format!("{}.gz", known.file);
        files::write(&folder.join(&name), &fs::read(installed.join(&name))?)?;
    }
    Ok(FetchedFiles::Fetched(verify_folder(&folder)?, format!("Debian's package {PACKAGE}")))
}
