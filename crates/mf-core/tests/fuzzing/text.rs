//! Damage to text: tokens, lines and bytes. It knows no grammar, so it serves TOML, JSON and arguments.

use super::random::Random;

/// Numbers at the ends of their types, numbers that are none, and what breaks a grammar.
const INTERESTING: [&str; 52] = [
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "0.0",
    "-0.0",
    "0.5",
    "1.0",
    "1.0000000000000002",
    "1e-5",
    "5e-324",
    "1e-320",
    "1e308",
    "1.7976931348623157e308",
    "1e309",
    "-1e308",
    "1e999999999999",
    "nan",
    "-nan",
    "inf",
    "-inf",
    "NaN",
    "255",
    "256",
    "65536",
    "1000000",
    "2147483648",
    "4294967295",
    "4294967296",
    "1099511627776",
    "4611686018427387904",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "0x7fffffffffffffff",
    "1_000",
    "null",
    "true",
    "\"\"",
    "''",
    "[]",
    "{}",
    "1979-05-27T07:32:00Z",
    "\u{e9}",
    "\u{1d11e}",
    "\u{feff}",
    "\u{0}",
];

/// What opens more and more; a reader that follows it down must stop before the stack ends.
const DEEP: [&str; 5] = ["[", "{\"a\":", "{a=", "a.", "[["];

/// The tokens of some texts, to put where others stood.
pub(crate) struct Words(Vec<Vec<u8>>);

impl Words {
    pub(crate) fn of<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut words: Vec<Vec<u8>> = texts
            .flat_map(|text| tokens(text).into_iter().map(|token| text[token].to_vec()))
            .collect();
        words.sort();
        words.dedup();
        words.retain(|word| word.len() <= 64);
        Self(words)
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'+') || byte >= 0x80
}

/// Where the words and numbers of a text stand.
fn tokens(text: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut start = None;
    for at in 0..=text.len() {
        let inside = text.get(at).is_some_and(|&byte| is_word(byte));
        match (start, inside) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                found.push(from..at);
                start = None;
            }
            _ => {}
        }
    }
    found
}

fn lines(text: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut start = 0;
    let line = |line: &[u8]| {
        start += line.len();
        start - line.len()..start
    };
    text.split_inclusive(|&byte| byte == b'\n').map(line).collect()
}

/// Damages the text once; `other` is a text to take from.
pub(crate) fn damage(text: &mut Vec<u8>, other: &[u8], words: &Words, random: &mut Random) {
    match random.below(20) {
        0..=6 => {
            let numbers: Vec<_> = tokens(text)
                .into_iter()
                .filter(|token| text[token.start].is_ascii_digit() || text[token.start] == b'-')
                .collect();
            let tokens = if random.percent(70) { numbers } else { tokens(text) };
            if tokens.is_empty() {
                return;
            }
            let token = random.pick(&tokens).clone();
            text.splice(token, random.pick(&INTERESTING).bytes());
        }
        7..=9 => {
            let tokens = tokens(text);
            if tokens.is_empty() || words.0.is_empty() {
                return;
            }
            let token = random.pick(&tokens).clone();
            text.splice(token, random.pick(&words.0).iter().copied());
        }
        10..=13 => {
            let lines = lines(text);
            if lines.is_empty() {
                return;
            }
            let (from, to) = (random.pick(&lines).clone(), random.pick(&lines).start);
            match random.below(3) {
                0 => drop(text.drain(from)),
                1 => {
                    let copy = text[from].to_vec();
                    drop(text.splice(to..to, copy));
                }
                _ => {
                    let theirs = self::lines(other);
                    if !theirs.is_empty() {
                        let copy = other[random.pick(&theirs).clone()].to_vec();
                        drop(text.splice(to..to, copy));
                    }
                }
            }
        }
        14 if random.percent(10) => {
            let at = random.below(text.len() + 1);
            let deep = random.pick(&DEEP).repeat(1 << random.below(15));
            text.splice(at..at, deep.bytes());
        }
        15 => {
            let at = random.below(text.len() + 1);
            text.splice(at..at, random.pick(&INTERESTING).bytes());
        }
        _ => super::binary::damage_bytes(text, other, random),
    }
}
