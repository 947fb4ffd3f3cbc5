//! How many runs a cell of the accuracy tables was chosen among: its search, and all runs that were made of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::paper::report::comparison;
use crate::paper::report::record::Record;
use crate::paper::reproduce::tuned::Tuned;
use crate::published::{AccuracyRow, Regime};

/// What is known of the runs of all cells.
pub(super) struct Trials<'a> {
    /// All cells of the paper.
    pub(super) rows: &'a [AccuracyRow],
    pub(super) tuned: &'a Tuned,
    /// Runs among the results and in the folder that is worked in; a run and its copy have one name.
    pub(super) recorded: &'a [Record],
    /// Runs that are still to be made, by the names of their folders.
    pub(super) planned: &'a [(String, AccuracyRow)],
}

impl Trials<'_> {
    /// The trials of the run in this folder: the tuning runs, every run of its cell with whatever seed and
    /// hyper-parameters, and those that failed as often as they were begun.
    pub(super) fn of(&self, folder: &str, attempts: &BTreeMap<String, u64>) -> u64 {
        let rows = self.rows.iter().filter(|row| self.is_of(folder, row));
        let trials = |row: &AccuracyRow| {
            let recorded =
                self.recorded.iter().filter(|run| is_recorded_of(run, row)).map(Record::name);
            let planned = self.planned.iter().filter(|(_, of)| same(of, row));
            let begun = attempts.keys().filter(|folder| self.is_of(folder, row)).cloned();
            let all: BTreeSet<String> =
                recorded.chain(planned.map(|(name, _)| name.clone())).chain(begun).collect();
            let runs: u64 =
                all.iter().map(|name| attempts.get(name).map_or(1, |&n| n.max(1))).sum();
            self.tuned.searched(row) + runs
        };
        // One epoch in batches of 500 is in both tables.
        rows.map(trials).max().unwrap_or(1)
    }

    fn is_of(&self, folder: &str, row: &AccuracyRow) -> bool {
        let named = |of: &AccuracyRow| {
            same(of, row)
                && folder.strip_prefix(&prefix(of)).is_some_and(|rest| rest.starts_with("_seed-"))
        };
        let recorded = |run: &Record| run.name() == folder && is_recorded_of(run, row);
        self.rows.iter().any(named) || self.recorded.iter().any(recorded)
    }
}

/// How the names of a cell's run folders start.
pub(super) fn prefix(row: &AccuracyRow) -> String {
    let AccuracyRow { epsilon, method, steps, participations, .. } = row;
    match row.regime {
        Regime::Single => format!("single-epsilon{epsilon}-{method}-n{steps}"),
        Regime::Repeated => format!("repeated-epsilon{epsilon}-{method}-epochs{participations}"),
    }
}

fn is_recorded_of(run: &Record, row: &AccuracyRow) -> bool {
    comparison::is_of_the_paper(run) && comparison::is_of(run, row)
}

/// Whether two cells are one experiment.
fn same(one: &AccuracyRow, two: &AccuracyRow) -> bool {
    let key = |row: &AccuracyRow| {
        (row.steps, row.participations, row.separation, row.batch_size, row.method.clone())
    };
    (one.epsilon, one.delta) == (two.epsilon, two.delta) && key(one) == key(two)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::paper::report::record::Records;
    use crate::published;

    /// Leaves a finished run of one epoch of bsr at epsilon 4.
    fn place(results: &Path, folder: &str, seed: u64, rate: f64) {
        let folder = results.join(folder);
        fs::create_dir_all(&folder).unwrap();
        let config = format!(
            "[data]\nname = 'cifar10'\n[model]\nname = 'convnet'\n\
             [privacy]\nepsilon = 4.0\ndelta = 0.00001\nclip_norm = 1.0\n[noise]\nmethod = 'bsr'\n\
             [optimizer]\nlearning_rate = {rate}\n[training]\nepochs = 1\nbatch_size = 500\nseed = {seed}\n"
        );
        fs::write(folder.join("config.toml"), config).unwrap();
        fs::write(
            folder.join("summary.json"),
            r#"{"run": "r", "private": true, "steps": 100, "test_accuracy": 0.5}"#,
        )
        .unwrap();
    }

    #[test]
    fn seeds_failures_other_settings_and_the_search_count_and_a_copy_does_not() {
        let rows = published::accuracy().unwrap();
        let tuned = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/paper/tuned.toml");
        let tuned = Tuned::read(&tuned, &rows).unwrap();
        let is_one = |row: &&AccuracyRow| prefix(row) == "repeated-epsilon4-bsr-epochs1";
        let row = rows.iter().find(is_one).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let start = prefix(row);
        let named = |seed: u64, hash: &str| format!("{start}_seed-{seed}_{hash}");
        place(folder.path(), &format!("results/{}", named(0, "aa")), 0, 0.1);
        place(folder.path(), &format!("out/{}", named(0, "aa")), 0, 0.1);
        place(folder.path(), &format!("out/{}", named(1, "bb")), 1, 0.1);
        place(folder.path(), &format!("results/{}", named(0, "cc")), 0, 0.7);
        let recorded = Records::read(folder.path(), Path::new("")).unwrap().runs;
        assert_eq!(recorded.len(), 4);
        let planned = [(named(2, "dd"), row.clone())];
        let trials = Trials { rows: &rows, tuned: &tuned, recorded: &recorded, planned: &planned };
        let mut attempts = BTreeMap::from([(named(0, "aa"), 1), (named(1, "bb"), 1)]);
        let both = rows.iter().filter(|other| same(other, row));
        let searched = both.map(|row| tuned.searched(row)).max().unwrap();
        let of = |attempts: &BTreeMap<String, u64>| trials.of(&named(1, "bb"), attempts);
        // Seeds 0, 1, the one to come, and the one with another rate.
        assert_eq!(of(&attempts), searched + 4);
        attempts.insert(named(1, "bb"), 3);
        attempts.insert(named(9, "ee"), 2);
        assert_eq!(of(&attempts), searched + 4 + 2 + 2, "begun again, and failed twice");
        attempts.insert("repeated-epsilon4-bsr-epochs10_seed-0_ff".to_owned(), 5);
        assert_eq!(of(&attempts), searched + 8, "another cell is another choice");
    }
}
