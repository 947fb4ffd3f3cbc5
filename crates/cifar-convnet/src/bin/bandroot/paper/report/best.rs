//! Recipes of our own: the best accuracy at a given epsilon, and what it is made of.
//!
//! ```text
//! best/NAME                  final runs on CIFAR-10, and those on Fashion-MNIST
//! best/factorizations/NAME   the recipe at epsilon 8 with other noise
//! best/ablation/NAME         the recipe in five epochs with one thing changed; best/ablation/recipe is the recipe
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use crate::paper::report::amplification;
use crate::paper::report::comparison::{Compared, Group};
use crate::paper::report::record::Record;
use crate::terminal::table::Table;

/// The epsilon at which factorizations are compared.
const COMPARED: f64 = 8.0;

/// A table with its title and what is to be said of it.
pub(crate) struct Part {
    pub(crate) title: &'static str,
    pub(crate) words: &'static str,
    pub(crate) table: Table,
}

/// All tables that have a run.
pub(crate) fn parts(cells: &[Compared<'_>], runs: &[&Record]) -> Vec<Part> {
    let parts = [
        Part {
            title: "Best accuracy on CIFAR-10",
            words: "Test accuracy in percent, mean \u{b1} standard deviation (seeds), beside the highest mean in the \
                    paper's tables and the highest here with the paper's net. Epsilon is that of one run, chosen \
                    among as many as the last column says.",
            table: at_each_epsilon(cells, runs),
        },
        Part {
            title: "The same recipe with other factorizations",
            words: "At epsilon 8, at the rate that was chosen with bsr, which is too high for much more noise. The noise is \
                    the standard deviation of a parameter by the plan, over all iterates and of the last.",
            table: factorizations(runs),
        },
        Part {
            title: "What secret batches are worth",
            words: "The recipes of epsilon 8, 4 and 2 in ten epochs, one seed each. In a fixed order the batches are public. \
                    Balls-in-bins puts every example into a secret batch of each epoch, the same one in all; Poisson \
                    takes every example for every batch with the same probability. Less noise is needed as long as \
                    nobody learns the batches.",
            table: amplification::table(runs),
        },
        Part {
            title: "What each part brings",
            words: "The recipe of epsilon 8 in five epochs, and with one thing changed and what has to follow from it; \
                    one seed and other noise each, so differences below a point mean little.",
            table: ablation(runs),
        },
        Part {
            title: "Fashion-MNIST",
            words: "One recipe. At epsilon 3, with amplification by sampling, Tram\u{e8}r and Boneh (2021) have \
                    89.7 with scattering and a linear model, 89.0 with a small net on it and 86.0 without.",
            table: fashion_mnist(runs),
        },
    ];
    parts.into_iter().filter(|part| part.table.len() > 0).collect()
}

/// The runs directly in this folder.
fn directly_in<'a>(runs: &[&'a Record], folder: &str) -> Vec<&'a Record> {
    runs.iter().filter(|run| run.folder.parent() == Some(Path::new(folder))).copied().collect()
}

/// Runs of one data set that differ in their seeds, the largest epsilon first.
fn groups<'a>(runs: &[&'a Record], data: &str) -> Vec<Group<'a>> {
    let mut groups: BTreeMap<_, Vec<&Record>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.data == data && run.private) {
        groups.entry(&run.setting).or_default().push(run);
    }
    let mut groups: Vec<Group<'_>> = groups.into_values().map(Group::of).collect();
    groups.sort_by(|a, b| b.runs[0].epsilon.total_cmp(&a.runs[0].epsilon));
    groups
}

fn at_each_epsilon(cells: &[Compared<'_>], runs: &[&Record]) -> Table {
    let mut table = Table::new(&[
        "epsilon",
        "accuracy",
        "the paper's best",
        "its net here",
        "epochs",
        "minutes",
        "trials",
    ]);
    for group in groups(&directly_in(runs, "best"), "cifar10") {
        let first = group.runs[0];
        let trials = group.runs.iter().filter_map(|run| run.trials).max();
        let there = || cells.iter().filter(|cell| cell.row.epsilon == first.epsilon);
        table.push(vec![
            first.epsilon.to_string(),
            group.show(),
            highest(there().map(|cell| cell.row.mean)),
            highest(there().filter_map(|cell| Some(cell.ours.as_ref()?.mean))),
            first.participations.to_string(),
            minutes(&group),
            trials.map_or(String::new(), |trials| trials.to_string()),
        ]);
    }
    table
}

/// The highest of some accuracies; a dash if there is none.
fn highest(accuracies: impl Iterator<Item = f64>) -> String {
    let highest = accuracies.reduce(f64::max);
    highest.map_or("\u{2013}".to_owned(), |highest| format!("{highest:.1}"))
}

/// Of one run, on average.
fn minutes(group: &Group<'_>) -> String {
    let seconds: Vec<f64> = group.runs.iter().filter_map(|run| run.seconds).collect();
    let all: f64 = seconds.iter().sum();
    if seconds.is_empty() {
        String::new()
    } else {
        format!("{:.1}", all / 60.0 / seconds.len() as f64)
    }
}

fn factorizations(runs: &[&Record]) -> Table {
    let mut table = Table::new(&["method", "accuracy", "noise", "of the last iterate"]);
    let others = directly_in(runs, "best/factorizations");
    if others.is_empty() {
        return table;
    }
    let own = groups(&directly_in(runs, "best"), "cifar10");
    let own = own.into_iter().filter(|group| group.runs[0].epsilon == COMPARED);
    let mut groups: Vec<Group<'_>> = own.chain(groups(&others, "cifar10")).collect();
    groups.sort_by(|a, b| b.mean.total_cmp(&a.mean));
    for group in groups {
        let [all, last] = group.runs[0].noise;
        let number =
            |noise: Option<f64>| noise.map_or(String::new(), |noise| format!("{noise:.3}"));
        table.push(vec![group.runs[0].method.clone(), group.show(), number(all), number(last)]);
    }
    table
}

fn ablation(runs: &[&Record]) -> Table {
    let mut table = Table::new(&["what", "accuracy", "difference"]);
    let runs = directly_in(runs, "best/ablation");
    let name = |run: &Record| run.folder.file_name().map(|name| name.to_string_lossy().to_string());
    let recipe = runs.iter().find(|run| name(run).as_deref() == Some("recipe"));
    let Some(recipe) = recipe else { return table };
    let line = |what: String, accuracy: f64| {
        vec![what, format!("{accuracy:.1}"), format!("{:+.1}", accuracy - recipe.accuracy)]
    };
    table.push(line("the recipe in five epochs".to_owned(), recipe.accuracy));
    let mut lines: Vec<(f64, String)> = Vec::new();
    if let Some(accuracy) = recipe.last_iterate {
        lines.push((accuracy, "no average (the same run)".to_owned()));
    }
    let others = runs.iter().filter(|run| run.folder != recipe.folder);
    lines.extend(others.filter_map(|run| Some((run.accuracy, name(run)?.replace('-', " ")))));
    lines.sort_by(|a, b| a.0.total_cmp(&b.0));
    lines.into_iter().for_each(|(accuracy, what)| table.push(line(what, accuracy)));
    table
}

fn fashion_mnist(runs: &[&Record]) -> Table {
    let mut table = Table::new(&["epsilon", "accuracy", "epochs", "minutes"]);
    for group in groups(&directly_in(runs, "best"), "fashion-mnist") {
        let first = group.runs[0];
        table.push(vec![
            first.epsilon.to_string(),
            group.show(),
            first.participations.to_string(),
            minutes(&group),
        ]);
    }
    table
}
