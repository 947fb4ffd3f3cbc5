//! New examples for a model that is trained: the same files, without labels.

use std::path::Path;

use anyhow::{Context, bail, ensure};

use super::super::{Numbers, Shape, Split};
use super::npy::Source;
use super::{Columns, Form, Layout, arrays, image_file, table};

/// Examples of a file, and what to call them.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// The name of each: that of the file, and the record in it if it holds several.
    pub names: Vec<String>,
    /// The examples; all have label 0.
    pub split: Split,
}

/// What a model takes in.
#[derive(Debug, Clone, PartialEq)]
pub enum Taken {
    /// Images as bytes, or arrays.
    Arrays(Form),
    /// The columns of a table.
    Table(Columns),
}

impl Taken {
    /// Reads the examples of a PNG or JPEG, an `.npy` or a CSV file.
    ///
    /// # Errors
    /// The file, and why the model cannot take it in.
    pub fn read(&self, path: &Path) -> anyhow::Result<Inputs> {
        let split = self.examples(path);
        let split = split.with_context(|| format!("{} cannot be used", path.display()))?;
        let name = path.display().to_string();
        let names = match split.len() {
            1 => vec![name],
            count => (0..count).map(|record| format!("{name}:{record}")).collect(),
        };
        Ok(Inputs { names, split })
    }

    fn examples(&self, path: &Path) -> anyhow::Result<Split> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let ending = ending.to_ascii_lowercase();
        match (self, ending.as_str()) {
            (Self::Table(columns), "csv") => table::load_unlabelled(path, columns),
            (Self::Table(_), _) => {
                bail!("the model was trained on the columns of a table: give a .csv file")
            }
            (Self::Arrays(form), "npy") => from_array(path, form),
            (Self::Arrays(form), _) if image_file::is_image(path) => {
                ensure!(
                    form.scaling.is_none() && !form.shape.is_vector(),
                    "the model was trained on float32 of an array: give an .npy file"
                );
                let bytes = image_file::read(path, form.shape)?;
                Ok(Split::new(bytes, vec![0], form.shape))
            }
            (Self::Arrays(_), _) => bail!("give a .png, .jpg, .jpeg or .npy file"),
        }
    }
}

/// Many examples, or one without the dimension that counts them.
fn from_array(path: &Path, form: &Form) -> anyhow::Result<Split> {
    let mut array = Source::new(Path::new(""), &path.display().to_string(), "").array()?;
    let sizes = &array.header.shape;
    let found = form.layout.or_else(|| layout(sizes, form.shape));
    let flat = form.shape.is_vector() || form.shape.channels == 1;
    ensure!(
        flat || found.is_some(),
        "it has the shape {sizes:?}, but the model takes images of {}",
        form.shape
    );
    let form = Form { layout: found, ..form.clone() };
    let alone = match form.shape {
        shape if shape.is_vector() => array.header.shape.len() == 1,
        Shape { channels: 1, .. } => array.header.shape.len() == 2,
        _ => array.header.shape.len() == 3,
    };
    if alone {
        array.header.shape.insert(0, 1);
    }
    let count = array.header.shape.first().copied().unwrap_or(0);
    let numbers: Numbers = arrays::examples(array, &form)?;
    Ok(Split::new(numbers, vec![0; count], form.shape))
}

/// The layout that an array must have if its images are of this shape; none if it can have both or neither.
fn layout(sizes: &[usize], shape: Shape) -> Option<Layout> {
    let Shape { channels, height, width } = shape;
    let fits = |wanted: [usize; 3]| sizes.ends_with(&wanted);
    match (fits([height, width, channels]), fits([channels, height, width])) {
        (true, false) => Some(Layout::Nhwc),
        (false, true) => Some(Layout::Nchw),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use image::ImageFormat;

    use super::super::super::Scaling;
    use super::super::image_file::tests::drawn;
    use super::super::npy::tests::written;
    use super::*;

    const SHAPE: Shape = Shape { channels: 3, height: 1, width: 2 };

    fn read(taken: &Taken, name: &str, content: &[u8]) -> Result<Inputs, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        taken.read(&path).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn one_image_or_many_in_either_layout() {
        let taken = Taken::Arrays(Form { shape: SHAPE, layout: None, scaling: None });
        let image = read(&taken, "a.png", &drawn(ImageFormat::Png)).unwrap();
        assert_eq!((image.names.len(), image.split.len()), (1, 1));
        let one = read(&taken, "a.npy", &written("|u1", "(1, 2, 3)", &[1, 2, 3, 4, 5, 6])).unwrap();
        let many = written("|u1", "(2, 3, 1, 2)", &[1, 4, 2, 5, 3, 6, 0, 0, 0, 0, 0, 0]);
        let many = read(&taken, "a.npy", &many).unwrap();
        assert_eq!(one.split.image(0), many.split.image(0));
        assert!(one.names[0].ends_with("a.npy") && many.names[1].ends_with("a.npy:1"));
    }

    #[test]
    fn what_the_model_was_not_trained_on_is_refused() {
        let images = Taken::Arrays(Form { shape: SHAPE, layout: None, scaling: None });
        let scaling = Scaling::new(&[0.0], &[1.0], 2).unwrap();
        let shape = Shape::vector(2);
        let vectors = Taken::Arrays(Form { shape, layout: None, scaling: Some(scaling.clone()) });
        let features = ["a", "b"].map(String::from).into();
        let table = Taken::Table(Columns { label: "kind".into(), features, scaling });
        let png = drawn(ImageFormat::Png);
        let wide = written("|u1", "(1, 9, 9, 3)", &[0; 243]);
        let cases = [
            (&images, "a.csv", &b"a,b\n1,2\n"[..], "give a .png"),
            (&images, "a.npy", &wide, "images of 3 x 1 x 2"),
            (&vectors, "a.png", &png, "give an .npy"),
            (&table, "a.png", &png, "give a .csv"),
            (&table, "a.csv", b"a\n1\n", "no column \"b\""),
        ];
        for (taken, name, content, word) in cases {
            let message = read(taken, name, content).unwrap_err();
            assert!(message.contains(name) && message.contains(word), "{message}");
        }
        assert_eq!(read(&table, "a.csv", b"b,kind,a\n1,?,2\n3,?,4\n").unwrap().names.len(), 2);
    }
}
