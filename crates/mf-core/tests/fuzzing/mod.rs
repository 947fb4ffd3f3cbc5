//! Fuzzing on the stable toolchain: damaged inputs for every reader of files, made from honest ones.
//!
//! One engine for all crates, included with `#[path]` where it is used: a crate of its own would be one more
//! thing to publish and to version, and this folder is no test program by itself. It lies in the crate on
//! which the others stand.
//!
//! A target is a corpus of honest inputs and a judge. The judge reads an input and says whether it was
//! accepted, or what is wrong with that; a panic, or more memory than the target allows, is wrong as
//! well. An input follows from (target, seed, index) alone:
//!
//! ```text
//! BANDROOT_FUZZ_INPUTS=1000000   inputs of each target, in place of a few thousand; fewer of slow ones
//! BANDROOT_FUZZ_SEED=2           other ones
//! BANDROOT_FUZZ_INDEX=1234       only this one, which an earlier run complained about
//! ```

#![allow(dead_code, reason = "no crate has a use for all of it")]

pub(crate) mod random;

pub(crate) mod allocation;

pub(crate) mod binary;

pub(crate) mod text;

pub(crate) mod json;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use allocation::Allocated;
use random::Random;

/// What the inputs are made of, which decides how they are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Json,
    Binary,
}

/// A reader of files under attack.
pub(crate) struct Target {
    /// Its name in the records.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Honest inputs, which must be accepted.
    pub(crate) corpus: Vec<Vec<u8>>,
    /// Inputs of a short run.
    pub(crate) inputs: u64,
    /// A long run divides its inputs by this; 1 unless one of them takes milliseconds.
    pub(crate) cost: u64,
    /// The most bytes that reading one input may hold at a time.
    pub(crate) most_bytes: usize,
}

/// One input.
pub(crate) struct Input<'a> {
    pub(crate) bytes: &'a [u8],
    /// The honest input that it was made from, by its place in the corpus.
    pub(crate) honest: usize,
    /// Whether the checksums were made right again after the damage.
    pub(crate) resealed: bool,
}

impl Input<'_> {
    /// The input as text, its damage included.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes).into_owned()
    }
}

/// What is known of a corpus before the first input.
struct Prepared {
    words: text::Words,
    trees: Vec<serde_json::Value>,
    layouts: Vec<binary::Layout>,
}

impl Target {
    /// Judges all inputs. The judge says whether an input was accepted; an error is a finding.
    ///
    /// # Panics
    /// With the first finding, and how to see it again.
    pub(crate) fn run(self, mut judge: impl FnMut(&Input<'_>) -> Result<bool, String>) {
        let setting = |name: &str| -> Option<u64> {
            let text = std::env::var(name).ok()?;
            Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text}")))
        };
        let inputs = setting("BANDROOT_FUZZ_INPUTS").map_or(self.inputs, |n| n / self.cost);
        let seed = setting("BANDROOT_FUZZ_SEED").unwrap_or(1);
        let only = setting("BANDROOT_FUZZ_INDEX");
        let prepared = self.prepare();
        let (mut accepted, mut most) = (0_u64, Allocated::default());
        let mut slowest = (Duration::ZERO, 0);
        let start = Instant::now();
        for index in only.map_or(0..inputs, |index| index..index + 1) {
            let (bytes, honest, resealed) = self.input(&prepared, seed, index);
            let input = Input { bytes: &bytes, honest, resealed };
            let before = Instant::now();
            let (outcome, allocated) = allocation::measure(seed, index, || {
                catch_unwind(AssertUnwindSafe(|| judge(&input)))
            });
            let took = before.elapsed();
            if took > slowest.0 {
                slowest = (took, index);
            }
            most.largest = most.largest.max(allocated.largest);
            most.peak = most.peak.max(allocated.peak);
            let wrong = match outcome {
                Err(_) => Some("it panicked".to_string()),
                Ok(Err(reason)) => Some(reason),
                Ok(Ok(false)) if (index as usize) < self.corpus.len() => {
                    Some("an honest input was refused".to_string())
                }
                Ok(Ok(yes)) => {
                    accepted += u64::from(yes);
                    let most = self.most_bytes;
                    let held = allocated.peak.max(allocated.largest);
                    (held > most).then(|| format!("it held {held} bytes, and {most} are allowed"))
                }
            };
            if let Some(wrong) = wrong {
                panic!(
                    "{}: {wrong}\nagain: BANDROOT_FUZZ_SEED={seed} BANDROOT_FUZZ_INDEX={index}\n\
                     from honest input {honest}, {}{} bytes:\n{}",
                    self.name,
                    if resealed { "resealed, " } else { "" },
                    bytes.len(),
                    shown(&bytes, self.kind)
                );
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        // One line per target, which scripts/fuzz collects.
        println!(
            "fuzz {}: {inputs} inputs, seed {seed}, {seconds:.1} s, accepted {accepted}, largest \
             allocation {} bytes, most held {} of {} bytes, slowest {:.1} ms (index {})",
            self.name,
            most.largest,
            most.peak,
            self.most_bytes,
            slowest.0.as_secs_f64() * 1e3,
            slowest.1
        );
    }

    fn prepare(&self) -> Prepared {
        let tree =
            |entry: &Vec<u8>| serde_json::from_slice(entry).expect("an honest input is JSON");
        Prepared {
            words: text::Words::of(self.corpus.iter().map(Vec::as_slice)),
            trees: match self.kind {
                Kind::Json => self.corpus.iter().map(tree).collect(),
                Kind::Text | Kind::Binary => Vec::new(),
            },
            layouts: match self.kind {
                Kind::Binary => self.corpus.iter().map(|x| binary::Layout::of(x)).collect(),
                Kind::Text | Kind::Json => Vec::new(),
            },
        }
    }

    /// The input of an index: the honest ones first, then damaged ones.
    fn input(&self, prepared: &Prepared, seed: u64, index: u64) -> (Vec<u8>, usize, bool) {
        if let Some(honest) = self.corpus.get(index as usize) {
            return (honest.clone(), index as usize, false);
        }
        let mut random = Random::new(self.name, seed, index);
        let honest = random.below(self.corpus.len());
        let other = random.below(self.corpus.len());
        let mut bytes = self.corpus[honest].clone();
        let mut resealed = false;
        match self.kind {
            Kind::Binary => {
                let layout = &prepared.layouts[honest];
                resealed = binary::damage(&mut bytes, layout, &self.corpus[other], &mut random);
            }
            Kind::Text => self.damage_text(&mut bytes, other, prepared, &mut random),
            Kind::Json => {
                let mut tree = prepared.trees[honest].clone();
                for _ in 0..1 + random.below(3) {
                    json::damage(&mut tree, &prepared.trees[other], &mut random);
                }
                // With line breaks, lines can be taken out and put in twice.
                bytes = format!("{tree:#}").into_bytes();
                if random.percent(15) {
                    self.damage_text(&mut bytes, other, prepared, &mut random);
                }
            }
        }
        (bytes, honest, resealed)
    }

    fn damage_text(
        &self,
        bytes: &mut Vec<u8>,
        other: usize,
        prepared: &Prepared,
        random: &mut Random,
    ) {
        for _ in 0..1 + random.below(4) {
            text::damage(bytes, &self.corpus[other], &prepared.words, random);
        }
    }
}

/// An input for people, cut where it is long.
fn shown(bytes: &[u8], kind: Kind) -> String {
    const MOST: usize = 4000;
    let cut = &bytes[..bytes.len().min(MOST)];
    let end = if cut.len() < bytes.len() { "..." } else { "" };
    match kind {
        Kind::Binary => cut.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + end,
        Kind::Text | Kind::Json => String::from_utf8_lossy(cut).into_owned() + end,
    }
}
