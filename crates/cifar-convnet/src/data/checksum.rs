//! MD5 sums of files that are known. They find damage, not malice.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail};
use md5::{Digest, Md5};

/// A file and the MD5 it must have.
pub struct KnownFile {
    /// Its name.
    pub file: &'static str,
    /// The MD5 that it must have.
    pub md5: &'static str,
}

impl KnownFile {
    /// Checks the content against the known sum.
    ///
    /// # Errors
    /// If it differs; the message gives both sums. `from` says where the content came from.
    pub fn check(&self, content: &[u8], from: &str) -> anyhow::Result<()> {
        let found = hex(Md5::new().chain_update(content));
        let Self { file, md5 } = self;
        if found != *md5 {
            bail!("{from}: {file} has MD5 {found}, it must be {md5}");
        }
        Ok(())
    }
}

/// The digest in hexadecimal digits.
pub fn hex(digest: Md5) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The MD5 of a file, read in pieces. About 2 ms per MB.
pub fn of_file(path: &Path) -> anyhow::Result<String> {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let mut digest = Md5::new();
        let mut piece = vec![0; 1 << 20];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(hex(digest)),
                count => digest.update(&piece[..count]),
            }
        }
    };
    read().with_context(|| format!("could not read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_rfc_1321() {
        let known = KnownFile { file: "abc", md5: "900150983cd24fb0d6963f7d28e17f72" };
        known.check(b"abc", "here").unwrap();
        let message = known.check(b"abd", "here").unwrap_err().to_string();
        assert!(message.contains("here") && message.contains(known.md5), "{message}");
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(of_file(file.path()).unwrap(), "d41d8cd98f00b204e9800998ecf8427e");
    }
}
