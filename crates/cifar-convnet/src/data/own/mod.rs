//! Data sets of one's own: class folders of images, `.npy` arrays, IDX files, CSV tables.
//!
//! What a plan needs (how many examples, of which shape and classes) is found in the listing of a folder
//! or the header of a file, before any example is read: see `facts` of every format.

mod arrays;
mod folder;
mod grids;
pub mod inputs;
pub(super) mod image_file;
pub(super) mod npy;
mod table;

use std::path::PathBuf;

use anyhow::{Context, ensure};

use super::{Dataset, Shape, Split};
use folder::Listing;
use npy::Source;

pub use arrays::{Dtype, Form, Layout};
pub use table::Columns;

#[cfg(test)]
pub(super) use {arrays::examples, table::parse as parse_table};

/// Where a data set is and how its files are to be understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Own {
    /// The name of the format in a config.
    pub name: &'static str,
    /// The folder that all names are relative to.
    pub folder: PathBuf,
    /// What the files are.
    pub files: Files,
    /// Of every example.
    pub shape: Shape,
    /// The names of the labels 0, 1, ...
    pub classes: Vec<String>,
    /// Share of the examples to test on, where there are no files to test on.
    pub test_share: Option<f64>,
}

/// The files of a data set, by format. Of two names the first is that of the examples to train on, the
/// second that of those to test on.
#[derive(Debug, Clone, PartialEq)]
pub enum Files {
    /// Class folders of PNG and JPEG.
    Folder,
    /// Examples and labels as arrays.
    Arrays {
        /// Of the examples, and of their labels.
        names: [Pair; 2],
        /// How the examples are to be understood.
        form: Form,
    },
    /// Images and labels as IDX.
    Grids {
        /// Of the images, and of their labels.
        names: [Pair; 2],
    },
    /// Tables.
    Tables {
        /// Of the tables.
        names: [String; 2],
        /// Which columns are what.
        columns: Columns,
    },
}

/// A file of examples, and one of labels.
pub type Pair = [String; 2];

/// What can be known of a data set without reading an example.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// How many examples there are to train on, those to test on included if they are not apart.
    pub examples: usize,
    /// The names of the classes, if the format has them.
    pub classes: Option<Vec<String>>,
    /// The shape of an example, if the format has it.
    pub shape: Option<Shape>,
    /// The numbers of an example, if the format leaves a choice.
    pub dtype: Option<Dtype>,
    /// The names of the columns besides the label.
    pub columns: Option<Vec<String>>,
}

impl Facts {
    /// Of class folders: from their listing.
    ///
    /// # Errors
    /// The folder or file that has no place there.
    pub fn of_folder(folder: &std::path::Path, test_share: Option<f64>) -> anyhow::Result<Self> {
        let listing = Listing::read(&train_root(folder, test_share))?;
        Ok(Self { examples: listing.len(), classes: Some(listing.classes), ..Self::default() })
    }

    /// Of an array: from its header.
    ///
    /// # Errors
    /// The file, and why it is no array of examples.
    pub fn of_array(
        folder: &std::path::Path,
        name: &str,
        layout: Option<Layout>,
    ) -> anyhow::Result<Self> {
        let source = Source::new(folder, name, "train_images");
        let facts = source.header().and_then(|header| arrays::facts(&header, layout));
        let (examples, shape, dtype) = facts.with_context(|| source.to_string())?;
        Ok(Self { examples, shape: Some(shape), dtype: Some(dtype), ..Self::default() })
    }

    /// Of an IDX file: from its header.
    ///
    /// # Errors
    /// The file, and why it holds no images.
    pub fn of_grid(folder: &std::path::Path, name: &str) -> anyhow::Result<Self> {
        let (examples, shape) = grids::facts(&grids::locate(folder, name))?;
        Ok(Self { examples, shape: Some(shape), ..Self::default() })
    }

    /// Of a table: from its first line, and by counting the others.
    ///
    /// # Errors
    /// The file, and what it lacks.
    pub fn of_table(folder: &std::path::Path, name: &str, label: &str) -> anyhow::Result<Self> {
        let (columns, examples) = table::facts(&folder.join(name), label)?;
        Ok(Self { examples, columns: Some(columns), ..Self::default() })
    }
}

/// Where the class folders to train on are.
fn train_root(folder: &std::path::Path, test_share: Option<f64>) -> PathBuf {
    if test_share.is_some() { folder.to_owned() } else { folder.join("train") }
}

impl Own {
    /// Reads everything.
    ///
    /// # Errors
    /// The file and the record that cannot be used, and what to do about it.
    pub fn load(&self) -> anyhow::Result<Dataset> {
        let train = self.part(0)?;
        let (train, test) = match self.test_share {
            Some(share) => train.without_test(share)?,
            None => (train, self.part(1)?),
        };
        ensure!(!test.is_empty(), "{} has no examples to test on", self.folder.display());
        let Self { name, shape, classes, .. } = self;
        Ok(Dataset { name, shape: *shape, classes: classes.clone(), train, test })
    }

    /// The examples to train on, or those to test on.
    fn part(&self, part: usize) -> anyhow::Result<Split> {
        let Self { folder, shape, classes, .. } = self;
        match &self.files {
            Files::Folder => {
                let root = if part == 0 {
                    train_root(folder, self.test_share)
                } else {
                    folder.join("test")
                };
                Listing::read(&root)?.load(classes, *shape)
            }
            Files::Arrays { names, form } => {
                let defaults =
                    [["train_images", "train_labels"], ["test_images", "test_labels"]][part];
                let source = |at: usize| Source::new(folder, &names[part][at], defaults[at]);
                arrays::load(&[source(0), source(1)], form, classes)
            }
            Files::Grids { names } => {
                let path = |at: usize| grids::locate(folder, &names[part][at]);
                grids::load(&[path(0), path(1)], *shape, classes)
            }
            Files::Tables { names, columns } => {
                table::load(&folder.join(&names[part]), columns, classes)
            }
        }
    }
}

/// A label that is one of the classes.
fn label(record: usize, number: i128, classes: &[String]) -> anyhow::Result<u16> {
    let label = u16::try_from(number).ok().filter(|&label| usize::from(label) < classes.len());
    label.with_context(|| {
        let last = classes.len().saturating_sub(1);
        format!(
            "record {record} (counted from 0) has label {number}, but labels are 0 to {last}; see data.classes"
        )
    })
}
