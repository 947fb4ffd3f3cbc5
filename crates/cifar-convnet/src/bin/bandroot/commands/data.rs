//! `bandroot data`: fetch, check, describe and show the data sets.

mod description;
mod sheet;

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

use crate::cli::{Data, Describe, Export, Fetch, Show, Which};
use crate::fetch::{self, FetchedFiles};
use crate::terminal::output;
use cifar_convnet::BadArgument;
use cifar_convnet::data::{Name, Split};
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

fn fetch(Fetch { which, archive }: &Fetch) -> anyhow::Result<()> {
    let Which { name, dir } = which;
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

fn verify(Which { name, dir }: &Which) -> anyhow::Result<()> {
    let files = name.verify(dir)?;
    let mut text = String::new();
    for file in &files {
        text += &format!("{}  MD5 is right\n", file.display());
    }
    if files.is_empty() {
        text = format!("{} as on every machine\n", name.as_str());
    }
    output::print(&text)
}

fn describe(Describe { which, json }: &Describe) -> anyhow::Result<()> {
    let description = Description::of(&which.name.load(&which.dir)?);
    output::print(&if *json { files::json(&description)? } else { description.to_text() })
}

fn show(Show { which, out, columns }: &Show) -> anyhow::Result<()> {
    if !(1..=100).contains(columns) {
        bail!(BadArgument(format!("--columns must be between 1 and 100, but it is {columns}")));
    }
    let data = which.name.load(&which.dir)?;
    files::write(out, &sheet::png(&data, *columns)?)?;
    let rows: Vec<String> =
        data.classes.iter().enumerate().map(|(label, class)| format!("{label} {class}")).collect();
    output::print(&format!("{}: {columns} of each, rows {}", out.display(), rows.join(", ")))
}

fn export(Export { which, out }: &Export) -> anyhow::Result<()> {
    let data = which.name.load(&which.dir)?;
    fs::create_dir_all(out).with_context(|| format!("could not create {}", out.display()))?;
    let write = |split: &Split, file: &str| {
        let mut records = vec![];
        for (index, &label) in split.labels().iter().enumerate() {
            records.push(label);
            records.extend_from_slice(split.image(index));
        }
        let path: &Path = &out.join(file);
        files::write(path, &records)?;
        anyhow::Ok(format!("{}: {} records\n", path.display(), split.len()))
    };
    output::print(&(write(&data.train, "train.bin")? + &write(&data.test, "test.bin")?))
}
