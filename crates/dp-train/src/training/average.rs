//! Averages of the iterates, which take out part of the noise and of the oscillation of SGD.
//!
//! With `theta_t` the parameters after step `t = 1, ..., n`, the average after step `t` is
//!
//! ```text
//! ema    sum_{s <= t} decay^(t - s) theta_s / sum_{s <= t} decay^(t - s)
//! tail   the mean of theta_s over floor(from n) < s <= t
//! ```
//!
//! Both are weighted means of iterates: the initial parameters have no part in them, so there is nothing to unbias.
//! They are post-processing of what the mechanism has released, and cost no privacy. Nothing leads back: a step
//! reads the parameters and never the average.

use std::io::{self, Read, Write};

use mf_core::sealed::{SealedError, SealedReader, SealedWriter};
use thiserror::Error;

/// Which average of the iterates is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Average {
    /// Exponential: every iterate weighs `decay` times as much as the one after it.
    Ema {
        /// In [0, 1); 0 is the last iterate, and `1 / (1 - decay)` is about the number of iterates that count.
        decay: f64,
    },
    /// The plain mean of the last iterates.
    Tail {
        /// Share of the steps that are left out at the beginning, in [0, 1).
        from: f64,
    },
}

impl Average {
    /// That its number can be used.
    ///
    /// # Errors
    /// [`AverageError`] if it is not in [0, 1).
    pub fn check(self) -> Result<(), AverageError> {
        let usable = |number: f64| (0.0..1.0).contains(&number);
        match self {
            Average::Ema { decay } if !usable(decay) => Err(AverageError::Decay { decay }),
            Average::Tail { from } if !usable(from) => Err(AverageError::From { from }),
            _ => Ok(()),
        }
    }

    /// Steps of `steps` whose iterates are left out; the last one never is.
    fn skipped(self, steps: usize) -> usize {
        match self {
            Average::Ema { .. } => 0,
            Average::Tail { from } => ((from * steps as f64) as usize).min(steps.saturating_sub(1)),
        }
    }

    /// What the weights of earlier iterates are multiplied by when one more comes.
    fn decay(self) -> f64 {
        match self {
            Average::Ema { decay } => decay,
            Average::Tail { .. } => 1.0,
        }
    }
}

/// Why there is no such average.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum AverageError {
    /// Not in [0, 1).
    #[error("the decay of an average must be at least 0 and below 1, but it is {decay}")]
    Decay {
        /// The value given.
        decay: f64,
    },
    /// Not in [0, 1).
    #[error("the share of steps before a tail must be at least 0 and below 1, but it is {from}")]
    From {
        /// The value given.
        from: f64,
    },
    /// Iterates are gone that belong to it.
    #[error("an average begins with the first step, but {taken} steps are taken")]
    Begun {
        /// Steps taken.
        taken: usize,
    },
}

/// The average so far: `S <- decay S + 1` and `a <- a + (theta - a) / S`.
///
/// In f64, for one iterate in thousands moves an average by less than the last bit of an f32: 8 bytes a parameter.
#[derive(Debug, PartialEq)]
pub(super) struct Running {
    average: Average,
    /// Iterates that are left out at the beginning.
    skipped: usize,
    /// `S`, the weights of all iterates so far; the last one weighs 1.
    weights: f64,
    mean: Vec<f64>,
}

impl Running {
    /// An average before the first of `steps` steps.
    pub(super) fn new(average: Average, steps: usize, dim: usize) -> Result<Self, AverageError> {
        average.check()?;
        Ok(Self { average, skipped: average.skipped(steps), weights: 0.0, mean: vec![0.0; dim] })
    }

    /// Takes in the iterate after `taken` steps. O(d).
    pub(super) fn add(&mut self, taken: usize, iterate: &[f32]) {
        if taken <= self.skipped {
            return;
        }
        self.weights = self.average.decay() * self.weights + 1.0;
        let share = 1.0 / self.weights;
        for (mean, &x) in self.mean.iter_mut().zip(iterate) {
            *mean += (f64::from(x) - *mean) * share;
        }
    }

    /// The average rounded to f32; none before its first iterate. O(d).
    pub(super) fn parameters(&self) -> Option<Vec<f32>> {
        (self.weights > 0.0).then(|| self.mean.iter().map(|&x| x as f32).collect())
    }
}

/// Writes an average, or that there is none: a kind, then its number, the weights and the mean.
pub(super) fn put<W: Write>(
    running: Option<&Running>,
    file: &mut SealedWriter<W>,
) -> io::Result<()> {
    let Some(Running { average, weights, mean, .. }) = running else {
        return file.put(&[NONE]);
    };
    let (kind, number) = match *average {
        Average::Ema { decay } => (EMA, decay),
        Average::Tail { from } => (TAIL, from),
    };
    file.put(&[kind])?;
    file.put(&number.to_le_bytes())?;
    file.put(&weights.to_le_bytes())?;
    file.put_numbers(mean, f64::to_le_bytes)
}

const NONE: u8 = 0;
const EMA: u8 = 1;
const TAIL: u8 = 2;

/// What [`put`] wrote of a run of `steps` steps and `dim` parameters. As all that is read, it is to be believed only
/// once the checksum agrees.
pub(super) fn read<R: Read>(
    file: &mut SealedReader<R>,
    steps: usize,
    dim: usize,
) -> Result<Option<Running>, SealedError> {
    let [kind] = file.array()?;
    if kind == NONE {
        return Ok(None);
    }
    let mut number = || file.array().map(f64::from_le_bytes);
    let (own, weights) = (number()?, number()?);
    let average = match kind {
        EMA => Average::Ema { decay: own },
        TAIL => Average::Tail { from: own },
        _ => return Err(SealedError::Damaged),
    };
    let running = Running::new(average, steps, dim).map_err(|_| SealedError::Damaged)?;
    let mut running = Running { weights, ..running };
    file.numbers(&mut running.mean, f64::from_le_bytes)?;
    Ok(Some(running))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Iterates that go up and down, two parameters each.
    fn iterates(steps: usize) -> Vec<[f32; 2]> {
        (0..steps).map(|t| [(t as f32 * 0.7).sin(), 1.0 - (t * t) as f32]).collect()
    }

    /// The formulas of the module, word by word.
    fn by_definition(average: Average, steps: usize, t: usize) -> Option<[f64; 2]> {
        let weight = |s: usize| match average {
            Average::Ema { decay } => decay.powi((t - s) as i32),
            Average::Tail { from } if (s as f64) <= (from * steps as f64).floor() => 0.0,
            Average::Tail { .. } => 1.0,
        };
        let sum: f64 = (1..=t).map(weight).sum();
        let all = iterates(steps);
        let mean =
            |i: usize| (1..=t).map(|s| weight(s) * f64::from(all[s - 1][i])).sum::<f64>() / sum;
        (sum > 0.0).then(|| [mean(0), mean(1)])
    }

    #[test]
    fn a_running_average_is_the_weighted_mean_of_its_definition() {
        for average in [
            Average::Ema { decay: 0.0 },
            Average::Ema { decay: 0.5 },
            Average::Ema { decay: 0.99 },
            Average::Ema { decay: 0.9999 },
            Average::Tail { from: 0.0 },
            Average::Tail { from: 0.3 },
            Average::Tail { from: 0.75 },
            Average::Tail { from: 0.999 },
        ] {
            let steps = 50;
            let mut running = Running::new(average, steps, 2).unwrap();
            assert_eq!(running.parameters(), None);
            for t in 1..=steps {
                running.add(t, &iterates(steps)[t - 1]);
                let expected = by_definition(average, steps, t);
                let found = running.parameters();
                assert_eq!(found.is_some(), expected.is_some(), "{average:?} after {t}");
                let (Some(found), Some(expected)) = (found, expected) else { continue };
                for (f, e) in found.iter().zip(expected) {
                    assert!((f64::from(*f) - e).abs() <= 2e-7 * (1.0 + e.abs()), "{f} and {e}");
                }
            }
            assert!(running.parameters().is_some(), "the last iterate always counts");
        }
    }

    #[test]
    fn by_hand_the_last_quarter_of_eight_steps_is_two_of_them() {
        let mut tail = Running::new(Average::Tail { from: 0.75 }, 8, 1).unwrap();
        let mut ema = Running::new(Average::Ema { decay: 0.5 }, 8, 1).unwrap();
        for t in 1..=8 {
            tail.add(t, &[t as f32]);
            if t <= 3 {
                ema.add(t, &[t as f32]);
            }
        }
        assert_eq!(tail.parameters(), Some(vec![7.5]));
        // (3 + 2 / 2 + 1 / 4) / (1 + 1 / 2 + 1 / 4) = 17 / 7.
        assert_eq!(ema.parameters(), Some(vec![17.0 / 7.0]));
    }

    /// An f32 would stand still: the increments are far below its last place.
    #[test]
    fn a_long_average_follows_small_moves() {
        let mut running = Running::new(Average::Tail { from: 0.0 }, 300_000, 1).unwrap();
        (1..=300_000).for_each(|t| running.add(t, &[if t <= 150_000 { 100.0 } else { 100.5 }]));
        let found = running.parameters().unwrap()[0];
        assert!((found - 100.25).abs() < 1e-5, "{found}");
    }

    #[test]
    fn numbers_outside_of_zero_to_one_are_refused() {
        for number in [-0.1, 1.0, 2.0, f64::NAN, f64::INFINITY] {
            assert!(Running::new(Average::Ema { decay: number }, 9, 1).is_err(), "{number}");
            assert!(Running::new(Average::Tail { from: number }, 9, 1).is_err(), "{number}");
        }
        let last = Average::Tail { from: 1.0_f64.next_down() };
        assert_eq!(
            (last.skipped(1 << 30), last.skipped(1), last.skipped(0)),
            ((1 << 30) - 1, 0, 0)
        );
    }
}
