//! Class folders: one folder per class, in it the images.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use rayon::prelude::*;

use super::super::{Shape, Split};
use super::image_file;

/// The images of a tree, before any of them is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listing {
    root: PathBuf,
    /// The names of the class folders, sorted.
    pub(crate) classes: Vec<String>,
    /// The images of every class, sorted by name.
    images: Vec<Vec<PathBuf>>,
}

impl Listing {
    /// Lists a tree. Hidden files are passed over; what is neither a folder nor an image is refused,
    /// because the number of examples is part of the plan.
    ///
    /// # Errors
    /// The folder or the file that has no place there.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let entries = entries(root).with_context(|| {
            format!(
                "the folder {} cannot be listed; data.folder says where the images are, in class folders \
                 below train and test, or below itself with data.test_share",
                root.display()
            )
        })?;
        let (mut classes, mut images) = (vec![], vec![]);
        for folder in entries {
            let name = folder.file_name().and_then(|name| name.to_str());
            let name = name.with_context(|| {
                format!("{} has a name that is not valid UTF-8", folder.display())
            })?;
            ensure!(
                folder.is_dir(),
                "{} is no class folder; move it away, or into the folder of its class",
                folder.display()
            );
            classes.push(name.to_owned());
            let files = self::entries(&folder)
                .with_context(|| format!("the folder {} cannot be listed", folder.display()))?;
            if let Some(file) = files.iter().find(|file| !image_file::is_image(file)) {
                bail!("{} is no PNG or JPEG; convert it or move it away", file.display());
            }
            images.push(files);
        }
        ensure!(!classes.is_empty(), "{} has no class folders", root.display());
        Ok(Self { root: root.to_owned(), classes, images })
    }

    /// The number of images.
    pub(crate) fn len(&self) -> usize {
        self.images.iter().map(Vec::len).sum()
    }

    /// Reads all images, on all cores.
    ///
    /// # Errors
    /// The first image that cannot be read, or a folder that is none of the classes.
    pub(crate) fn load(&self, classes: &[String], shape: Shape) -> anyhow::Result<Split> {
        let mut labelled = vec![];
        for (name, images) in self.classes.iter().zip(&self.images) {
            let label = classes.iter().position(|class| class == name).with_context(|| {
                let known = classes.join(", ");
                let folder = self.root.join(name);
                format!("{} does not match any class; the classes are {known}", folder.display())
            })?;
            let label = u16::try_from(label).context("too many classes")?;
            labelled.extend(images.iter().map(|path| (path, label)));
        }
        let read = |&(path, _): &(&PathBuf, u16)| image_file::read(path, shape);
        let bytes: Vec<Vec<u8>> = labelled.par_iter().map(read).collect::<anyhow::Result<_>>()?;
        let labels = labelled.iter().map(|&(_, label)| label).collect();
        Ok(Split::new(bytes.concat(), labels, shape))
    }
}

/// What a folder holds, sorted by name, without what is hidden.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = vec![];
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    // The order of a folder is that of its file system; that of the examples must not be.
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use image::ImageFormat;

    use super::super::image_file::tests::drawn;
    use super::*;

    const SHAPE: Shape = Shape { channels: 3, height: 2, width: 4 };

    fn made() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, format) in [
            ("dog/2.jpg", ImageFormat::Jpeg),
            ("dog/1.PNG", ImageFormat::Png),
            ("cat/a.jpeg", ImageFormat::Jpeg),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, drawn(format)).unwrap();
        }
        fs::write(root.path().join(".DS_Store"), "hidden").unwrap();
        root
    }

    #[test]
    fn folders_are_classes_in_the_order_of_their_names() {
        let root = made();
        let listing = Listing::read(root.path()).unwrap();
        assert_eq!(
            (listing.classes.as_slice(), listing.len()),
            (&["cat", "dog"].map(String::from)[..], 3)
        );
        let split = listing.load(&listing.classes, SHAPE).unwrap();
        assert_eq!(split.labels(), [0, 1, 1]);
        assert_eq!(split.image(1).unwrap()[..4], [255, 255, 0, 0], "1.PNG before 2.jpg");
        let classes = ["ant", "cat", "dog"].map(String::from);
        assert_eq!(listing.load(&classes, SHAPE).unwrap().labels(), [1, 2, 2]);
    }

    #[test]
    fn what_does_not_belong_there_is_named() {
        let refused = |outcome: anyhow::Result<()>, words: &[&str]| {
            let message = format!("{:#}", outcome.unwrap_err());
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        };
        let list = |root: &Path| Listing::read(root).map(drop);
        refused(list(Path::new("/no/such/folder")), &["/no/such/folder", "data.folder"]);
        refused(list(tempfile::tempdir().unwrap().path()), &["no class folders"]);
        let root = made();
        let listing = Listing::read(root.path()).unwrap();
        let known = listing.load(&["dog".to_owned()], SHAPE).map(drop);
        refused(known, &["cat", "the classes are dog"]);
        fs::write(root.path().join("cat/broken.png"), "no PNG").unwrap();
        let listing = Listing::read(root.path()).unwrap();
        refused(listing.load(&listing.classes, SHAPE).map(drop), &["broken.png"]);
        fs::write(root.path().join("cat/notes.txt"), "").unwrap();
        refused(list(root.path()), &["notes.txt", "PNG or JPEG"]);
        fs::write(root.path().join("a.png"), "").unwrap();
        refused(list(root.path()), &["a.png", "class folder"]);
    }
}
