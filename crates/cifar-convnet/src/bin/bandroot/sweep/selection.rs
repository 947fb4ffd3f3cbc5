//! The choice of hyper-parameters: by accuracy on held-out training examples, then once to the test.
//!
//! Every setting is trained without a share of the training examples and judged by them. With halving, short runs
//! come first and only the best share of each group goes on; each round is a run of its own, with a schedule of its
//! own length. The best of each group is written to `chosen.toml` and trained on all training examples with the final
//! seeds, which stand in the spec before anything is known. No run of the search sees a test example.
//!
//! All runs of all rounds count as trials in every certificate: the choice by validation accuracy is itself not
//! private, and no epsilon here covers it.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Value;

use super::attempts::{self, Among};
use super::cell::{Cell, CellState, Setting};
use super::chosen;
use super::name::words;
use super::record::{self, Row};
use super::runner::{Runner, Tally};
use super::spec::{Halving, Select, Spec};
use super::trials::Trials;
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
    select: &'a Select,
    trials: Trials,
    /// What the certificates of the runs say until the end: with what was begun in the folder before.
    stated: u64,
}

impl<'a> Search<'a> {
    /// Plans a search and checks every config that it can come to. `begun` are the attempts in its folder so far.
    ///
    /// # Errors
    /// The first config that is refused.
    ///
    /// # Panics
    /// If the spec has no `select`.
    pub(super) fn new(spec: &'a Spec, begun: &BTreeMap<String, u64>) -> anyhow::Result<Self> {
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
        let trials = Trials::new(spec.earlier, 0, []);
        let mut search = Self { spec, groups, select, trials, stated: 1 };
        search.plan_rounds()?;
        let mut possible = Vec::new();
        for group in &search.groups {
            for setting in &group.candidates {
                for &epochs in &group.rounds {
                    possible.extend(search.search_cells(setting, epochs)?);
                }
                possible.extend(search.final_cells(setting)?);
            }
        }
        search.trials = Trials::new(spec.earlier, search.planned(), &possible);
        search.stated = search.trials.count(begun);
        Ok(search)
    }

    /// Among how many runs each may be chosen.
    pub(super) fn trials(&self) -> &Trials {
        &self.trials
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
    pub(super) fn planned(&self) -> u64 {
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
        (searched + self.groups.len() * self.select.seeds.len()) as u64
    }

    fn search_cells(&self, setting: &Setting, epochs: Option<usize>) -> anyhow::Result<Vec<Cell>> {
        let mut changed = setting.clone();
        if let Some(epochs) = epochs {
            replace(&mut changed, "training.epochs", Value::Integer(epochs as i64));
        }
        replace(&mut changed, "data.validation", Value::Float(self.select.validation));
        if let Some(cooldown) = self.cooldown(setting, epochs)? {
            replace(&mut changed, "optimizer.cooldown_steps", Value::Integer(cooldown as i64));
        }
        let cell = |&seed| self.spec.cell("search", changed.clone(), seed, self.stated);
        self.spec.seeds.iter().map(cell).collect()
    }

    /// The steps of a round's cooldown if a setting gives them: the same part of the round as of the final run.
    fn cooldown(&self, setting: &Setting, epochs: Option<usize>) -> anyhow::Result<Option<usize>> {
        if !self.spec.gives(setting, "optimizer", "cooldown_steps") {
            return Ok(None);
        }
        let Some(last) = self.final_cells(setting)?.pop() else { return Ok(None) };
        let mut config = last.config;
        let Some(cooldown) = config.optimizer.cooldown_steps else { return Ok(None) };
        let all = config.steps()?.total;
        config.data.validation = self.select.validation;
        config.training.epochs = epochs.unwrap_or(config.training.epochs);
        let round = config.steps()?.total;
        let scaled = (cooldown as f64 * round as f64 / all as f64).round() as usize;
        Ok(Some(scaled.clamp(1, round.saturating_sub(1).max(1))))
    }

    fn final_cells(&self, setting: &Setting) -> anyhow::Result<Vec<Cell>> {
        let mut setting = setting.clone();
        replace(&mut setting, "data.validation", Value::Float(0.0));
        if self.select.scale_rate != 1.0 {
            let cell =
                self.spec.cell("final", setting.clone(), self.select.seeds[0], self.stated)?;
            let rate = cell.config.optimizer.learning_rate * self.select.scale_rate;
            replace(&mut setting, "optimizer.learning_rate", Value::Float(rate));
        }
        let cell = |&seed| self.spec.cell("final", setting.clone(), seed, self.stated);
        self.select.seeds.iter().map(cell).collect()
    }

    /// Runs the rounds, chooses, and runs what was chosen unless only the choice is asked for: all runs, and how they
    /// stand. What was found is written to `sweep.csv` and `selection.csv` after every round, and what was chosen to
    /// `chosen.toml`.
    pub(super) fn run(
        &self,
        runner: &Runner<'_>,
        folder: &Path,
        choose_only: bool,
    ) -> anyhow::Result<(Vec<Row>, Tally)> {
        let (mut all, mut tally) = (Vec::new(), Tally::default());
        let mut record = Table::new(&["group", "setting", "epochs", "seeds", "accuracy", "kept"]);
        let mut alive: Vec<Vec<Setting>> =
            self.groups.iter().map(|group| group.candidates.clone()).collect();
        let longest = self.longest();
        for round in 0..longest {
            let of = |group: &Group| self.round_of(group, round);
            let runs = self.round_runs(round, &alive)?;
            let cells: Vec<Cell> = runs.iter().map(|(_, _, cell)| cell.clone()).collect();
            let found = runner.run(&format!("round {} of {longest}", round + 1), &cells, None)?;
            tally += found;
            let before = alive.clone();
            // Of a round that is not complete nothing is chosen: what is left would count as failed.
            let stopped = runner.is_stopped() || found.left > 0;
            for (group, alive) in self.groups.iter().zip(&mut alive) {
                let Some(round) = of(group).filter(|_| !stopped) else { continue };
                let last = round + 1 == group.rounds.len();
                *alive =
                    self.judge(group, alive, group.rounds[round], last, folder, &mut record)?;
            }
            let name = (round + 1).to_string();
            all.extend(runs.into_iter().map(|(group, place, cell)| {
                let goes_on = || alive[group].contains(&before[group][place]);
                Row { round: Some(name.clone()), kept: (!stopped).then(goes_on), cell }
            }));
            record::write(&all, folder)?;
            if stopped {
                return Ok((all, tally));
            }
            files::write(&folder.join("selection.csv"), record.to_csv()?.as_bytes())?;
        }
        let mut cells = Vec::new();
        for (group, setting) in self.groups.iter().zip(&alive) {
            let Some(setting) = setting.first() else { continue };
            let finals = self.final_cells(setting)?;
            cells.push((group.by.clone(), finals));
        }
        let write = |cells: &[(Setting, Vec<Cell>)]| {
            let choices: Vec<_> = cells.iter().map(|(by, cells)| (by, cells.as_slice())).collect();
            let finals = choices.iter().flat_map(|(_, cells)| cells.iter());
            let trials = self.trials.count_before(&attempts::counts(folder)?, finals);
            chosen::write(&choices, self.select, trials, folder)?;
            // Before the final runs, so that a search that is killed among them has told the others.
            attempts::settle(folder, Among::Folder, |_, _| trials)
        };
        write(&cells)?;
        let finals: Vec<Cell> = cells.iter().flat_map(|(_, cells)| cells.clone()).collect();
        if !choose_only {
            tally += runner.run("final runs", &finals, None)?;
            // A final run that failed and was begun again counts once more.
            write(&cells)?;
            let row = |cell| Row { round: Some("final".to_owned()), kept: None, cell };
            all.extend(finals.into_iter().map(row));
        }
        Ok((all, tally))
    }

    /// The runs that are known from what is in the folder: those of the rounds up to the first one that is not complete,
    /// and after the last round the final ones; and how many are to be chosen yet. Nothing is written.
    pub(super) fn known_runs(&self, folder: &Path) -> anyhow::Result<(Vec<Cell>, u64)> {
        let mut all = Vec::new();
        let mut record = Table::new(&["group", "setting", "epochs", "seeds", "accuracy", "kept"]);
        let mut alive: Vec<Vec<Setting>> =
            self.groups.iter().map(|group| group.candidates.clone()).collect();
        for round in 0..self.longest() {
            let runs = self.round_runs(round, &alive)?;
            let mut complete = true;
            for (_, _, cell) in runs {
                let state = cell.state(folder)?;
                complete &= matches!(state, CellState::Done { .. } | CellState::Failed(_));
                all.push(cell);
            }
            if !complete {
                let to_come = self.planned().saturating_sub(all.len() as u64);
                return Ok((all, to_come));
            }
            for (group, alive) in self.groups.iter().zip(&mut alive) {
                let Some(round) = self.round_of(group, round) else { continue };
                let last = round + 1 == group.rounds.len();
                *alive =
                    self.judge(group, alive, group.rounds[round], last, folder, &mut record)?;
            }
        }
        for setting in alive.iter().filter_map(|settings| settings.first()) {
            all.extend(self.final_cells(setting)?);
        }
        // Fewer than planned if all runs of a group failed: none is waited for.
        Ok((all, 0))
    }

    /// The number of rounds.
    fn longest(&self) -> usize {
        self.groups.iter().map(|group| group.rounds.len()).max().unwrap_or(0)
    }

    /// The round of a group; groups with fewer rounds wait, so that all end with their last one.
    fn round_of(&self, group: &Group, round: usize) -> Option<usize> {
        (round + group.rounds.len()).checked_sub(self.longest())
    }

    /// The runs of each setting that is still in the choice, with the group and the place of the setting in it.
    fn round_runs(
        &self,
        round: usize,
        alive: &[Vec<Setting>],
    ) -> anyhow::Result<Vec<(usize, usize, Cell)>> {
        let mut runs = Vec::new();
        for (number, (group, alive)) in self.groups.iter().zip(alive).enumerate() {
            let Some(round) = self.round_of(group, round) else { continue };
            for (place, setting) in alive.iter().enumerate() {
                let cells = self.search_cells(setting, group.rounds[round])?;
                runs.extend(cells.into_iter().map(|cell| (number, place, cell)));
            }
        }
        Ok(runs)
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
    // A tenth of 30 is 3, also where the product is a last digit above.
    ((share * candidates as f64 - 1e-9).ceil() as usize).clamp(1.min(candidates), candidates)
}

fn replace(setting: &mut Setting, key: &str, value: Value) {
    setting.retain(|(found, _)| found != key);
    setting.push((key.to_owned(), value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_keeps_its_share_rounded_up() {
        let halving = Halving { epochs: vec![1], keep: 0.33 };
        assert_eq!([0, 1, 2, 3, 4, 9, 10].map(|n| kept(n, Some(&halving))), [0, 1, 1, 1, 2, 3, 4]);
        assert_eq!(kept(7, None), 7);
        let of = |keep, n| kept(n, Some(&Halving { epochs: vec![1], keep }));
        assert_eq!([of(0.1, 30), of(0.34, 3), of(0.34, 27), of(0.33, 27)], [3, 2, 10, 9]);
    }
}
