//! `bandroot sweep --random-stopping`: the best of a secret, random number of runs, and what that choice costs.
//!
//! The number of runs is drawn first, then for every run a setting and a seed, all by coins of the operating system. The runs
//! are made in the folder `.secret`, judged by held-out training examples with noise on the count, and the best one is
//! moved to `chosen`, without the numbers that its noise does not cover. Then `.secret` is removed, and with it the draws, all
//! other runs and their number. A search that is killed goes on with what was drawn; one that is begun anew, in
//! another folder, is another search, which no certificate of this one covers.

mod draws;
mod publication;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use dp_train::accounting::stopping::{self, Selection, StoppingLaw};
use dp_train::calibration;
use dp_train::certificate::Certificate;
use dp_train::fingerprint::Fingerprint;
use dp_train::plan::Sampling;
use dp_train::score::{PrivateScore, SecretCoins};
use serde::Serialize;

use super::attempts;
use super::cell::Cell;
use super::runner::{Retry, Runner};
use super::spec::Spec;
use crate::cli::Sweep;
use crate::terminal::output::{self, Stopped};
use cifar_convnet::BadArgument;
use cifar_convnet::config::Config;
use cifar_convnet::config::privacy::{Guarantee, Privacy};
use cifar_convnet::files;
use cifar_convnet::run::folder;
use draws::{DRAWS, alone, drawn};
use publication::{CHOSEN, publish};

/// The runs, until the best is chosen.
const SECRET: &str = ".secret";

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct StoppingOutput {
    chosen: PathBuf,
    selection: Option<Selection>,
    statement: String,
}

/// Whether a folder is of such a search, finished or not.
pub(super) fn is_at(out: &Path) -> bool {
    let chosen =
        folder::read_certificate(&out.join(CHOSEN)).is_ok_and(|found| found.selection.is_some());
    chosen || out.join(SECRET).join(DRAWS).exists()
}

/// Runs the search, or what is left of it.
pub(super) fn run(
    arguments: &Sweep,
    law: &StoppingLaw,
    spec: &Spec,
    out: &Path,
) -> anyhow::Result<()> {
    let refuse = |what: &str| BadArgument(format!("{}: {what}", arguments.file().display()));
    ensure!(
        spec.select.is_none() && !spec.names_seeds,
        refuse(
            "--random-stopping chooses by itself and draws the seeds: leave out select, halving and seeds"
        )
    );
    ensure!(
        !arguments.retry_failed && !arguments.choose_only && arguments.launch.launch.is_none(),
        refuse(
            "--random-stopping goes with neither --retry-failed nor --choose-only: what failed is always tried again; \
             and not with --launch: one process draws and chooses"
        )
    );
    let spec = &spec.with_random_stopping(law);
    let (multiplier, delta) = common_multiplier(spec).map_err(|what| refuse(&what))?;
    // Before anything runs: what cannot be priced is not begun.
    let price =
        stopping::epsilon(law, multiplier, delta).map_err(|error| refuse(&error.to_string()))?;
    let configs = configs(spec)?;
    let (secret, chosen) = (out.join(SECRET), out.join(CHOSEN));
    ensure!(
        chosen.exists() || attempts::counts(out)?.is_empty(),
        refuse(&format!(
            "{} has other runs: --random-stopping needs a folder of its own",
            out.display()
        ))
    );
    // Also if it was killed after the choice.
    let open = !chosen.exists() || secret.exists();
    let lock = open.then(|| alone(&secret)).transpose()?;
    // Another process may have ended in between.
    if !chosen.exists() {
        let cells = cells(law, (spec, configs), &secret)?;
        let best = search(arguments, cells, &secret, multiplier)?;
        let selection = Selection {
            mean: law.mean(),
            shape: law.shape(),
            score_noise: multiplier,
            score: best.1,
            epsilon: price,
            settings_sha256: configs,
        };
        publish(&best.0.folder(&secret), selection, &secret, &chosen)?;
    }
    let certificate = folder::read_certificate(&chosen)?;
    let same = certificate.selection.is_some_and(|found| {
        (found.mean, found.shape, found.settings_sha256) == (law.mean(), law.shape(), configs)
    });
    ensure!(
        same,
        refuse(&format!("{} is of another search: take another --out", chosen.display()))
    );
    if lock.is_some() {
        let cells = match secret.join(DRAWS).exists() {
            true => cells(law, (spec, configs), &secret)?,
            false => Vec::new(),
        };
        let names: Vec<String> = cells.into_iter().map(|cell| cell.name).collect();
        draws::remove(&secret, &names)?;
    }
    show(arguments, &chosen, certificate)
}

/// The runs that were drawn, now or before, in a folder that holds nothing else.
fn cells(
    law: &StoppingLaw,
    (spec, configs): (&Spec, Fingerprint),
    secret: &Path,
) -> anyhow::Result<Vec<Cell>> {
    let draws = drawn(law, (spec.settings.len(), configs), secret)?;
    let cells = draws.runs.iter().map(|draw| {
        let setting = spec.settings[draw.setting].clone();
        spec.cell("", setting, draw.seed, spec.earlier + 1)
    });
    let cells = cells.collect::<anyhow::Result<Vec<Cell>>>()?;
    let names: Vec<String> = cells.iter().map(|cell| cell.name.clone()).collect();
    draws::refuse_foreign(secret, &names)?;
    Ok(cells)
}

/// Makes all runs and finds the best: with its score, over all held-out examples.
fn search(
    arguments: &Sweep,
    cells: Vec<Cell>,
    secret: &Path,
    multiplier: f64,
) -> anyhow::Result<(Cell, f64)> {
    // What failed is tried again with what was drawn for it: fewer runs would be another law.
    let runner = Runner::new(secret, arguments.jobs, Retry::so_far())?.in_silence();
    let tally = runner.run("runs", &cells, None)?;
    let shown = secret.display();
    if tally.failed > 0 {
        // What it said is not shown: it is not covered.
        bail!("a run failed, see {shown}, which is secret; the same command tries it again");
    }
    if tally.refused > 0 {
        bail!(
            "a run was begun by another program, on another processor or with other data: go on with these, or remove \
             {shown}, which is secret, to begin anew"
        );
    }
    if tally.left > 0 {
        bail!(Stopped(format!(
            "stopped before all runs were made; the same command goes on with {shown}"
        )));
    }
    best(cells, secret, multiplier)
}

/// The noise multiplier that every run has, whatever its setting, which is that of its score too, and delta.
fn common_multiplier(spec: &Spec) -> Result<(f64, f64), String> {
    let mut common: Option<(Guarantee, usize)> = None;
    for setting in &spec.settings {
        let cell = spec.cell("", setting.clone(), 0, 1).map_err(|error| error.to_string())?;
        let Config { privacy, data, model, .. } = cell.config;
        let Privacy::Guaranteed(guarantee) = privacy else {
            return Err(
                "--random-stopping needs private runs, but one has privacy = \"none\"".into()
            );
        };
        if guarantee.sampling != Sampling::FixedOrder || guarantee.noise_seed.is_some() {
            return Err(
                "--random-stopping is accounted for with privacy.sampling = \"fixed-order\" and no privacy.noise_seed"
                    .into(),
            );
        }
        if !data.holds_out() || model.start_from.is_some() {
            return Err(
                "--random-stopping judges by held-out training examples: set data.validation, for example 0.1, and \
                 leave out model.start_from"
                    .into(),
            );
        }
        let held_out = data.held_out_examples();
        let same = |(other, count): &(Guarantee, usize)| {
            let of = |g: &Guarantee| (g.epsilon, g.delta, g.neighbouring);
            of(other) == of(&guarantee) && *count == held_out
        };
        if common.as_ref().is_some_and(|common| !same(common)) {
            return Err(
                "--random-stopping needs one epsilon, delta, neighbouring and number of held-out examples for all settings"
                    .into(),
            );
        }
        common.get_or_insert((guarantee, held_out));
    }
    let (Guarantee { epsilon, delta, .. }, _) = common.ok_or("there are no settings")?;
    let multiplier = calibration::multiplier(epsilon, delta).map_err(|error| error.to_string())?;
    Ok((multiplier, delta))
}

/// All configs that can be drawn.
fn configs(spec: &Spec) -> anyhow::Result<Fingerprint> {
    let mut all = String::new();
    for setting in &spec.settings {
        all += &spec.cell("", setting.clone(), 0, spec.earlier + 1)?.toml()?;
        all.push('\0');
    }
    Ok(Fingerprint::of_bytes(all.as_bytes()))
}

/// The run with the best score, which is made here.
fn best(cells: Vec<Cell>, secret: &Path, deviation: f64) -> anyhow::Result<(Cell, f64)> {
    let mut coins = SecretCoins::from_os()?;
    let mut best: Option<(Cell, PrivateScore)> = None;
    for cell in cells {
        let held_out = cell.config.data.held_out_examples() as f64;
        let right = (cell.result(secret)?.accuracy * held_out).round() as u64;
        let score = coins.score(right, deviation);
        if best.as_ref().is_none_or(|(_, other)| score.order(other).is_gt()) {
            best = Some((cell, score));
        }
    }
    let (cell, score) = best.context("there is no run")?;
    let held_out = cell.config.data.held_out_examples() as f64;
    Ok((cell, score.right() / held_out))
}

/// What is known of the search from now on.
fn show(arguments: &Sweep, chosen: &Path, certificate: Certificate) -> anyhow::Result<()> {
    let Certificate { selection, statement, .. } = certificate;
    if arguments.json {
        let shown = StoppingOutput { chosen: chosen.to_owned(), selection, statement };
        return output::print(&files::json(&shown)?);
    }
    let score = selection.map_or(f64::NAN, |selection| 100.0 * selection.score);
    output::print(&format!(
        "the best run is in {}, {score:.2} % of the held-out examples with noise\n{statement}\n",
        chosen.display()
    ))
}
