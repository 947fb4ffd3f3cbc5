//! `bandroot reproduce frontier`: what every factorization gives for the memory that it takes.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use dp_train::comparison::usual_methods;
use dp_train::noise::most_kept_rows;
use mf_core::{Factorization, Method, Participation, Sgd, Workload};
use serde::Serialize;

use crate::cli::Frontier;
use crate::terminal::figure::{self, Curve, Panel};
use crate::terminal::output;
use crate::terminal::progress;
use crate::terminal::table::Table;
use cifar_convnet::BadArgument;
use cifar_convnet::files;
use cifar_convnet::run::environment::Environment;
use cifar_convnet::run::folder;

/// Decay factor and momentum of the four panels.
const SETTINGS: [(f64, f64); 4] = [(1.0, 0.0), (1.0, 0.9), (0.999, 0.0), (0.999, 0.9)];

/// One factorization for one workload.
#[derive(Debug, Clone, Serialize)]
struct FrontierPoint {
    alpha: f64,
    beta: f64,
    method: &'static str,
    /// Bands or buffers, as the method was given them.
    size: Option<usize>,
    /// Rows of single-precision floats that the noise keeps.
    rows: usize,
    /// The same if all that can be drawn again is.
    least_rows: usize,
    sensitivity: f64,
    sensitivity_exact: bool,
    expected_error: f64,
    /// The expected error over the certified optimum of unit columns and as many bands as the separation.
    over_optimum: f64,
    /// For aof: the expected error of no such `C` is smaller.
    #[serde(skip_serializing_if = "Option::is_none")]
    lower_bound: Option<f64>,
    seconds: f64,
}

pub(crate) fn run(arguments: &Frontier) -> anyhow::Result<()> {
    let (n, b) = (arguments.steps, arguments.separation);
    if b == 0 || !n.is_multiple_of(b) {
        return Err(BadArgument(format!("--separation {b} does not divide --steps {n}")).into());
    }
    let participation = Participation::new(n, b, n / b)?;
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("could not make the folder {}", folder.display()))?;
    }
    let methods = usual_methods(n, b);
    let bar = progress::bar((SETTINGS.len() * (methods.len() + 1)) as u64);
    let mut cells = Vec::new();
    for (alpha, beta) in SETTINGS {
        let workload = Workload::sgd(Sgd::new(alpha, beta)?, n)?;
        let floor = optimum(&workload, &participation, arguments)?;
        bar.inc(1);
        for &method in &methods {
            bar.set_message(format!("alpha {alpha} beta {beta} {method}"));
            let start = Instant::now();
            let found = Factorization::for_participation(workload.clone(), method, &participation)?;
            cells.push(cell(&found, &participation, floor.expected_error, start)?);
            bar.inc(1);
        }
        cells.push(floor);
    }
    bar.finish_and_clear();
    if let Some(folder) = &arguments.out {
        write_folder(folder, &cells, &participation)?;
    }
    if arguments.json {
        return output::print(&files::json(&cells)?);
    }
    output::print(&table(&cells).to_text())
}

/// The certified optimum with as many bands as the separation, by the solver or from its cache.
fn optimum(
    workload: &Workload,
    participation: &Participation,
    arguments: &Frontier,
) -> anyhow::Result<FrontierPoint> {
    let start = Instant::now();
    let options = progress::aof_options(&arguments.aof);
    let bands = participation.min_separation();
    let found = progress::solving(&arguments.aof.cache, |solver| {
        Ok(solver.aof(workload.clone(), bands, &options)?.factorization)
    })?;
    let mut cell = cell(&found, participation, f64::NAN, start)?;
    let gap = found.certificate().map_or(1.0, |certificate| certificate.relative_gap);
    cell.lower_bound = Some(cell.expected_error * (1.0 - gap));
    cell.over_optimum = 1.0;
    Ok(cell)
}

fn cell(
    found: &Factorization,
    participation: &Participation,
    optimum: f64,
    start: Instant,
) -> anyhow::Result<FrontierPoint> {
    let sensitivity = found.sensitivity(participation)?;
    let expected_error = found.loss(participation)?.expected_error;
    let rows = found.strategy().noise_rows();
    let sgd = found.workload().as_sgd();
    Ok(FrontierPoint {
        alpha: sgd.map_or(f64::NAN, Sgd::decay_factor),
        beta: sgd.map_or(f64::NAN, Sgd::momentum),
        method: found.method().name(),
        size: found.method().size(),
        rows,
        least_rows: if most_kept_rows(found.strategy()).is_some() { 0 } else { rows },
        sensitivity: sensitivity.value,
        sensitivity_exact: sensitivity.exact,
        expected_error,
        over_optimum: expected_error / optimum,
        lower_bound: None,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// For people: rounded, least memory first in every setting.
fn table(cells: &[FrontierPoint]) -> Table {
    let mut table = Table::new(&[
        "alpha",
        "beta",
        "method",
        "size",
        "rows",
        "least rows",
        "sens",
        "error",
        "over optimum",
        "seconds",
    ]);
    for setting in cells.chunk_by(|x, y| (x.alpha, x.beta) == (y.alpha, y.beta)) {
        let mut sorted: Vec<&FrontierPoint> = setting.iter().collect();
        sorted.sort_by(|x, y| {
            x.rows.cmp(&y.rows).then(x.expected_error.total_cmp(&y.expected_error))
        });
        for cell in sorted {
            let bound = if cell.sensitivity_exact { "" } else { "*" };
            table.push(vec![
                cell.alpha.to_string(),
                cell.beta.to_string(),
                cell.method.to_string(),
                cell.size.map_or("-".to_string(), |size| size.to_string()),
                cell.rows.to_string(),
                cell.least_rows.to_string(),
                format!("{:.4}{bound}", cell.sensitivity),
                format!("{:.4}", cell.expected_error),
                format!("{:.4}", cell.over_optimum),
                format!("{:.3}", cell.seconds),
            ]);
        }
    }
    table
}

/// For programs: in full precision, without the times.
fn full_precision(cells: &[FrontierPoint], participation: &Participation) -> Table {
    let mut table = Table::new(&[
        "alpha",
        "beta",
        "n",
        "b",
        "k",
        "method",
        "size",
        "rows",
        "least_rows",
        "sensitivity",
        "exact",
        "expected_error",
        "lower_bound",
    ]);
    let pattern =
        [participation.steps(), participation.min_separation(), participation.max_participations()];
    for cell in cells {
        let mut row = vec![cell.alpha.to_string(), cell.beta.to_string()];
        row.extend(pattern.map(|x| x.to_string()));
        row.extend([
            cell.method.to_string(),
            cell.size.map_or(String::new(), |size| size.to_string()),
            cell.rows.to_string(),
            cell.least_rows.to_string(),
            cell.sensitivity.to_string(),
            cell.sensitivity_exact.to_string(),
            cell.expected_error.to_string(),
            cell.lower_bound.map_or(String::new(), |bound| bound.to_string()),
        ]);
        table.push(row);
    }
    table
}

fn write_folder(
    folder: &Path,
    cells: &[FrontierPoint],
    participation: &Participation,
) -> anyhow::Result<()> {
    let write = |name: &str, text: String| files::write(&folder.join(name), text.as_bytes());
    let note = format!(
        "n = {}, b = {}, k = {}. Rows: of single-precision noise kept from step to step; least rows: if those \
         that can be drawn again are. A star marks a sensitivity that is an upper bound. The optimum is that \
         of aof, certified for unit columns and b bands.\n",
        participation.steps(),
        participation.min_separation(),
        participation.max_participations()
    );
    write("frontier.md", format!("{}\n{note}", table(cells).to_markdown()))?;
    write("frontier.csv", full_precision(cells, participation).to_csv()?)?;
    write(folder::ENVIRONMENT, files::json(&Environment::current())?)?;
    let panels: Vec<Panel> =
        SETTINGS.into_iter().map(|(alpha, beta)| panel(cells, alpha, beta)).collect();
    figure::write(folder, "frontier", &panels)
}

fn panel(cells: &[FrontierPoint], alpha: f64, beta: f64) -> Panel {
    let setting = || cells.iter().filter(|cell| cell.alpha == alpha && cell.beta == beta);
    // Both axes are logarithmic, and DP-SGD keeps nothing.
    let points = |name: &str| -> Vec<(f64, f64)> {
        let of_method = setting().filter(|cell| cell.method == name);
        of_method.map(|cell| ((cell.rows + 1) as f64, cell.expected_error)).collect()
    };
    let most = setting().map(|cell| cell.rows + 1).max().unwrap_or(1) as f64;
    let floor = setting().filter_map(|cell| cell.lower_bound).next().unwrap_or(f64::NAN);
    let name = |method: Method| method.name();
    Panel {
        title: format!("alpha = {alpha}, beta = {beta}"),
        x_label: "rows of noise kept, plus 1",
        y_label: "expected error",
        y_scale: figure::Scale::Logarithmic,
        curves: vec![
            Curve::marks(
                "lambda-CGD",
                figure::RED,
                points(name(Method::LambdaCgd { lambda: None })),
            ),
            Curve::marks(
                "normalized",
                figure::BLACK,
                points(name(Method::NormalizedSquareRoot { bands: 1 })),
            ),
            Curve::marks("root", figure::GREY, points(name(Method::SquareRoot))),
            Curve::marks("DP-SGD", figure::BLUE, points(name(Method::Identity))),
            Curve::line("AOF floor", figure::BLACK, vec![(1.0, floor), (most, floor)]),
            Curve::line("BLT", figure::PURPLE, points(name(Method::Blt { buffers: 1 }))),
            Curve::line(
                "inverse",
                figure::GREEN,
                points(name(Method::InverseToeplitz { bands: 1 })),
            ),
            Curve::line("BISR", figure::ORANGE, points(name(Method::Bisr { bands: 1 }))),
            Curve::line("Toeplitz", figure::SKY, points(name(Method::Toeplitz { bands: 1 }))),
            Curve::line("BSR", figure::BLUE, points(name(Method::Bsr { bands: 1 }))),
        ],
    }
}
