//! Damage to binary files: bytes, numbers, lengths and what they announce; with the checksum made right again
//! in half of the inputs, so that what stands behind it is reached.

use std::ops::Range;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::random::Random;

const DIGEST: usize = 32;

const WORDS: [u64; 14] = [
    0,
    1,
    2,
    7,
    8,
    255,
    u16::MAX as u64,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 36,
    1 << 40,
    i64::MAX as u64,
    u64::MAX - 7,
    u64::MAX,
];

const FLOATS: [f64; 9] =
    [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324, 1e-320];

/// A file with what was found out about its layout, from its bytes alone.
pub(crate) struct Layout {
    /// What a SHA-256 stands behind, digest not included.
    pub(crate) sealed: Vec<Range<usize>>,
    /// Ranges that a number in front of them gives the length of, for the whole file and each sealed part.
    parts: Vec<Vec<Part>>,
}

/// Bytes with their length in front.
#[derive(Clone)]
struct Part {
    /// Where the length stands.
    at: usize,
    width: Width,
    content: Range<usize>,
    /// The content, if it is JSON.
    tree: Option<Value>,
}

#[derive(Clone, Copy)]
enum Width {
    LittleEndian64,
    BigEndian32,
}

impl Layout {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let sealed = sealed(bytes);
        let whole = std::iter::once(0..bytes.len());
        let parts = whole.chain(sealed.iter().cloned()).map(|range| parts(&bytes[range])).collect();
        Self { sealed, parts }
    }
}

/// Where `SHA-256(bytes[from..to])` stands at `to`. Found by trying; a longer file would take a while.
fn sealed(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    'next: while from + DIGEST < bytes.len() && bytes.len() < 1 << 14 {
        let mut hash = Sha256::new();
        for to in from + 1..=bytes.len() - DIGEST {
            hash.update(&bytes[to - 1..to]);
            if hash.clone().finalize()[..] == bytes[to..to + DIGEST] {
                found.push(from..to);
                from = to + DIGEST;
                continue 'next;
            }
        }
        from += 1;
    }
    found
}

/// Every place that could be a length. What is none does no harm.
fn parts(bytes: &[u8]) -> Vec<Part> {
    let mut found = Vec::new();
    for at in 0..bytes.len().min(1 << 14) {
        let rest = &bytes[at..];
        let little = rest.first_chunk::<8>().map(|word| (u64::from_le_bytes(*word), 8));
        let big = rest.first_chunk::<4>().map(|word| (u64::from(u32::from_be_bytes(*word)), 4));
        for (length, width) in little.into_iter().chain(big) {
            let start = at + width;
            if length == 0 || length > (bytes.len() - start) as u64 {
                continue;
            }
            let content = start..start + length as usize;
            let tree = serde_json::from_slice(&bytes[content.clone()]).ok();
            let tree = tree.filter(|tree: &Value| tree.is_object());
            let width = if width == 8 { Width::LittleEndian64 } else { Width::BigEndian32 };
            found.push(Part { at, width, content, tree });
        }
    }
    found
}

/// Damages the file once or a few times; says whether its checksums are right again.
pub(crate) fn damage(
    bytes: &mut Vec<u8>,
    layout: &Layout,
    other: &[u8],
    random: &mut Random,
) -> bool {
    if layout.sealed.is_empty() || random.percent(50) {
        damage_region(bytes, &layout.parts[0], other, random);
        return false;
    }
    let chosen = random.below(layout.sealed.len());
    let range = layout.sealed[chosen].clone();
    let mut payload = bytes[range.clone()].to_vec();
    damage_region(&mut payload, &layout.parts[1 + chosen], other, random);
    let digest = Sha256::digest(&payload);
    payload.extend_from_slice(&digest);
    bytes.splice(range.start..range.end + DIGEST, payload);
    true
}

fn damage_region(bytes: &mut Vec<u8>, parts: &[Part], other: &[u8], random: &mut Random) {
    // Lengths first: after anything else they stand elsewhere.
    let first = if parts.is_empty() { 100 } else { random.below(100) };
    if first < 60 {
        let trees: Vec<&Part> = parts.iter().filter(|part| part.tree.is_some()).collect();
        match first {
            0..30 if !trees.is_empty() => {
                damage_tree(bytes, trees[random.below(trees.len())], random);
            }
            _ => damage_part(bytes, random.pick(parts), other, random),
        }
        if random.percent(80) {
            return;
        }
    }
    for _ in 0..1 + random.below(3) {
        damage_bytes(bytes, other, random);
    }
}

/// Other JSON of the right length.
fn damage_tree(bytes: &mut Vec<u8>, part: &Part, random: &mut Random) {
    let Some(tree) = &part.tree else { return };
    let mut damaged = tree.clone();
    for _ in 0..1 + random.below(3) {
        super::json::damage(&mut damaged, tree, random);
    }
    replace(bytes, part, damaged.to_string().as_bytes());
}

/// A wrong length, or a right one of other content.
fn damage_part(bytes: &mut Vec<u8>, part: &Part, other: &[u8], random: &mut Random) {
    if random.percent(50) {
        let true_length = part.content.len() as u64;
        let near = [true_length - 1, true_length + 1, 2 * true_length];
        let length = if random.percent(50) { *random.pick(&near) } else { *random.pick(&WORDS) };
        write_length(bytes, part, length);
        return;
    }
    let mut content = bytes[part.content.clone()].to_vec();
    damage_bytes(&mut content, other, random);
    replace(bytes, part, &content);
}

fn replace(bytes: &mut Vec<u8>, part: &Part, content: &[u8]) {
    write_length(bytes, part, content.len() as u64);
    bytes.splice(part.content.clone(), content.iter().copied());
}

fn write_length(bytes: &mut [u8], part: &Part, length: u64) {
    match part.width {
        Width::LittleEndian64 => bytes[part.at..][..8].copy_from_slice(&length.to_le_bytes()),
        Width::BigEndian32 => bytes[part.at..][..4].copy_from_slice(&(length as u32).to_be_bytes()),
    }
}

/// One change somewhere, more often near the start, where headers are.
pub(crate) fn damage_bytes(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let reach = if random.percent(40) { bytes.len().min(64) } else { bytes.len() };
    let at = random.below(reach);
    match random.below(12) {
        _ if bytes.is_empty() => bytes.push(random.next() as u8),
        0 | 1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes[at] = random.next() as u8,
        3 => {
            let digits: Vec<usize> =
                (at..bytes.len()).filter(|&i| bytes[i].is_ascii_digit()).take(8).collect();
            if let Some(&digit) = digits.first() {
                bytes[digit] = b'0' + random.below(10) as u8;
            }
        }
        4 | 5 => {
            let word = *random.pick(&WORDS);
            let (four, eight) = (word as u32, word);
            match random.below(4) {
                0 => overwrite(bytes, at, &four.to_le_bytes()),
                1 => overwrite(bytes, at & !3, &four.to_be_bytes()),
                2 => overwrite(bytes, at, &eight.to_le_bytes()),
                _ => overwrite(bytes, at & !7, &eight.to_be_bytes()),
            }
        }
        6 => {
            let float = *random.pick(&FLOATS);
            match random.below(2) {
                0 => overwrite(bytes, at, &(float as f32).to_le_bytes()),
                _ => overwrite(bytes, at, &float.to_le_bytes()),
            }
        }
        7 => drop(bytes.drain(random.range(bytes.len()))),
        8 => {
            let copy = bytes[random.range(bytes.len())].to_vec();
            drop(bytes.splice(at..at, copy));
        }
        9 => {
            let theirs = random.range(other.len());
            let ours = random.range(bytes.len());
            drop(bytes.splice(ours, other[theirs].iter().copied()));
        }
        10 => bytes.truncate(at),
        _ => {
            let more = 1 + random.below(32);
            bytes.extend((0..more).map(|_| random.next() as u8));
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, word: &[u8]) {
    for (byte, new) in bytes[at..].iter_mut().zip(word) {
        *byte = *new;
    }
}
