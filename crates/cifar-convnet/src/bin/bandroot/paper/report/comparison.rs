//! Our accuracy beside the paper's, cell by cell.

use std::collections::BTreeMap;

use crate::paper::report::record::Record;
use crate::published::{AccuracyRow, Regime};
use crate::terminal::figure::{self, Curve, Panel, Scale};
use crate::terminal::table::Table;

/// The methods of the paper, best first.
pub(crate) const METHODS: [&str; 4] = ["bsr", "aof", "identity", "input"];

/// The privacy losses of the paper.
pub(crate) const EPSILONS: [f64; 3] = [4.0, 8.0, 2.0];

/// Runs of one experiment that differ in their seeds.
#[derive(Debug, Clone)]
pub(crate) struct Group<'a> {
    pub(crate) runs: Vec<&'a Record>,
    /// In percent.
    pub(crate) mean: f64,
    /// With n - 1 in the denominator; none of a single run.
    pub(crate) std: Option<f64>,
}

impl<'a> Group<'a> {
    pub(crate) fn of(runs: Vec<&'a Record>) -> Self {
        let n = runs.len() as f64;
        let mean = runs.iter().map(|run| run.accuracy).sum::<f64>() / n;
        let squares: f64 = runs.iter().map(|run| (run.accuracy - mean).powi(2)).sum();
        let std = (runs.len() > 1).then(|| (squares / (n - 1.0)).sqrt());
        Self { runs, mean, std }
    }

    /// `46.12 ± 0.51 (3)`.
    pub(crate) fn show(&self) -> String {
        let std = self.std.map_or(String::new(), |std| format!(" \u{b1} {std:.2}"));
        format!("{:.2}{std} ({})", self.mean, self.runs.len())
    }
}

/// A cell of the paper's tables with what was run of it here.
#[derive(Debug, Clone)]
pub(crate) struct Compared<'a> {
    pub(crate) row: AccuracyRow,
    /// The experiment with the most seeds, of these the last; never the one with the best test accuracy.
    pub(crate) ours: Option<Group<'a>>,
    /// Experiments in this cell that are not shown.
    pub(crate) others: usize,
}

impl Compared<'_> {
    /// Whether our mean is at least the paper's mean minus two of its standard deviations.
    pub(crate) fn is_reached(&self) -> Option<bool> {
        let ours = self.ours.as_ref()?;
        Some(ours.mean >= self.row.mean - 2.0 * self.row.std)
    }

    /// The cell in words.
    pub(crate) fn title(&self) -> String {
        let AccuracyRow { regime, epsilon, method, steps, participations, .. } = &self.row;
        match regime {
            Regime::Single => format!("{regime}, epsilon {epsilon}, n = {steps}, {method}"),
            Regime::Repeated => {
                let plural = if *participations == 1 { "" } else { "s" };
                format!("{regime}, epsilon {epsilon}, {participations} epoch{plural}, {method}")
            }
        }
    }

    /// `34.84 ± 2.20`, as printed.
    pub(crate) fn show_paper(&self) -> String {
        format!("{:.2} \u{b1} {:.2}", self.row.mean, self.row.std)
    }
}

/// Sets the final runs on CIFAR-10 beside the paper.
pub(crate) fn compare<'a>(rows: &[AccuracyRow], runs: &'a [Record]) -> Vec<Compared<'a>> {
    let of_the_paper: Vec<&Record> = runs.iter().filter(|run| is_of_the_paper(run)).collect();
    rows.iter()
        .map(|row| {
            let mut groups: BTreeMap<_, Vec<&Record>> = BTreeMap::new();
            for run in of_the_paper.iter().filter(|run| is_of(run, row)) {
                groups.entry(&run.setting).or_default().push(run);
            }
            let others = groups.len().saturating_sub(1);
            let last = |runs: &Vec<&Record>| runs.iter().map(|run| run.unix_time()).max();
            let chosen = groups.into_values().max_by_key(|runs| (runs.len(), last(runs)));
            Compared { row: row.clone(), ours: chosen.map(Group::of), others }
        })
        .collect()
}

/// Whether a run follows the paper's protocol: its data and model, tested, nothing added.
pub(crate) fn is_of_the_paper(run: &Record) -> bool {
    run.data == "cifar10"
        && run.validation == 0.0
        && run.deviations.is_empty()
        && run.show("model.name") == "convnet"
}

/// Whether a run belongs to a cell, whatever its hyper-parameters.
pub(crate) fn is_of(run: &Record, row: &AccuracyRow) -> bool {
    run.method == row.method
        && run.epsilon == row.epsilon
        && run.delta == row.delta
        && run.steps == row.steps
        && run.participations == row.participations
        && run.separation == row.separation
        && run.batch_size == row.batch_size
}

/// One table of the paper, ours and theirs in every cell.
pub(crate) fn table(cells: &[Compared<'_>], regime: Regime, epsilon: f64) -> Table {
    let name = if regime == Regime::Single { "n" } else { "epochs" };
    let mut header = vec![name];
    for method in METHODS {
        header.extend([method, "paper"]);
    }
    let mut table = Table::new(&header);
    let part: Vec<&Compared<'_>> = part(cells, regime, epsilon).collect();
    let mut steps: Vec<usize> = part.iter().map(|cell| cell.row.steps).collect();
    steps.dedup();
    for steps in steps {
        let (first, mut line) = (place(regime, steps), Vec::new());
        for method in METHODS {
            let cell = part.iter().find(|c| c.row.steps == steps && c.row.method == method);
            let ours = cell.and_then(|cell| {
                let star = if cell.is_reached()? { "" } else { "*" };
                Some(cell.ours.as_ref()?.show() + star)
            });
            line.push(ours.unwrap_or_else(|| "\u{2013}".to_owned()));
            line.push(cell.map_or(String::new(), |cell| cell.show_paper()));
        }
        table.push([first.to_string()].into_iter().chain(line).collect());
    }
    table
}

fn part<'a, 'b>(
    cells: &'a [Compared<'b>],
    regime: Regime,
    epsilon: f64,
) -> impl Iterator<Item = &'a Compared<'b>> {
    cells.iter().filter(move |cell| cell.row.regime == regime && cell.row.epsilon == epsilon)
}

/// What the figures and tables are over: steps, or epochs of 100 steps.
fn place(regime: Regime, steps: usize) -> usize {
    if regime == Regime::Single { steps } else { steps / 100 }
}

/// The paper's figure: accuracy over the steps of one epoch, or over epochs.
pub(crate) fn panel(cells: &[Compared<'_>], regime: Regime, epsilon: f64) -> Panel {
    let styles = [
        ("BSR", "BSR (paper)", figure::BLUE),
        ("AOF", "AOF (paper)", figure::PURPLE),
        ("identity", "identity (paper)", figure::ORANGE),
        ("input", "input (paper)", figure::RED),
    ];
    let mut curves = Vec::new();
    for (method, (ours, paper, color)) in METHODS.into_iter().zip(styles) {
        let cells = || part(cells, regime, epsilon).filter(|cell| cell.row.method == method);
        let x = |cell: &Compared<'_>| place(regime, cell.row.steps) as f64;
        let found: Vec<(f64, &Group<'_>)> =
            cells().filter_map(|cell| Some((x(cell), cell.ours.as_ref()?))).collect();
        let points = found.iter().map(|(x, group)| (*x, group.mean)).collect();
        let spread = found.iter().map(|(_, group)| group.std.unwrap_or(0.0)).collect();
        curves.push(Curve::line(ours, color, points).with_spread(spread));
        // A little to the left, so that the bars do not hide one another.
        let points = cells().map(|cell| (0.98 * x(cell), cell.row.mean)).collect();
        let spread = cells().map(|cell| cell.row.std).collect();
        curves.push(Curve::pale(paper, color, points).with_spread(spread));
    }
    Panel {
        title: format!("{regime} participation, epsilon = {epsilon}"),
        x_label: if regime == Regime::Single { "steps n of one epoch" } else { "epochs" },
        y_label: "test accuracy in %",
        y_scale: Scale::Linear,
        curves,
    }
}

/// Pairs of cells where the paper has bsr or aof above identity, or identity above input: how many are recorded
/// here, and those in which our means are not in this order.
pub(crate) fn disorder(cells: &[Compared<'_>]) -> (usize, Vec<String>) {
    let pairs = [("bsr", "identity"), ("aof", "identity"), ("identity", "input")];
    let table = |row: &AccuracyRow| (row.regime, row.epsilon, row.steps);
    let (mut compared, mut wrong) = (0, Vec::new());
    for upper in cells {
        let Some(above) = &upper.ours else { continue };
        for (_, other) in pairs.iter().filter(|(method, _)| *method == upper.row.method) {
            let lower = cells.iter().find(|cell| {
                cell.row.method == *other
                    && table(&cell.row) == table(&upper.row)
                    && cell.row.mean < upper.row.mean
            });
            let Some(below) = lower.and_then(|cell| cell.ours.as_ref()) else { continue };
            compared += 1;
            if above.mean <= below.mean {
                let (title, above, below) = (upper.title(), above.show(), below.show());
                wrong.push(format!("{title}: {above}, but {other} {below}"));
            }
        }
    }
    (compared, wrong)
}
