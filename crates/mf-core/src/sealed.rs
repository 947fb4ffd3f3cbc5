//! Files that know whether they are whole: a version, parts one after the other, SHA-256 of all that.
//!
//! Numbers are little-endian. The checksum finds damage, not malice: whoever changes a file can
//! compute it again. Bytes are hashed as they pass through, so that a file of any size needs no copy.

use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};
use thiserror::Error as ThisError;

/// No part is longer; a length beyond it is damage, not a reason to allocate.
const LONGEST: u64 = 1 << 36;

/// Numbers that are converted at a time.
const PIECE: usize = 1 << 16;

/// Why sealed bytes cannot be read.
#[derive(Debug, ThisError)]
pub enum SealedError {
    /// The bytes begin with another version.
    #[error("it has another format or version")]
    Version,
    /// The bytes end too early, have an impossible length, or contradict their checksum.
    #[error("it is damaged or cut short")]
    Damaged,
    /// Reading failed.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for SealedError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => SealedError::Damaged,
            _ => SealedError::Io(error),
        }
    }
}

/// Writes a version and parts, and hashes them.
pub struct SealedWriter<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> SealedWriter<W> {
    /// Writes the version.
    ///
    /// # Errors
    /// Those of the writer, as of all methods here.
    pub fn new(inner: W, version: &[u8; 16]) -> io::Result<Self> {
        let mut writer = Self { inner, hash: Sha256::new() };
        writer.put(version)?;
        Ok(writer)
    }

    /// Writes bytes whose number the reader knows.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.inner.write_all(bytes)
    }

    /// Writes bytes with their length in front.
    pub fn put_part(&mut self, part: &[u8]) -> io::Result<()> {
        self.put(&(part.len() as u64).to_le_bytes())?;
        self.put(part)
    }

    /// Writes numbers whose count the reader knows, without a copy of all of them.
    pub fn put_numbers<T: Copy, const N: usize>(
        &mut self,
        numbers: &[T],
        to_bytes: impl Fn(T) -> [u8; N],
    ) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(N * PIECE.min(numbers.len()));
        for piece in numbers.chunks(PIECE) {
            bytes.clear();
            bytes.extend(piece.iter().flat_map(|x| to_bytes(*x)));
            self.put(&bytes)?;
        }
        Ok(())
    }

    /// Writes single-precision floats with their length in bytes in front.
    pub fn put_floats(&mut self, floats: &[f32]) -> io::Result<()> {
        self.put(&(4 * floats.len() as u64).to_le_bytes())?;
        self.put_numbers(floats, f32::to_le_bytes)
    }

    /// Writes the checksum. What is written to the inner writer afterwards is not covered by it.
    pub fn finish(mut self) -> io::Result<W> {
        self.inner.write_all(&self.hash.finalize())?;
        self.inner.flush()?;
        Ok(self.inner)
    }
}

/// Reads the parts in the order in which they were written, and hashes them. Nothing that it returned may
/// be believed before [`finish`](Self::finish) has compared the checksum.
pub struct SealedReader<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> SealedReader<R> {
    /// Reads the version.
    ///
    /// # Errors
    /// [`SealedError::Version`] if it is another one; as of all methods here, [`SealedError::Damaged`] and
    /// [`SealedError::Io`].
    pub fn new(inner: R, version: &[u8; 16]) -> Result<Self, SealedError> {
        let mut reader = Self { inner, hash: Sha256::new() };
        if reader.array::<16>()? == *version { Ok(reader) } else { Err(SealedError::Version) }
    }

    /// Reads as many bytes as the array has.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], SealedError> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes)?;
        self.hash.update(bytes);
        Ok(bytes)
    }

    /// Reads bytes that have their length in front.
    pub fn part(&mut self) -> Result<Vec<u8>, SealedError> {
        let len = u64::from_le_bytes(self.array()?);
        if len > LONGEST {
            return Err(SealedError::Damaged);
        }
        // By what exists, not by what the length claims: a damaged length must not allocate.
        let mut bytes = Vec::new();
        self.inner.by_ref().take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != len {
            return Err(SealedError::Damaged);
        }
        self.hash.update(&bytes);
        Ok(bytes)
    }

    /// Reads as many numbers as there is room for.
    pub fn numbers<T, const N: usize>(
        &mut self,
        numbers: &mut [T],
        from_bytes: impl Fn([u8; N]) -> T,
    ) -> Result<(), SealedError> {
        let mut bytes = vec![0; N * PIECE.min(numbers.len())];
        for piece in numbers.chunks_mut(PIECE) {
            let bytes = &mut bytes[..N * piece.len()];
            self.inner.read_exact(bytes)?;
            self.hash.update(&*bytes);
            for (x, bytes) in piece.iter_mut().zip(bytes.as_chunks::<N>().0) {
                *x = from_bytes(*bytes);
            }
        }
        Ok(())
    }

    /// Reads single-precision floats that have their length in bytes in front.
    pub fn floats(&mut self) -> Result<Vec<f32>, SealedError> {
        let bytes = self.part()?;
        let (floats, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(SealedError::Damaged);
        }
        Ok(floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// Compares the checksum. What follows it is the caller's.
    pub fn finish(mut self) -> Result<R, SealedError> {
        let mut digest = [0; 32];
        self.inner.read_exact(&mut digest)?;
        if digest[..] == self.hash.finalize()[..] {
            Ok(self.inner)
        } else {
            Err(SealedError::Damaged)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &[u8; 16] = b"bandroot test 01";

    fn written() -> Vec<u8> {
        let mut writer = SealedWriter::new(Vec::new(), VERSION).unwrap();
        writer.put_part(b"note").unwrap();
        writer.put_floats(&[1.0, -2.5]).unwrap();
        writer.put_numbers(&[3.0, 4.0], f64::to_le_bytes).unwrap();
        writer.finish().unwrap()
    }

    type Parts = (Vec<u8>, Vec<f32>, [f64; 2]);

    fn read(bytes: &[u8]) -> Result<Parts, SealedError> {
        let mut reader = SealedReader::new(bytes, VERSION)?;
        let (note, floats) = (reader.part()?, reader.floats()?);
        let mut numbers = [0.0; 2];
        reader.numbers(&mut numbers, f64::from_le_bytes)?;
        reader.finish()?;
        Ok((note, floats, numbers))
    }

    #[test]
    fn what_was_written_is_read_and_any_damage_is_found() {
        let whole = written();
        assert_eq!(read(&whole).unwrap(), (b"note".to_vec(), vec![1.0, -2.5], [3.0, 4.0]));
        for at in 0..whole.len() {
            assert!(read(&whole[..at]).is_err(), "cut after {at}");
            let mut flipped = whole.clone();
            flipped[at] ^= 0x40;
            assert!(read(&flipped).is_err(), "byte {at}");
        }
        let other = SealedReader::new(&whole[..], b"bandroot test 02").map(|_| ());
        assert!(matches!(other, Err(SealedError::Version)));
    }
}
