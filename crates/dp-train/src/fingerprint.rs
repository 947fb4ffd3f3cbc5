//! Fingerprints: SHA-256 of a strategy `C`, so that a file can say which matrix it means, or of other bytes.

use std::fmt;
use std::str::FromStr;

use mf_core::{Noising, Strategy};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// SHA-256, of bytes or of a strategy's entries as f64 bits in little-endian order.
///
/// A Toeplitz strategy hashes `"toeplitz"`, `n`, `p` and its `p` coefficients; one with a banded inverse
/// `"inverse"`, `n`, `p` and the `p` coefficients of the inverse; one with buffers `"buffered"`, `n`, `m` and
/// weight and decay of each; any other `"rows"`, `n`, `p` and for every row its entries by lag, diagonal
/// first. Two strategies that differ in one
/// bit of one entry differ here. Written as 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of `C`. O(p) for a Toeplitz strategy, O(n p) for one given by rows.
    pub fn of(strategy: &Strategy) -> Self {
        let mut hash = Sha256::new();
        let mut begin = |kind: &[u8], size: usize| {
            hash.update(kind);
            hash.update((strategy.steps() as u64).to_le_bytes());
            hash.update((size as u64).to_le_bytes());
        };
        let numbers = |hash: &mut Sha256, entries: &[f64]| {
            entries.iter().for_each(|c| hash.update(c.to_le_bytes()));
        };
        match (strategy.noising(), strategy.as_toeplitz()) {
            (Noising::Taps(taps), _) => {
                begin(b"inverse", taps.len());
                numbers(&mut hash, taps);
            }
            (Noising::Buffers(buffers), _) => {
                begin(b"buffered", buffers.len());
                buffers.iter().for_each(|x| numbers(&mut hash, &[x.weight, x.decay]));
            }
            (Noising::Recurrence, Some(coefficients)) => {
                begin(b"toeplitz", coefficients.len());
                numbers(&mut hash, coefficients);
            }
            (Noising::Recurrence, None) => {
                begin(b"rows", strategy.bands());
                (0..strategy.steps()).for_each(|i| numbers(&mut hash, strategy.row(i)));
            }
        }
        Self(hash.finalize().into())
    }

    /// The fingerprint of a file or of any other bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The fingerprint that a hash has computed elsewhere.
    pub fn from_bytes(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

/// A text is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a fingerprint is 64 hexadecimal digits")]
pub struct NotAFingerprint;

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Self, NotAFingerprint> {
        let digits: Vec<u8> = text
            .chars()
            .map(|c| c.to_digit(16).map(|digit| digit as u8).ok_or(NotAFingerprint))
            .collect::<Result<_, _>>()?;
        let (pairs, rest) = digits.as_chunks::<2>();
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| 16 * high + low).collect();
        match (bytes.try_into(), rest) {
            (Ok(bytes), []) => Ok(Self(bytes)),
            _ => Err(NotAFingerprint),
        }
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = NotAFingerprint;

    fn try_from(text: String) -> Result<Self, NotAFingerprint> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_changes_it_and_text_keeps_it() {
        let one = Fingerprint::of(&Strategy::toeplitz(5, vec![1.0, 0.5]).unwrap());
        let bit = 0.5_f64.next_up();
        let two = Fingerprint::of(&Strategy::toeplitz(5, vec![1.0, bit]).unwrap());
        let longer = Fingerprint::of(&Strategy::toeplitz(6, vec![1.0, 0.5]).unwrap());
        assert!(one != two && one != longer);
        assert_eq!(one.to_string().parse(), Ok(one));
        assert_eq!("12".parse::<Fingerprint>(), Err(NotAFingerprint));
        assert_eq!("x".repeat(64).parse::<Fingerprint>(), Err(NotAFingerprint));
    }
}
