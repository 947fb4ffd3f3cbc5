//! Continuations: which steps of which run were released already.

use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;

/// How far each run has got, kept beside its checkpoints and not inside them.
///
/// A checkpoint cannot know that it was continued before. Continuing it again with the same data
/// and key releases the same numbers; with other data it is a second release with the same noise,
/// and the difference of the two shows the data.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Continuations {
    released: Vec<(String, usize)>,
}

impl Continuations {
    /// Notes that a run has released all steps before `next_step`.
    pub fn released(&mut self, ledger: &Ledger) {
        match self.released.iter_mut().find(|(run, _)| run == ledger.run_id()) {
            Some((_, steps)) => *steps = ledger.next_step().max(*steps),
            None => self.released.push((ledger.run_id().to_string(), ledger.next_step())),
        }
    }

    /// Whether runs are noted here, and this is none of them: a checkpoint that was brought from elsewhere.
    pub fn are_of_others(&self, ledger: &Ledger) -> bool {
        !self.released.is_empty() && self.released.iter().all(|(run, _)| run != ledger.run_id())
    }

    /// The steps that were released already beyond the point where a run is about to continue; a
    /// warning is due if there are any.
    pub fn repeated_steps(&self, ledger: &Ledger) -> Option<std::ops::Range<usize>> {
        let (_, released) = self.released.iter().find(|(run, _)| run == ledger.run_id())?;
        (*released > ledger.next_step()).then(|| ledger.next_step()..*released)
    }
}

#[cfg(test)]
mod tests {
    use mf_core::Participation;

    use super::*;

    #[test]
    fn a_second_continuation_of_one_checkpoint_is_noticed() {
        let pattern = Participation::new(10, 3, 2).unwrap();
        let mut ledger = Ledger::new(pattern, 5).unwrap();
        let mut known = Continuations::default();
        (0..4).for_each(|step| ledger.record(step, &[]).unwrap());
        known.released(&ledger);
        let checkpoint = ledger.clone();
        assert_eq!(known.repeated_steps(&ledger), None);
        ledger.continue_here();
        (4..7).for_each(|step| ledger.record(step, &[]).unwrap());
        known.released(&ledger);
        assert_eq!(known.repeated_steps(&checkpoint), Some(4..7));
        let other = Ledger::new(pattern, 5).unwrap();
        assert!(known.are_of_others(&other) && !known.are_of_others(&ledger));
        assert!(!Continuations::default().are_of_others(&other));
        assert_eq!(ledger.realized().continued_at, [4]);
    }
}
