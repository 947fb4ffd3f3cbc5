//! What the runs in the folder of a sweep released, as they wrote it down before they began.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use dp_train::accounting::tuning::Tried;
use dp_train::calibration::Neighbouring;
use dp_train::plan::PlanRecord;

use cifar_convnet::config;
use cifar_convnet::config::privacy::Privacy;
use cifar_convnet::run::folder;

/// All attempts at the cells of a sweep, with their noise. None if a single one is not known: it had no privacy, its
/// noise was fixed, it started from parameters of others, left no plan, or protects from other neighbours.
pub(super) fn of(sweep: &Path, counts: &BTreeMap<String, u64>) -> Option<Vec<Tried>> {
    let mut all: Vec<Tried> = Vec::new();
    let mut neighbours: Option<Neighbouring> = None;
    for (cell, &runs) in counts.iter().filter(|(_, runs)| **runs > 0) {
        let (one, neighbouring) = cell_of(&sweep.join(cell))?;
        if *neighbours.get_or_insert(neighbouring) != neighbouring {
            return None;
        }
        let same =
            |found: &&mut Tried| found.release == one.release && found.held_out == one.held_out;
        match all.iter_mut().find(same) {
            Some(found) => found.runs += runs,
            None => all.push(Tried { runs, ..one }),
        }
    }
    Some(all)
}

/// One run of a cell.
fn cell_of(folder: &Path) -> Option<(Tried, Neighbouring)> {
    let config = config::file::read(&folder.join(folder::CONFIG), &[]).ok()?;
    let Privacy::Guaranteed(guarantee) = &config.privacy else { return None };
    if guarantee.noise_seed.is_some() || config.model.start_from.is_some() {
        return None;
    }
    // The best of a random number of runs released more than one.
    if folder.join(folder::CERTIFICATE).exists()
        && folder::read_certificate(folder).ok()?.selection.is_some()
    {
        return None;
    }
    let plan: PlanRecord =
        serde_json::from_slice(&fs::read(folder.join(folder::PLAN)).ok()?).ok()?;
    let held_out = config.data.holds_out();
    let tried = Tried { runs: 1, release: plan.release()?, held_out };
    Some((tried, plan.request.neighbouring))
}
