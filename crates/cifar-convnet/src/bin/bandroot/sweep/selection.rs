//! The choice of hyper-parameters: by accuracy on held-out training examples, then once to the test.
//!
//! Every setting of the grid is trained without a share of the training examples and judged by them. With
//! halving, short runs come first and only the best share of each group goes on. The best of each
//! group is trained on all training examples with the final seeds. No run of the search sees a test
//! example. All runs count as trials in every certificate: the choice itself is not private.

use std::path::Path;

use toml::Value;

use super::cell::{Cell, CellState};
use super::name::plain;
use super::runner::{Runner, Tally};
use super::spec::{Halving, Setting, Spec};
use crate::terminal::table::Table;
use cifar_convnet::files;

/// Settings among which one is chosen.
#[derive(Debug, Clone)]
struct Group {
    /// The values of the keys in `select.by`.
    by: Setting,
    candidates: Vec<Setting>,
    /// Epochs of each round; the last are those of the config.
    rounds: Vec<Option<usize>>,
}

/// A search with its final runs.
pub(super) struct Search<'a> {
    spec: &'a Spec,
    groups: Vec<Group>,
    validation: f64,
    final_seeds: &'a [u64],
    trials: u64,
}

impl<'a> Search<'a> {
    /// Plans a search and checks every config that it can come to.
    ///
    /// # Errors
    /// The first config that is refused.
    ///
    /// # Panics
    /// If the spec has no `select`.
    pub(super) fn new(spec: &'a Spec) -> anyhow::Result<Self> {
        let select = spec.select.as_ref().expect("a search is made of a choice");
        let mut groups: Vec<Group> = Vec::new();
        for setting in &spec.settings {
            let by: Setting =
                setting.iter().filter(|(key, _)| select.by.contains(key)).cloned().collect();
            match groups.iter_mut().find(|group| group.by == by) {
                Some(group) => group.candidates.push(setting.clone()),
                None => {
                    groups.push(Group {
                        by,
                        candidates: vec![setting.clone()],
                        rounds: Vec::new(),
                    });
                }
            }
        }
        let mut search = Self {
            spec,
            groups,
            validation: select.validation,
            final_seeds: &select.seeds,
            trials: 1,
        };
        search.plan_rounds()?;
        search.trials = search.count_trials();
        for group in &search.groups {
            for setting in &group.candidates {
                for &epochs in &group.rounds {
                    search.search_cells(setting, epochs)?;
                }
                search.final_cells(setting)?;
            }
        }
        Ok(search)
    }

    /// How many runs there will be if none fails.
    pub(super) fn trials(&self) -> u64 {
        self.trials
    }

    fn plan_rounds(&mut self) -> anyhow::Result<()> {
        for index in 0..self.groups.len() {
            let mut least = usize::MAX;
            for setting in &self.groups[index].candidates {
                let cell = self.spec.cell("", setting.clone(), self.spec.seeds[0], 1)?;
                least = least.min(cell.config.training.epochs);
            }
            let short = self.spec.halving.iter().flat_map(|halving| halving.epochs.iter().copied());
            // A round that is as long as the whole saves nothing.
            let short = short.filter(|&epochs| epochs < least).map(Some);
            self.groups[index].rounds = short.chain([None]).collect();
        }
        Ok(())
    }

    /// How many runs there will be if none fails.
    fn count_trials(&self) -> u64 {
        let searched: usize = self
            .groups
            .iter()
            .map(|group| {
                let mut candidates = group.candidates.len();
                let mut runs = 0;
                for _ in &group.rounds {
                    runs += candidates * self.spec.seeds.len();
                    candidates = kept(candidates, self.spec.halving.as_ref());
                }
                runs
            })
            .sum();
        (searched + self.groups.len() * self.final_seeds.len()) as u64
    }

    fn search_cells(&self, setting: &Setting, epochs: Option<usize>) -> anyhow::Result<Vec<Cell>> {
        let mut setting = setting.clone();
        if let Some(epochs) = epochs {
            replace(&mut setting, "training.epochs", Value::Integer(epochs as i64));
        }
        replace(&mut setting, "data.validation", Value::Float(self.validation));
        let cell = |&seed| self.spec.cell("search", setting.clone(), seed, self.trials);
        self.spec.seeds.iter().map(cell).collect()
    }

    fn final_cells(&self, setting: &Setting) -> anyhow::Result<Vec<Cell>> {
        let mut setting = setting.clone();
        replace(&mut setting, "data.validation", Value::Float(0.0));
        let cell = |&seed| self.spec.cell("final", setting.clone(), seed, self.trials);
        self.final_seeds.iter().map(cell).collect()
    }

    /// Runs the rounds, chooses, and runs what was chosen: all cells, and how they stand. What was found is
    /// written to `selection.csv`.
    pub(super) fn run(&self, runner: &Runner, folder: &Path) -> anyhow::Result<(Vec<Cell>, Tally)> {
        let (mut all, mut tally) = (Vec::new(), Tally::default());
        let mut record = Table::new(&["group", "setting", "epochs", "seeds", "accuracy", "kept"]);
        let mut alive: Vec<Vec<Setting>> =
            self.groups.iter().map(|group| group.candidates.clone()).collect();
        let longest = self.groups.iter().map(|group| group.rounds.len()).max().unwrap_or(0);
        for round in 0..longest {
            // Groups with fewer rounds wait, so that all end with their last one.
            let of = |group: &Group| (round + group.rounds.len()).checked_sub(longest);
            let mut cells = Vec::new();
            for (group, alive) in self.groups.iter().zip(&alive) {
                let Some(round) = of(group) else { continue };
                for setting in alive {
                    cells.extend(self.search_cells(setting, group.rounds[round])?);
                }
            }
            tally += runner.run(&format!("round {} of {longest}", round + 1), &cells, None)?;
            all.extend(cells);
            if runner.is_stopped() {
                return Ok((all, tally));
            }
            for (group, alive) in self.groups.iter().zip(&mut alive) {
                let Some(round) = of(group) else { continue };
                let last = round + 1 == group.rounds.len();
                *alive =
                    self.judge(group, alive, group.rounds[round], last, folder, &mut record)?;
            }
            files::write(&folder.join("selection.csv"), record.to_csv()?.as_bytes())?;
        }
        let mut cells = Vec::new();
        for setting in alive.iter().flatten() {
            cells.extend(self.final_cells(setting)?);
        }
        tally += runner.run("final runs", &cells, None)?;
        all.extend(cells);
        Ok((all, tally))
    }

    /// The settings of a group that go on: the best share, or the best one if this was the last round. A
    /// setting that failed with any seed does not.
    fn judge(
        &self,
        group: &Group,
        alive: &[Setting],
        epochs: Option<usize>,
        last: bool,
        folder: &Path,
        record: &mut Table,
    ) -> anyhow::Result<Vec<Setting>> {
        let mut scores: Vec<(f64, f64, &Setting)> = Vec::new();
        for setting in alive {
            let cells = self.search_cells(setting, epochs)?;
            let (mut accuracy, mut loss, mut done) = (0.0, 0.0, 0);
            for cell in &cells {
                if let CellState::Done { .. } = cell.state(folder)? {
                    let outcome = cell.result(folder)?;
                    accuracy += outcome.accuracy / cells.len() as f64;
                    loss += outcome.loss.unwrap_or(f64::INFINITY) / cells.len() as f64;
                    done += 1;
                }
            }
            let accuracy = if done == cells.len() { accuracy } else { f64::NEG_INFINITY };
            scores.push((accuracy, loss, setting));
        }
        // Of equals the one with the smaller loss; of these the first in the grid.
        scores.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.total_cmp(&b.1)));
        let count = if last { 1 } else { kept(alive.len(), self.spec.halving.as_ref()) };
        let mut going_on = Vec::new();
        for (index, (score, _, setting)) in scores.into_iter().enumerate() {
            let is_kept = index < count && score.is_finite();
            let accuracy =
                if score.is_finite() { format!("{score:.6}") } else { "failed".to_owned() };
            record.push(vec![
                words(&group.by),
                words(setting),
                epochs.map_or("all".to_owned(), |epochs| epochs.to_string()),
                self.spec.seeds.len().to_string(),
                accuracy,
                if is_kept { "yes" } else { "no" }.to_owned(),
            ]);
            if is_kept {
                going_on.push(setting.clone());
            }
        }
        if going_on.is_empty() {
            eprintln!("bandroot: warning: every run of {} failed", words(&group.by));
        }
        Ok(going_on)
    }
}

/// How many of some settings a round keeps: at least one.
fn kept(candidates: usize, halving: Option<&Halving>) -> usize {
    let share = halving.map_or(1.0, |halving| halving.keep);
    ((share * candidates as f64).ceil() as usize).clamp(1.min(candidates), candidates)
}

fn replace(setting: &mut Setting, key: &str, value: Value) {
    setting.retain(|(found, _)| found != key);
    setting.push((key.to_owned(), value));
}

fn words(setting: &Setting) -> String {
    let part = |(key, value): &(String, Value)| format!("{key} = {}", plain(value));
    setting.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_keeps_its_share_rounded_up() {
        let halving = Halving { epochs: vec![1], keep: 0.33 };
        assert_eq!([0, 1, 2, 3, 4, 9, 10].map(|n| kept(n, Some(&halving))), [0, 1, 1, 1, 2, 3, 4]);
        assert_eq!(kept(7, None), 7);
    }
}
