//! Trials: among how many runs each run of a sweep may be chosen, those to come included.

use std::collections::{BTreeMap, BTreeSet};

use super::cell::Cell;

/// The runs that a sweep is about to make, as far as they are known before the first.
#[derive(Debug, Clone)]
pub(super) struct Trials {
    /// Made on the same data before this sweep.
    earlier: u64,
    /// How many there will be if none fails.
    planned: u64,
    /// The names of all cells that they can be: in a search more than will be run.
    possible: BTreeSet<String>,
}

impl Trials {
    /// `planned` runs of cells among `possible`, after `earlier` ones.
    pub(super) fn new<'a>(
        earlier: u64,
        planned: u64,
        possible: impl IntoIterator<Item = &'a Cell>,
    ) -> Self {
        let possible = possible.into_iter().map(|cell| cell.name.clone()).collect();
        Self { earlier, planned, possible }
    }

    /// How many runs there will be, given the attempts in the folder so far: those of the plan, one more for every
    /// attempt that had to be repeated, and all at cells that are not in the plan. O(cells).
    pub(super) fn count(&self, attempts: &BTreeMap<String, u64>) -> u64 {
        let (mut begun, mut beyond) = (0, 0);
        for (name, &count) in attempts {
            let first = u64::from(self.possible.contains(name));
            begun += first;
            beyond += count - first.min(count);
        }
        self.earlier + self.planned.max(begun) + beyond
    }

    /// As [`count`](Self::count), where it is known that these cells are run next: they are counted beside
    /// everything that was begun.
    pub(super) fn count_before<'a>(
        &self,
        attempts: &BTreeMap<String, u64>,
        next: impl IntoIterator<Item = &'a Cell>,
    ) -> u64 {
        let to_come = next.into_iter().filter(|cell| !attempts.contains_key(&cell.name)).count();
        let known = self.earlier + attempts.values().sum::<u64>() + to_come as u64;
        self.count(attempts).max(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        pairs.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
    }

    #[test]
    fn what_is_to_come_counts_beside_what_was_begun_elsewhere() {
        let possible = ["a", "b", "c"].map(str::to_owned).into();
        let trials = Trials { earlier: 10, planned: 3, possible };
        let count = |pairs: &[(&str, u64)]| trials.count(&attempts(pairs));
        assert_eq!(count(&[]), 13);
        assert_eq!(count(&[("a", 1), ("b", 1)]), 13, "they are in the plan");
        assert_eq!(count(&[("a", 3)]), 15, "two attempts had to be repeated");
        assert_eq!(count(&[("old", 2), ("older", 1)]), 16, "nothing of the plan was begun yet");
        assert_eq!(count(&[("old", 2), ("a", 2)]), 16);
        assert_eq!(count(&[("a", 0)]), 13, "a folder without an attempt");
        // A search can have begun more than it would run now.
        let search = Trials { planned: 2, ..trials.clone() };
        assert_eq!(search.count(&attempts(&[("a", 1), ("b", 1), ("c", 1)])), 13);
    }
}
