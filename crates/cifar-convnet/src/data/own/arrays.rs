//! A data set of arrays: images or vectors and their labels as `.npy` or `.npz`.

use anyhow::{Context, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{Numbers, Scaling, Shape, Split};
use super::label;
use super::npy::{Array, Header, Source};

/// How the sizes of an array of images are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Examples, rows, columns, channels: what `NumPy` makes of an image file.
    Nhwc,
    /// Examples, channels, rows, columns: as in `PyTorch`.
    Nchw,
}

/// What numbers an array holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Dtype {
    /// Pixels of a byte, of which a model sees `p / 127.5 - 1`.
    U8,
    /// Numbers, scaled by `data.offset` and `data.scale`; those of 64 bits are rounded to 32.
    F32,
}

/// How an array of examples is to be understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// Of one example.
    pub shape: Shape,
    /// Of images with channels; not needed for others.
    pub layout: Option<Layout>,
    /// How `f32` are scaled; none if the examples are bytes.
    pub scaling: Option<Scaling>,
}

/// What the header of an array of examples says about it: their number, their shape and their numbers.
///
/// # Errors
/// If it is no array of examples, or needs a layout.
pub(crate) fn facts(
    header: &Header,
    layout: Option<Layout>,
) -> anyhow::Result<(usize, Shape, Dtype)> {
    let dtype = match (header.dtype.kind, header.dtype.size) {
        ('u', 1) => Dtype::U8,
        ('f', _) => Dtype::F32,
        _ => bail!("it holds {}; use uint8 or float32", header.dtype),
    };
    let (count, shape) = match header.shape[..] {
        [count, a, b, c] => match layout {
            Some(Layout::Nhwc) => (count, Shape { channels: c, height: a, width: b }),
            Some(Layout::Nchw) => (count, Shape { channels: a, height: b, width: c }),
            None => bail!(
                "it has the shape {:?}; data.layout must say whether that is \"nhwc\" or \"nchw\"",
                header.shape
            ),
        },
        [count, height, width] => (count, Shape { channels: 1, height, width }),
        [count, features] => (count, Shape::vector(features)),
        _ => bail!("it has the shape {:?}, but 2, 3 or 4 dimensions are expected", header.shape),
    };
    Ok((count, shape, dtype))
}

/// The numbers of an array of examples.
///
/// # Errors
/// If they are of another shape or kind, or one of them is not finite: the record.
pub(crate) fn examples(array: Array, form: &Form) -> anyhow::Result<Numbers> {
    let (count, shape, dtype) = facts(&array.header, form.layout)?;
    ensure!(
        shape == form.shape,
        "its examples are {shape}, but those of the config {}; see data.layout, data.size, \
         data.channels and data.features",
        form.shape
    );
    let planes = matches!((array.header.shape.len(), form.layout), (4, Some(Layout::Nhwc)));
    match (&form.scaling, dtype) {
        (None, Dtype::U8) => {
            let bytes = array.into_bytes()?;
            Ok(Numbers::Bytes(if planes { to_planes(&bytes, shape) } else { bytes }))
        }
        (Some(scaling), Dtype::F32) => {
            let floats = array.to_floats()?;
            let floats = if planes { to_planes(&floats, shape) } else { floats };
            for record in 0..count {
                let example = &floats[record * shape.numbers()..][..shape.numbers()];
                if let Some(at) = scaling.first_not_finite(example) {
                    bail!(
                        "record {record} (counted from 0) holds {}, which is not finite once it is scaled; \
                         clean the data, or see data.scale",
                        example[at]
                    );
                }
            }
            Ok(Numbers::Floats(floats, scaling.clone()))
        }
        _ => bail!("it holds {}, but data.dtype is another", array.header.dtype),
    }
}

/// From the channels of a pixel side by side to one plane per channel.
fn to_planes<T: Copy>(numbers: &[T], shape: Shape) -> Vec<T> {
    let mut planes = Vec::with_capacity(numbers.len());
    for example in numbers.chunks_exact(shape.numbers().max(1)) {
        for channel in 0..shape.channels {
            planes.extend(example.iter().skip(channel).step_by(shape.channels));
        }
    }
    planes
}

/// Reads examples and their labels.
///
/// # Errors
/// The file and the record that cannot be used.
pub(crate) fn load(
    [examples, labels]: &[Source; 2],
    form: &Form,
    classes: &[String],
) -> anyhow::Result<Split> {
    let numbers = examples
        .array()
        .map(|array| (array.header.shape.first().copied(), array))
        .and_then(|(count, array)| Ok((count.unwrap_or(0), self::examples(array, form)?)));
    let (count, numbers) = numbers.with_context(|| format!("{examples} cannot be used"))?;
    let read = || -> anyhow::Result<Vec<u16>> {
        let array = labels.array()?;
        let found = array.header.shape.iter().product::<usize>();
        ensure!(found == count, "it holds {found} labels, but {examples} holds {count} examples");
        array
            .integers()?
            .enumerate()
            .map(|(record, number)| label(record, number, classes))
            .collect()
    };
    let labels = read().with_context(|| format!("{labels} cannot be used"))?;
    Ok(Split::new(numbers, labels, form.shape))
}

#[cfg(test)]
mod tests {
    use super::super::npy::tests::written;
    use super::*;

    fn array(descr: &str, shape: &str, bytes: &[u8]) -> Array {
        Array::read(&mut &written(descr, shape, bytes)[..]).unwrap()
    }

    fn form(shape: Shape, layout: Option<Layout>, floats: bool) -> Form {
        let scaling = floats.then(|| Scaling::new(&[0.0], &[1.0], shape.channels).unwrap());
        Form { shape, layout, scaling }
    }

    #[test]
    fn both_layouts_give_planes() {
        let shape = Shape { channels: 3, height: 1, width: 2 };
        let nhwc = array("|u1", "(2, 1, 2, 3)", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let nchw = array("|u1", "(2, 3, 1, 2)", &[1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12]);
        let one = examples(nhwc.clone(), &form(shape, Some(Layout::Nhwc), false)).unwrap();
        let other = examples(nchw, &form(shape, Some(Layout::Nchw), false)).unwrap();
        assert_eq!(one, other);
        let message = examples(nhwc, &form(shape, None, false)).unwrap_err().to_string();
        assert!(message.contains("data.layout"), "{message}");
    }

    #[test]
    fn grey_images_and_vectors_need_no_layout() {
        let grey = Shape { channels: 1, height: 2, width: 2 };
        let bytes = array("|u1", "(1, 2, 2)", &[1, 2, 3, 4]);
        assert_eq!(facts(&bytes.header, None).unwrap(), (1, grey, Dtype::U8));
        let numbers: Vec<u8> = [1f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let floats = array("<f4", "(1, 2)", &numbers);
        assert_eq!(facts(&floats.header, None).unwrap(), (1, Shape::vector(2), Dtype::F32));
        assert!(examples(floats, &form(Shape::vector(2), None, true)).is_ok());
    }

    #[test]
    fn other_shapes_kinds_and_numbers_are_refused() {
        let numbers: Vec<u8> =
            [1f32, 2.0, 3.0, f32::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
        let refused = |array: Array, form: &Form, word: &str| {
            let message = format!("{:#}", examples(array, form).unwrap_err());
            assert!(message.contains(word), "no {word:?} in {message}");
        };
        let vector = form(Shape::vector(2), None, true);
        refused(array("<f4", "(2, 2)", &numbers), &vector, "record 1 ");
        refused(array("<f4", "(1, 4)", &numbers), &vector, "4 numbers");
        refused(array("|u1", "(1, 2)", &[1, 2]), &vector, "data.dtype");
        refused(array("<i4", "(1, 2)", &[0; 8]), &vector, "int32");
        refused(array("<f4", "(4,)", &numbers), &vector, "dimensions are expected");
    }
}
