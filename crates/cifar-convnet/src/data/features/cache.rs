//! Features in a file beside the data that they are made of, so that they are made once. The file shows as much of
//! the examples as the data does, and only its owner may read it.
//!
//! ```text
//! "bandroot features 1\n"   key, 32 bytes   numbers, f16 little-endian   SHA-256 of all before, 32 bytes
//! ```
//!
//! The key is a hash of the pictures, the kind of features and their constants; it also gives the file its name,
//! which is hidden because class folders may lie beside it. A file that is not whole is made again, and so is one with
//! features that are found not to be those of their examples.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use dp_train::fingerprint::Fingerprint;
use half::f16;
use sha2::{Digest, Sha256};

use super::super::{Numbers, Split};
use super::Extraction;
use crate::files;

/// Changes whenever the same pictures get other features, or the file another form.
const MARK: &[u8] = b"bandroot features 1\n";

/// Bytes that are read and written at a time.
const PIECE: usize = 1 << 20;

/// Examples whose features are compared when a file is read: a tenth of a second.
const SPOT_CHECKS: usize = 64;

/// The features of a split from the cache in `folder`; else made, and kept there if that is possible.
pub(super) fn read_or_make(
    folder: &Path,
    extraction: &Extraction,
    split: &Split,
    mirrored: bool,
) -> Vec<f16> {
    if split.is_empty() {
        return Vec::new();
    }
    let key = key(extraction, split, mirrored);
    let path = folder.join(format!(".features-{}", &key.to_string()[..16]));
    let count = split.len() * extraction.shape().numbers();
    let found = read(&path, &key, count).and_then(|numbers| {
        numbers.map(|numbers| spot_check(extraction, split, mirrored, numbers)).transpose()
    });
    match found {
        Ok(Some(numbers)) => return numbers,
        Ok(None) => {}
        Err(reason) => {
            log::warn!("{} is not used: {reason}; the features are made again", path.display());
        }
    }
    log::info!("features of {} images are made and kept in {}", split.len(), path.display());
    let numbers = extraction.features(split, mirrored);
    if let Err(error) = write(&path, &key, &numbers) {
        log::warn!("{error:#}; the features will have to be made again");
    }
    numbers
}

/// Makes the features of some examples again, drawn anew every time, and compares: the key and the sum of a file say
/// what it was written for, not that it was written by this program. A cache of which a share s is wrong is found with
/// probability `1 - (1 - s)^64`.
fn spot_check(
    extraction: &Extraction,
    split: &Split,
    mirrored: bool,
    numbers: Vec<f16>,
) -> Result<Vec<f16>, String> {
    let mut words = [0; 4 * SPOT_CHECKS];
    getrandom::fill(&mut words).map_err(|error| error.to_string())?;
    let word = |word: &[u8; 4]| u32::from_le_bytes(*word) % split.len() as u32;
    let indices: Vec<u32> = words.as_chunks().0.iter().map(word).collect();
    let again = extraction.features_of(split, &indices, mirrored);
    let len = extraction.shape().numbers();
    for (&index, again) in indices.iter().zip(again.chunks_exact(len)) {
        let found = &numbers[index as usize * len..][..len];
        // Other processors may round differently.
        let is_near = |(a, b): (&f16, &f16)| {
            let (a, b) = (a.to_f32(), b.to_f32());
            a == b || (a - b).abs() <= 1e-2 * (1.0 + a.abs())
        };
        if !found.iter().zip(again).all(is_near) {
            return Err(format!("its features of example {index} are not those of that example"));
        }
    }
    Ok(numbers)
}

/// A hash of all that the features follow from.
fn key(extraction: &Extraction, split: &Split, mirrored: bool) -> Fingerprint {
    let mut hash = Sha256::new();
    hash.update(MARK);
    hash.update(format!("{}, {}, mirrored {mirrored}\n", extraction.kind(), extraction.pictures()));
    for constant in extraction.constants().as_flattened() {
        hash.update(constant.to_le_bytes());
    }
    if let Numbers::Floats(_, scaling) = split.numbers() {
        // Its digits give every bit back.
        hash.update(format!("{scaling:?}"));
    }
    hash.update(split.sha256().bytes());
    Fingerprint::from_bytes(hash.finalize().into())
}

/// The numbers of a file; none if there is no file.
fn read(path: &Path, key: &Fingerprint, count: usize) -> Result<Option<Vec<f16>>, String> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let text = |error: io::Error| error.to_string();
    let length = file.metadata().map_err(text)?.len();
    let mut head = vec![0; MARK.len() + 32];
    let expected = (head.len() + 2 * count + 32) as u64;
    if length != expected {
        return Err(format!("it has {length} bytes, not {expected}"));
    }
    file.read_exact(&mut head).map_err(text)?;
    if head[..MARK.len()] != *MARK || head[MARK.len()..] != *key.bytes() {
        return Err("it is of other features or other data".to_owned());
    }
    let mut hash = Sha256::new();
    hash.update(&head);
    let mut numbers = Vec::with_capacity(count);
    let mut piece = vec![0; PIECE];
    while numbers.len() < count {
        let piece = &mut piece[..(2 * (count - numbers.len())).min(PIECE)];
        file.read_exact(piece).map_err(text)?;
        hash.update(&*piece);
        numbers.extend(piece.chunks_exact(2).map(|pair| f16::from_le_bytes([pair[0], pair[1]])));
    }
    let mut sum = [0; 32];
    file.read_exact(&mut sum).map_err(text)?;
    if hash.finalize()[..] != sum {
        return Err("it is damaged".to_owned());
    }
    Ok(Some(numbers))
}

fn write(path: &Path, key: &Fingerprint, numbers: &[f16]) -> anyhow::Result<()> {
    files::write_secret_with(path, |file| {
        let mut hash = Sha256::new();
        let mut put = |bytes: &[u8]| {
            hash.update(bytes);
            file.write_all(bytes)
        };
        put(MARK)?;
        put(key.bytes())?;
        let mut piece = Vec::with_capacity(PIECE);
        for numbers in numbers.chunks(PIECE / 2) {
            piece.clear();
            piece.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            put(&piece)?;
        }
        let sum = hash.finalize();
        file.write_all(&sum)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{Features, Kind};
    use super::*;
    use crate::data::textures::Textures;

    #[test]
    fn features_are_read_again_and_what_is_not_theirs_is_made_again() {
        let data = Textures { train: 3, test: 2, seed: 1 }.draw();
        let features = Features { kind: Kind::Scattering, scales: 3, angles: 2 };
        let extraction = Extraction::new(features, data.shape);
        let folder = tempfile::tempdir().unwrap();
        let made =
            |split: &Split, mirrored| read_or_make(folder.path(), &extraction, split, mirrored);
        let names = || -> Vec<_> {
            let mut paths: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            paths
        };
        let first = made(&data.train, false);
        assert_eq!(first, extraction.features(&data.train, false));
        let path = names().remove(0);
        let whole = fs::read(&path).unwrap();
        // What is in the file is what is used.
        let key = key(&extraction, &data.train, false);
        assert_eq!(read(&path, &key, first.len()).unwrap().unwrap(), first);
        for damaged in [
            whole[..whole.len() - 1].to_vec(),
            vec![],
            [&b"other"[..], &whole[5..]].concat(),
            whole.iter().enumerate().map(|(at, x)| x ^ u8::from(at == 200)).collect(),
        ] {
            fs::write(&path, &damaged).unwrap();
            assert!(read(&path, &key, first.len()).is_err());
            assert_eq!(made(&data.train, false), first);
            assert_eq!(fs::read(&path).unwrap(), whole, "and kept");
        }
        made(&data.train, true);
        made(&data.test, false);
        assert_eq!(names().len(), 3, "each has a file of its own");
        let foreign = names().into_iter().find(|other| *other != path).unwrap();
        fs::copy(foreign, &path).unwrap();
        assert_eq!(made(&data.train, false), first);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "for its owner alone");
        }
        // A forged file: whole, for these pictures, with the features of others.
        let forged: Vec<f16> = first.iter().rev().copied().collect();
        write(&path, &key, &forged).unwrap();
        assert_eq!(read(&path, &key, first.len()).unwrap().unwrap(), forged);
        assert_eq!(made(&data.train, false), first);
        // Nowhere to keep them: they are made all the same.
        let nowhere = folder.path().join("nowhere");
        assert_eq!(read_or_make(&nowhere, &extraction, &data.train, false), first);
    }
}
