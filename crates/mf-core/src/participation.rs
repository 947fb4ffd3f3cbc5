//! Who may take part when: the participation pattern that the privacy guarantee is for.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// `b`-min-separated participation with at most `k` participations in `n` steps: two steps that use
/// the same example are at least `b` apart, and no example is used more than `k` times.
///
/// # Guarantees
/// * `1 <= min_separation <= steps`
/// * `1 <= max_participations <= ceil(steps / min_separation)`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Participation {
    steps: usize,
    min_separation: usize,
    max_participations: usize,
}

impl Participation {
    /// The pattern for `n` steps, separation `b` and at most `k` participations.
    ///
    /// # Errors
    /// [`Error::NoSteps`], [`Error::Separation`] or [`Error::Participations`].
    pub fn new(steps: usize, min_separation: usize, max_participations: usize) -> Result<Self> {
        if steps == 0 {
            return Err(Error::NoSteps);
        }
        if min_separation == 0 || min_separation > steps {
            return Err(Error::Separation { separation: min_separation, steps });
        }
        let most = steps.div_ceil(min_separation);
        if max_participations == 0 || max_participations > most {
            return Err(Error::Participations { participations: max_participations, most });
        }
        Ok(Self { steps, min_separation, max_participations })
    }

    /// Whole epochs over data in a fixed order: `n = epochs x steps_per_epoch`, `b = steps_per_epoch`,
    /// `k = epochs`.
    ///
    /// # Errors
    /// [`Error::NoSteps`] if either is 0, [`Error::Participations`] if their product overflows.
    pub fn epochs(epochs: usize, steps_per_epoch: usize) -> Result<Self> {
        Self::new(epochs.saturating_mul(steps_per_epoch), steps_per_epoch, epochs)
    }

    /// Every example is used at most once: `b = n`, `k = 1`.
    ///
    /// # Errors
    /// [`Error::NoSteps`].
    pub fn single(steps: usize) -> Result<Self> {
        Self::new(steps, steps.max(1), 1)
    }

    /// `n`, the number of steps.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// `b`, the least distance between two uses of one example.
    pub fn min_separation(&self) -> usize {
        self.min_separation
    }

    /// `k`, the most times that one example is used.
    pub fn max_participations(&self) -> usize {
        self.max_participations
    }

    /// Whether `k` is all that separation leaves room for, so that it need not be counted.
    pub fn is_unbounded(&self) -> bool {
        self.max_participations == self.steps.div_ceil(self.min_separation)
    }
}

/// The same fields before they were checked: what a file says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    steps: usize,
    min_separation: usize,
    max_participations: usize,
}

impl TryFrom<Unchecked> for Participation {
    type Error = Error;

    fn try_from(raw: Unchecked) -> Result<Self> {
        Self::new(raw.steps, raw.min_separation, raw.max_participations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_counted_with_the_last_partial_period() {
        assert!(Participation::new(10, 4, 3).is_ok());
        assert_eq!(
            Participation::new(10, 4, 4),
            Err(Error::Participations { participations: 4, most: 3 })
        );
        assert_eq!(
            Participation::new(10, 0, 1),
            Err(Error::Separation { separation: 0, steps: 10 })
        );
        assert_eq!(Participation::new(0, 1, 1), Err(Error::NoSteps));
        assert_eq!(Participation::single(0), Err(Error::NoSteps));
    }

    #[test]
    fn epochs_are_steps_separation_and_participations() {
        assert_eq!(Participation::epochs(10, 100), Participation::new(1000, 100, 10));
        assert_eq!(Participation::epochs(1, 7), Participation::single(7));
        assert_eq!(Participation::epochs(0, 7), Err(Error::NoSteps));
        assert_eq!(Participation::epochs(7, 0), Err(Error::NoSteps));
        assert!(matches!(Participation::epochs(usize::MAX, 3), Err(Error::Participations { .. })));
    }
}
