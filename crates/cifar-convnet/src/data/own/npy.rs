//! Arrays of `NumPy`: `.npy` files, and `.npz` archives of them.
//!
//! Written here because the crates that read them trust the header: they make room for what it announces
//! before they have seen that much, and take nested expressions of any depth.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use zip::ZipArchive;

/// The longest header that is read; `NumPy` itself refuses longer ones.
const LONGEST_HEADER: usize = 10_000;

/// Most dimensions of an array, as in `NumPy`.
const MOST_DIMENSIONS: usize = 64;

/// What the numbers of an array are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dtype {
    /// `u`, `i` or `f`.
    pub(crate) kind: char,
    /// Bytes of a number.
    pub(crate) size: usize,
    big_endian: bool,
}

impl Dtype {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let unsupported =
            || format!("it holds numbers of the type {text:?}; convert it with astype");
        let (order, rest) = text.split_at_checked(1).with_context(unsupported)?;
        let (kind, size) = rest.split_at_checked(1).with_context(unsupported)?;
        let kind = kind.chars().next().unwrap_or(' ');
        let size = size.parse().ok();
        let is_known = |&size: &usize| match kind {
            'u' | 'i' => [1, 2, 4, 8].contains(&size),
            'f' => [4, 8].contains(&size),
            _ => false,
        };
        let size = size.filter(is_known).with_context(unsupported)?;
        ensure!(["<", ">", "|"].contains(&order) && (order != "|" || size == 1), unsupported());
        Ok(Self { kind, size, big_endian: order == ">" })
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.kind {
            'u' => "uint",
            'i' => "int",
            _ => "float",
        };
        write!(f, "{name}{}", 8 * self.size)
    }
}

/// What an array announces before its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
}

impl Header {
    /// Reads up to the first number.
    pub(crate) fn read(reader: &mut impl Read) -> anyhow::Result<Self> {
        let mut start = [0; 8];
        reader.read_exact(&mut start).context("it is too short for an .npy file")?;
        ensure!(start.starts_with(b"\x93NUMPY"), "it is no .npy file: it does not start as one");
        let mut len = [0; 4];
        let digits = match start[6] {
            1 => 2,
            2 | 3 => 4,
            version => bail!("it is of version {version} of the format, which is not known"),
        };
        reader.read_exact(&mut len[..digits]).context("it ends in its header")?;
        let len = u32::from_le_bytes(len) as usize;
        ensure!(len <= LONGEST_HEADER, "its header is said to have {len} bytes");
        let mut text = vec![0; len];
        reader.read_exact(&mut text).context("it ends in its header")?;
        let text = String::from_utf8(text).ok().context("its header is not valid UTF-8")?;
        parse(&text).with_context(|| format!("its header is {:?}", text.trim_end()))
    }

    /// The bytes of all numbers, if that many can exist.
    fn bytes(&self) -> anyhow::Result<usize> {
        let sizes = self.shape.iter().chain([&self.dtype.size]);
        let bytes = sizes.copied().try_fold(1usize, usize::checked_mul);
        bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).context("its shape makes no sense")
    }
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`, as `NumPy` writes it.
fn parse(text: &str) -> anyhow::Result<Header> {
    /// What stands between the name of a key and the end of its value.
    fn value<'a>(text: &'a str, key: &str) -> anyhow::Result<&'a str> {
        let at = text.find(&format!("'{key}':")).with_context(|| format!("it has no {key}"))?;
        Ok(text[at + key.len() + 3..].trim_start())
    }
    let descr = value(text, "descr")?.strip_prefix('\'');
    let descr = descr.and_then(|rest| rest.split_once('\''));
    let (descr, _) = descr.context("it is a structured array; save its fields one by one")?;
    let shape = value(text, "shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let (shape, _) = shape.context("its shape is no tuple")?;
    let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape: Result<Vec<usize>, _> = sizes.map(str::parse).collect();
    let shape = shape.ok().filter(|shape| shape.len() <= MOST_DIMENSIONS);
    let shape = shape.context("its shape is no tuple of sizes")?;
    let fortran = value(text, "fortran_order")?.starts_with("True");
    ensure!(
        !fortran || shape.len() < 2,
        "it is stored column by column; save it with np.save(file, np.ascontiguousarray(array))"
    );
    Ok(Header { dtype: Dtype::parse(descr)?, shape })
}

/// An array in memory, its numbers still as the file has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) header: Header,
    bytes: Vec<u8>,
}

impl Array {
    /// Reads a whole file. Takes memory only for what is there, whatever the header says.
    pub(crate) fn read(reader: &mut impl Read) -> anyhow::Result<Self> {
        let header = Header::read(reader)?;
        let expected = header.bytes()?;
        let mut bytes = Vec::new();
        reader.take(expected as u64 + 1).read_to_end(&mut bytes).context("it cannot be read")?;
        let found = bytes.len();
        ensure!(found >= expected, "it ends early: {found} bytes of numbers, not {expected}");
        ensure!(found == expected, "it goes on after its {expected} bytes of numbers");
        Ok(Self { header, bytes })
    }

    /// The numbers of an array of bytes.
    pub(crate) fn into_bytes(self) -> anyhow::Result<Vec<u8>> {
        let dtype = self.header.dtype;
        ensure!((dtype.kind, dtype.size) == ('u', 1), "it holds {dtype}, not uint8");
        Ok(self.bytes)
    }

    /// The numbers of an array of `float32`, or of `float64`, rounded.
    pub(crate) fn to_floats(&self) -> anyhow::Result<Vec<f32>> {
        let dtype = self.header.dtype;
        ensure!(dtype.kind == 'f', "it holds {dtype}, not float32");
        let wide = dtype.size == 8;
        Ok(self
            .words()
            .map(
                |word| if wide { f64::from_bits(word) as f32 } else { f32::from_bits(word as u32) },
            )
            .collect())
    }

    /// The numbers of an array of integers of any kind, those that do not fit as none.
    pub(crate) fn integers(&self) -> anyhow::Result<impl Iterator<Item = i128>> {
        let Dtype { kind, size, .. } = self.header.dtype;
        ensure!(kind != 'f', "it holds {}, but labels are integers", self.header.dtype);
        Ok(self.words().map(move |word| {
            let unused = 64 - 8 * size as u32;
            match kind {
                'i' => i128::from((word << unused) as i64 >> unused),
                _ => i128::from(word),
            }
        }))
    }

    /// The bits of every number, the lowest first.
    fn words(&self) -> impl Iterator<Item = u64> {
        let Dtype { size, big_endian, .. } = self.header.dtype;
        self.bytes.chunks_exact(size).map(move |number| {
            let digits = number.iter().enumerate();
            digits.fold(0, |word, (at, &byte)| {
                let place = if big_endian { size - 1 - at } else { at };
                word | u64::from(byte) << (8 * place)
            })
        })
    }
}

/// Where an array is: a file, or an array in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    path: PathBuf,
    /// Its name, in an archive.
    member: Option<String>,
}

impl Source {
    /// `file.npy`, `file.npz:array`, or `file.npz` with the array that has this default name.
    pub(crate) fn new(folder: &Path, name: &str, default: &str) -> Self {
        let is_archive = |file: &str| file.to_ascii_lowercase().ends_with(".npz");
        match name.rsplit_once(':') {
            Some((file, array)) if is_archive(file) => {
                Self { path: folder.join(file), member: Some(array.to_owned()) }
            }
            _ if is_archive(name) => {
                Self { path: folder.join(name), member: Some(default.to_owned()) }
            }
            _ => Self { path: folder.join(name), member: None },
        }
    }

    /// Only what stands before the numbers.
    pub(crate) fn header(&self) -> anyhow::Result<Header> {
        self.open(|mut reader| Header::read(&mut reader))
    }

    /// All of it.
    pub(crate) fn array(&self) -> anyhow::Result<Array> {
        self.open(|mut reader| Array::read(&mut reader))
    }

    fn open<T>(&self, read: impl FnOnce(&mut dyn Read) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let file = File::open(&self.path).map(BufReader::new);
        let content = file.map_err(anyhow::Error::from).and_then(|mut file| match &self.member {
            None => read(&mut file),
            Some(member) => in_archive(file, member, read),
        });
        content.with_context(|| {
            format!(
                "{self} cannot be used; data.folder and the file names of [data] say where it is"
            )
        })
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())?;
        self.member.as_ref().map_or(Ok(()), |member| write!(f, ":{member}"))
    }
}

/// Reads an array of an archive.
pub(crate) fn in_archive<T>(
    file: impl Read + Seek,
    member: &str,
    read: impl FnOnce(&mut dyn Read) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut archive = ZipArchive::new(file).context("it is no .npz file")?;
    let names = archive.file_names().filter_map(Result::ok);
    let names: Vec<String> = names.map(|name| name.trim_end_matches(".npy").to_owned()).collect();
    let found = archive.by_name(&format!("{member}.npy"));
    let mut content = found
        .with_context(|| format!("it has no array {member:?}; it has {}", names.join(", ")))?;
    read(&mut content)
}

#[cfg(test)]
pub(in super::super) mod tests {
    use std::io::{Cursor, Write};

    use zip::write::SimpleFileOptions;

    use super::*;

    /// The file that holds an array.
    pub(in super::super::super) fn written(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
        let mut header =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        while (10 + header.len() + 1) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        let mut content = b"\x93NUMPY\x01\x00".to_vec();
        content.extend((header.len() as u16).to_le_bytes());
        content.extend(header.as_bytes());
        content.extend(bytes);
        content
    }

    /// An archive with one array.
    pub(in super::super::super) fn archived(member: &str, array: &[u8]) -> Vec<u8> {
        let mut archive = zip::ZipWriter::new(Cursor::new(vec![]));
        let options = SimpleFileOptions::default();
        archive.start_file(format!("{member}.npy"), options).unwrap();
        archive.write_all(array).unwrap();
        archive.finish().unwrap().into_inner()
    }

    fn read(content: &[u8]) -> anyhow::Result<Array> {
        Array::read(&mut &content[..])
    }

    #[test]
    fn numbers_of_every_type_are_read() {
        let array = read(&written("|u1", "(2, 3)", &[1, 2, 3, 4, 5, 255])).unwrap();
        assert_eq!(array.header.shape, [2, 3]);
        assert_eq!(array.integers().unwrap().last(), Some(255));
        assert_eq!(array.into_bytes().unwrap(), [1, 2, 3, 4, 5, 255]);
        for (descr, bytes) in [
            ("<f4", 1.5f32.to_le_bytes().to_vec()),
            (">f4", 1.5f32.to_be_bytes().to_vec()),
            ("<f8", 1.5f64.to_le_bytes().to_vec()),
            (">f8", 1.5f64.to_be_bytes().to_vec()),
        ] {
            let array = read(&written(descr, "(1,)", &bytes)).unwrap();
            assert_eq!(array.to_floats().unwrap(), [1.5], "{descr}");
            assert!(array.integers().is_err() && array.into_bytes().is_err());
        }
        for (descr, bytes, number) in [
            ("|i1", vec![0xfe], -2),
            ("<i2", vec![0xfe, 0xff], -2),
            (">i4", vec![0, 0, 1, 2], 258),
            ("<i8", (-9i64).to_le_bytes().to_vec(), -9),
            ("<u8", u64::MAX.to_le_bytes().to_vec(), i128::from(u64::MAX)),
        ] {
            let array = read(&written(descr, "(1,)", &bytes)).unwrap();
            assert_eq!(array.integers().unwrap().collect::<Vec<_>>(), [number], "{descr}");
            assert!(array.to_floats().is_err());
        }
    }

    #[test]
    fn damage_is_refused() {
        let good = written("<f4", "(2, 2)", &[0; 16]);
        let refused = |content: &[u8], word: &str| {
            let message = format!("{:#}", read(content).unwrap_err());
            assert!(message.contains(word), "no {word:?} in {message}");
        };
        refused(&good[..5], "too short");
        refused(&good[..30], "in its header");
        refused(&good[..good.len() - 1], "ends early: 15 bytes");
        refused(&[&good[..], &[0]].concat(), "goes on after");
        refused(b"PNG\x01\x00\x00\x00\x00\x00", "no .npy file");
        refused(&written("<f2", "(2,)", &[0; 4]), "astype");
        refused(&written("<U3", "(2,)", &[0; 4]), "astype");
        refused(&written("é4", "(2,)", &[0; 4]), "astype");
        refused(&written("<f4", "(4294967296, 4294967296, 9)", &[]), "makes no sense");
        refused(&written("<f4", "(-1,)", &[]), "tuple of sizes");
        let columns = String::from_utf8_lossy(&good[10..]).replace("False", "True ");
        refused(&[&good[..10], columns.as_bytes()].concat(), "ascontiguousarray");
        let long = [b"\x93NUMPY\x02\x00".as_slice(), &u32::MAX.to_le_bytes()].concat();
        refused(&long, "4294967295 bytes");
    }

    #[test]
    fn an_archive_gives_its_arrays_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let array = written("|u1", "(3,)", &[7, 8, 9]);
        std::fs::write(folder.path().join("set.npz"), archived("x_train", &array)).unwrap();
        let source = Source::new(folder.path(), "set.npz:x_train", "train_images");
        assert_eq!(source.header().unwrap().shape, [3]);
        assert_eq!(source.array().unwrap(), read(&array).unwrap());
        let other = Source::new(folder.path(), "set.npz", "train_images");
        let message = format!("{:#}", other.array().unwrap_err());
        for word in ["set.npz:train_images", "\"train_images\"", "it has x_train"] {
            assert!(message.contains(word), "no {word:?} in {message}");
        }
    }
}
