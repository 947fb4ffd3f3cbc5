//! `bandroot data`: fetch, check, describe and show the data sets.

mod description;
mod sheet;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cli::{Chosen, Data, Describe, Export, Fetch, Show, Which};
use crate::fetch::{self, FetchedFiles};
use crate::terminal::output;
use cifar_convnet::BadArgument;
use cifar_convnet::config;
use cifar_convnet::data::{Dataset, Name, Split};
use cifar_convnet::files;
use description::Description;

/// Runs one of the commands.
pub(crate) fn run(command: &Data) -> anyhow::Result<()> {
    match command {
        Data::Fetch(arguments) => fetch(arguments),
        Data::Verify(which) => verify(which),
        Data::Describe(arguments) => describe(arguments),
        Data::Show(arguments) => show(arguments),
        Data::Export(arguments) => export(arguments),
    }
}

fn folder(which: &Which) -> PathBuf {
    which.dir.clone().unwrap_or_else(|| "datasets".into())
}

/// The section `[data]` of a config. A data set is looked at as a whole, and as it is: nothing is held out of it, and
/// no features are made.
fn section(path: &Path, which: &Which) -> anyhow::Result<config::data::Data> {
    let dir = which.dir.as_deref();
    let mut data = config::file::read_data(path, dir)?;
    data.validation = 0.0;
    data.check().map_err(|error| BadArgument(format!("{}: {error}", path.display())))?;
    Ok(data.of_examples())
}

fn load(which: &Which) -> anyhow::Result<Dataset> {
    match &which.data {
        Chosen::Known(name) => name.load(&folder(which)),
        Chosen::Config(path) => section(path, which)?.load(),
    }
}

fn fetch(Fetch { name, dir, archive }: &Fetch) -> anyhow::Result<()> {
    if archive.is_some() && *name != Name::Cifar10 {
        return Err(BadArgument("--archive is only for cifar10".into()).into());
    }
    let outcome = match name {
        Name::Textures => {
            return output::print("textures is part of the program: nothing to fetch");
        }
        Name::Cifar10 => fetch::cifar10::fetch(dir, archive.as_deref())?,
        Name::FashionMnist => fetch::fashion_mnist::fetch(dir)?,
    };
    let (files, how) = match &outcome {
        FetchedFiles::AlreadyThere(files) => (files, "was already there; checked again".to_owned()),
        FetchedFiles::Fetched(files, source) => {
            (files, format!("fetched from {source}, and checked"))
        }
    };
    let folder = files.first().and_then(|file| file.parent()).unwrap_or(dir);
    let (name, count) = (name.as_str(), files.len());
    output::print(&format!("{name} {how}: {count} files in {}", folder.display()))
}

fn verify(which: &Which) -> anyhow::Result<()> {
    match &which.data {
        Chosen::Known(name) => verify_known(*name, &folder(which)),
        Chosen::Config(path) => {
            let section = section(path, which)?;
            match section.name.known() {
                Some(name) => verify_known(name, &section.folder),
                None => verify_own(&section.load()?),
            }
        }
    }
}

fn verify_known(name: Name, folder: &Path) -> anyhow::Result<()> {
    let files = name.verify(folder)?;
    let mut text = String::new();
    for file in &files {
        text += &format!("{}  MD5 is right\n", file.display());
    }
    if files.is_empty() {
        text = format!("{} as on every machine\n", name.as_str());
    }
    output::print(&text)
}

/// Everything was read, so every label is that of a class and every number is finite.
fn verify_own(data: &Dataset) -> anyhow::Result<()> {
    let Dataset { name, shape, classes, train, test } = data;
    let mut text =
        format!("{name}: {shape}, {} classes, all labels and values are valid\n", classes.len());
    for (part, split) in [("train", train), ("test", test)] {
        text += &format!("{part:<5}  {} examples  SHA-256 {}\n", split.len(), split.sha256());
    }
    output::print(&text)
}

fn describe(Describe { which, json }: &Describe) -> anyhow::Result<()> {
    let description = Description::of(&load(which)?);
    output::print(&if *json { files::json(&description)? } else { description.to_text() })
}

fn show(Show { which, out, columns }: &Show) -> anyhow::Result<()> {
    if !(1..=100).contains(columns) {
        bail!(BadArgument(format!("--columns must be between 1 and 100, but it is {columns}")));
    }
    let data = load(which)?;
    if data.shape.is_vector() {
        bail!(BadArgument(format!("{} has vectors: only images can be shown", data.name)));
    }
    files::write(out, &sheet::png(&data, *columns)?)?;
    let rows: Vec<String> =
        data.classes.iter().enumerate().map(|(label, class)| format!("{label} {class}")).collect();
    output::print(&format!("{}: up to {columns} of each, rows {}", out.display(), rows.join(", ")))
}

fn export(Export { which, out }: &Export) -> anyhow::Result<()> {
    let data = load(which)?;
    let records = |split: &Split| {
        let mut records = vec![];
        for (index, &label) in split.labels().iter().enumerate() {
            let (Ok(label), Some(image)) = (u8::try_from(label), split.image(index)) else {
                let name = data.name;
                bail!(BadArgument(format!(
                    "{name} has labels or values that do not fit in a byte"
                )));
            };
            records.push(label);
            records.extend_from_slice(image);
        }
        anyhow::Ok(records)
    };
    let (train, test) = (records(&data.train)?, records(&data.test)?);
    fs::create_dir_all(out).with_context(|| format!("could not create {}", out.display()))?;
    let mut text = String::new();
    for (file, records, split) in
        [("train.bin", train, &data.train), ("test.bin", test, &data.test)]
    {
        let path = out.join(file);
        files::write(&path, &records)?;
        text += &format!("{}: {} records\n", path.display(), split.len());
    }
    output::print(&text)
}
