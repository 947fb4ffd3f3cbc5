//! `sweep.csv`: one line per run of a sweep, with what it was given and what came of it.

use std::path::Path;

use super::cell::{Cell, CellState};
use super::name;
use crate::terminal::table::Table;
use cifar_convnet::files;

/// A run of a sweep, and its place in a search if it has one.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// The round of a search, counted from 1, or `final`.
    pub(super) round: Option<String>,
    pub(super) cell: Cell,
    /// Whether the setting goes on to the next round; none if that is not known, or if there is none.
    pub(super) kept: Option<bool>,
}

impl Row {
    /// A run that is of no search.
    pub(super) fn of(cell: Cell) -> Self {
        Self { round: None, cell, kept: None }
    }
}

/// Writes the file, and gives the table.
pub(super) fn write(rows: &[Row], folder: &Path) -> anyhow::Result<Table> {
    let table = table(rows, folder)?;
    files::write(&folder.join("sweep.csv"), table.to_csv()?.as_bytes())?;
    Ok(table)
}

/// One line per run, in the order of the settings.
fn table(rows: &[Row], folder: &Path) -> anyhow::Result<Table> {
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in rows.iter().flat_map(|row| &row.cell.setting) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let is_search = rows.iter().any(|row| row.round.is_some());
    let mut header = vec!["run"];
    header.extend(is_search.then_some("round"));
    header.extend(&keys);
    header.extend(["seed", "judged_by", "accuracy", "loss", "seconds", "state"]);
    header.extend(is_search.then_some("kept"));
    let mut table = Table::new(&header);
    for Row { round, cell, kept } in rows {
        let mut line = vec![cell.name.clone()];
        line.extend(is_search.then(|| round.clone().unwrap_or_default()));
        line.extend(keys.iter().map(|key| {
            let found = cell.setting.iter().find(|(found, _)| found == key);
            found.map_or(String::new(), |(_, value)| name::plain(value))
        }));
        let judged_by =
            if cell.config.data.holds_out() { "validation (not private)" } else { "test" };
        line.extend([cell.seed.to_string(), judged_by.to_owned()]);
        match cell.state(folder)? {
            CellState::Done { .. } => {
                let outcome = cell.result(folder)?;
                line.push(format!("{:.4}", outcome.accuracy));
                line.push(outcome.loss.map_or(String::new(), |loss| format!("{loss:.4}")));
                line.push(outcome.seconds.map_or(String::new(), |seconds| format!("{seconds:.1}")));
                line.push("done".to_owned());
            }
            state => {
                line.extend([String::new(), String::new(), String::new()]);
                line.push(match state {
                    CellState::Failed(_) => "failed".to_owned(),
                    _ => "missing".to_owned(),
                });
            }
        }
        let kept = kept.map_or("", |kept| if kept { "yes" } else { "no" });
        line.extend(is_search.then(|| kept.to_owned()));
        table.push(line);
    }
    Ok(table)
}
