//! Runs by the table of the paper that they belong to.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use crate::paper::report::comparison::{self, EPSILONS};
use crate::paper::report::record::{Record, Records};
use crate::paper::report::table_of;
use crate::published::{self, AccuracyRow, Regime};
use cifar_convnet::BadArgument;
use cifar_convnet::files;

/// The list of a table's runs.
const RUNS: &str = "runs.csv";

/// The folder of a run's table. One epoch in batches of 500 is in two, and goes to that of repeated participation.
///
/// # Errors
/// If it is in none: another data set, model, epsilon or number of steps, or something that the paper does not have.
pub(super) fn folder(run: &Path, into: &Path) -> anyhow::Result<PathBuf> {
    let records = Records::read(run, Path::new(""))?;
    if let Some((_, why)) = records.unreadable.first() {
        return Err(anyhow!("{}: {why}", run.display()));
    }
    let rows = published::accuracy()?;
    let belongs = |row: &&AccuracyRow, record: &Record| {
        comparison::is_of_the_paper(record) && comparison::is_of(record, row)
    };
    let record = records.runs.first();
    let found = |regime: Regime| {
        let record = record?;
        rows.iter().filter(|row| row.regime == regime).find(|row| belongs(row, record))
    };
    let row = found(Regime::Repeated).or_else(|| found(Regime::Single)).ok_or_else(|| {
        BadArgument(format!(
            "{} is in none of the paper's accuracy tables; import it without --by-table",
            run.display()
        ))
    })?;
    Ok(into.join(name(row.regime, row.epsilon)))
}

/// Writes the list of every table that has runs.
pub(super) fn list(into: &Path) -> anyhow::Result<()> {
    for regime in [Regime::Repeated, Regime::Single] {
        for epsilon in EPSILONS {
            let folder = into.join(name(regime, epsilon));
            if folder.is_dir() {
                let mut runs = Records::read(&folder, Path::new(""))?.runs;
                runs.sort_by(|a, b| {
                    let key = |run: &Record| (run.method.clone(), run.steps, run.seed, run.name());
                    key(a).cmp(&key(b))
                });
                let text = table_of(runs.iter()).to_csv()?;
                files::write(&folder.join(RUNS), text.as_bytes())
                    .with_context(|| folder.display().to_string())?;
            }
        }
    }
    Ok(())
}

fn name(regime: Regime, epsilon: f64) -> String {
    format!("{regime}-epsilon-{epsilon}")
}
