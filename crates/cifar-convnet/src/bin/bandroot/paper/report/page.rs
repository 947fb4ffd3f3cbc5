//! The report as one HTML page that needs nothing else.

use std::fmt::Write as _;

use crate::paper::report::Findings;
use crate::paper::report::comparison::{self, Compared, EPSILONS, METHODS};
use crate::published::Regime;
use crate::terminal::figure::{self, Panel};
use crate::terminal::table::{Table, escape_html as escape};

/// The whole page.
pub(crate) fn html(findings: &Findings<'_>) -> anyhow::Result<String> {
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>Bandroot: results beside the paper</title>\n<style>\n",
    );
    page += include_str!("page.css");
    page += "</style>\n</head>\n<body>\n";
    page += &head(findings);
    page += &best(findings);
    page += &accuracy(findings)?;
    page += &measures(
        "errors",
        "Expected error",
        &match findings.agreement {
            Some((cells, agree)) => format!(
                "{agree} of {cells} cells are at or below the number that the paper prints; the columns \
                 beside ours are the paper's."
            ),
            None => {
                "Not recorded: <code>bandroot reproduce errors --out results/expected-error</code>"
                    .to_owned()
            }
        },
        &findings.errors,
    )?;
    page += &measures(
        "runtimes",
        "Time to factorize",
        if findings.runtimes.is_empty() {
            "Not recorded: <code>bandroot reproduce runtimes --out results/runtimes</code>"
        } else {
            "Seconds. Ours on the machine of the record, AOF to the certified gap; the paper's BSR and CVX \
             on one CPU core, GD and L-BFGS on an H100."
        },
        &findings.runtimes,
    )?;
    page += &lists(findings);
    page += "</body>\n</html>\n";
    Ok(page)
}

fn head(findings: &Findings<'_>) -> String {
    let recorded = findings.cells.iter().filter(|cell| cell.ours.is_some()).count();
    let reached = findings.cells.iter().filter(|cell| cell.is_reached() == Some(true)).count();
    let tile = |number: String, text: &str| format!("<div><b>{number}</b>{text}</div>\n");
    let best = if findings.best().is_empty() { "" } else { "<a href=\"#best\">Best</a>" };
    let mut text = format!(
        "<h1>Bandroot: results beside the paper</h1>\n\
         <p class=\"soft\">Private training with matrix-factorization noise, beside Kalinin and Lampert, \
         \u{201c}Banded Square Root Matrix Factorization for Differentially Private Model Training\u{201d} \
         (NeurIPS 2024). Everything here was made by <code>bandroot report</code> from the recorded runs.</p>\n\
         <nav>{best}<a href=\"#accuracy\">Accuracy</a><a href=\"#errors\">Expected error</a>\
         <a href=\"#runtimes\">Runtimes</a><a href=\"#runs\">Runs</a><a href=\"#searches\">Searches</a>\
         <a href=\"#missing\">Missing</a></nav>\n<div class=\"tiles\">\n",
    );
    text += &tile(format!("{recorded} / {}", findings.cells.len()), "accuracy cells recorded");
    text += &tile(format!("{reached} / {recorded}"), "of these reach the paper");
    text += &tile(findings.runs.len().to_string(), "final runs");
    text += &tile(findings.searches.len().to_string(), "tuning runs");
    text + "</div>\n"
}

/// Recipes of our own; nothing if none is recorded.
fn best(findings: &Findings<'_>) -> String {
    let parts = findings.best();
    if parts.is_empty() {
        return String::new();
    }
    let mut text = String::from("<h2 id=\"best\">Best accuracy per epsilon</h2>\n");
    for part in parts {
        let (title, words) = (escape(part.title), escape(part.words));
        let _ = writeln!(text, "<h3>{title}</h3>\n<p>{words}</p>\n{}", scroll(&part.table));
    }
    text
}

fn accuracy(findings: &Findings<'_>) -> anyhow::Result<String> {
    let cells = &findings.cells;
    let mut text = String::from(
        "<h2 id=\"accuracy\">Accuracy on CIFAR-10</h2>\n\
         <p>Test accuracy in percent: our mean \u{b1} standard deviation, with the number of seeds raised, and \
         below it the paper's over 5 seeds. A cell reaches the paper if our mean is at least the paper's minus two of \
         its standard deviations. Where several settings were run, the one with the most seeds is shown, then \
         the last; never the one that tested best. Epsilon is that of one run: the choice of \
         hyper-parameters is not accounted for, here as in the paper.</p>\n",
    );
    let below: Vec<&Compared<'_>> =
        cells.iter().filter(|cell| cell.is_reached() == Some(false)).collect();
    if below.is_empty() {
        if cells.iter().any(|cell| cell.ours.is_some()) {
            text += "<p class=\"good\">Every recorded cell reaches the paper.</p>\n";
        } else {
            text += "<p>Nothing is recorded yet.</p>\n";
        }
    } else {
        let _ = write!(text, "<p class=\"bad\">Below the paper: {}</p>\n<ul>\n", below.len());
        for cell in below {
            let ours = cell.ours.as_ref().map_or(String::new(), comparison::Group::show);
            let (title, paper) = (escape(&cell.title()), cell.show_paper());
            let _ = writeln!(text, "<li>{title}: {ours}, paper {paper}</li>");
        }
        text += "</ul>\n";
    }
    let (compared, wrong) = comparison::disorder(cells);
    if compared > 0 {
        let right = compared - wrong.len();
        let _ = writeln!(
            text,
            "<p>Where the paper has bsr or aof above identity, or identity above input, so have our means in {right} \
             of {compared} comparisons.</p>"
        );
        if !wrong.is_empty() {
            let items: String =
                wrong.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
            let _ = writeln!(text, "<p class=\"bad\">Not in:</p>\n<ul>\n{items}</ul>");
        }
    }
    for epsilon in EPSILONS {
        let _ = writeln!(text, "<h3>epsilon = {epsilon}, delta = 1e-5</h3>\n<div class=\"pair\">");
        for regime in [Regime::Repeated, Regime::Single] {
            text += "<div>\n";
            text += &figure::inline(&comparison::panel(cells, regime, epsilon))?;
            text += &accuracy_table(cells, regime, epsilon);
            text += "</div>\n";
        }
        text += "</div>\n";
    }
    Ok(text)
}

/// The table with ours above the paper's in one cell: half as wide.
fn accuracy_table(cells: &[Compared<'_>], regime: Regime, epsilon: f64) -> String {
    let name = if regime == Regime::Single { "n" } else { "epochs" };
    let mut text = format!("<div class=\"scroll\"><table class=\"accuracy\">\n<tr><th>{name}</th>");
    for method in METHODS {
        let _ = write!(text, "<th>{method}</th>");
    }
    text += "</tr>\n";
    let part = cells.iter().filter(|c| c.row.regime == regime && c.row.epsilon == epsilon);
    let part: Vec<&Compared<'_>> = part.collect();
    for row in part.chunk_by(|a, b| a.row.steps == b.row.steps) {
        let place =
            if regime == Regime::Single { row[0].row.steps } else { row[0].row.participations };
        let _ = write!(text, "<tr><th>{place}</th>");
        for method in METHODS {
            let Some(cell) = row.iter().find(|cell| cell.row.method == method) else {
                text += "<td></td>";
                continue;
            };
            let ours = match (&cell.ours, cell.is_reached()) {
                (Some(ours), Some(true)) => format!("<b class=\"good\">{}</b>", short(ours)),
                (Some(ours), _) => format!("<b class=\"bad\">\u{2193}\u{a0}{}</b>", short(ours)),
                (None, _) => "\u{2013}".to_owned(),
            };
            let (mean, std) = (cell.row.mean, cell.row.std);
            let _ = write!(text, "<td>{ours}<small>{mean:.1}\u{b1}{std:.1}</small></td>");
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

/// `46.1 ± 0.5` with the number of seeds raised, narrow enough for a phone.
fn short(group: &comparison::Group<'_>) -> String {
    let std = group.std.map_or(String::new(), |std| format!("\u{b1}{std:.1}"));
    format!("{:.1}{std}<sup>{}</sup>", group.mean, group.runs.len())
}

fn measures(
    id: &str,
    title: &str,
    words: &str,
    parts: &[(Panel, Table)],
) -> anyhow::Result<String> {
    let mut text = format!("<h2 id=\"{id}\">{title}</h2>\n<p>{words}</p>\n");
    let (first, rest) = parts.split_at(parts.len().min(2));
    let pair = |parts: &[(Panel, Table)]| -> anyhow::Result<String> {
        let mut text = String::from("<div class=\"pair\">\n");
        for (panel, table) in parts {
            let _ = writeln!(
                text,
                "<div>{}<details><summary>Table</summary>{}</details></div>",
                figure::inline(panel)?,
                scroll(table)
            );
        }
        Ok(text + "</div>\n")
    };
    if !first.is_empty() {
        text += &pair(first)?;
    }
    if !rest.is_empty() {
        let _ = write!(
            text,
            "<details><summary>The other {} settings</summary>\n{}</details>\n",
            rest.len(),
            pair(rest)?
        );
    }
    Ok(text)
}

fn scroll(table: &Table) -> String {
    format!("<div class=\"scroll\">{}</div>\n", table.to_html())
}

/// A table that is folded up if it is long.
fn folded(summary: &str, table: &Table) -> String {
    let open = if table.len() <= 12 { " open" } else { "" };
    format!("<details{open}><summary>{}</summary>{}</details>\n", escape(summary), scroll(table))
}

fn lists(findings: &Findings<'_>) -> String {
    let mut text = String::from("<h2 id=\"runs\">Runs and where they were made</h2>\n");
    let count = |n: usize, what: &str| format!("{n} {what}");
    text += &folded(&count(findings.runs.len(), "final runs"), &findings.runs_table());
    text += "<h2 id=\"searches\">Searches</h2>\n\
             <p>Every tuning run, judged on training examples that were held out.</p>\n";
    for (title, table) in findings.searches_tables() {
        text += &folded(&title, &table);
    }
    if findings.searches.is_empty() {
        text += "<p>None is recorded.</p>\n";
    }
    let folders = |lines: &[(std::path::PathBuf, String)]| -> String {
        let line = |(folder, why): &(std::path::PathBuf, String)| {
            let folder = escape(&folder.display().to_string());
            format!("<li><code>{folder}</code>: {}</li>\n", escape(why))
        };
        lines.iter().map(line).collect()
    };
    if !findings.failed.is_empty() {
        let _ =
            write!(text, "<h3>Runs that failed</h3>\n<ul>\n{}</ul>\n", folders(findings.failed));
    }
    if !findings.unreadable.is_empty() {
        let _ = write!(
            text,
            "<h3 class=\"bad\">Runs that could not be read</h3>\n<ul>\n{}</ul>\n",
            folders(findings.unreadable)
        );
    }
    text += "<h2 id=\"missing\">What is missing</h2>\n";
    let missing = findings.missing_table();
    if missing.len() == 0 {
        text += "<p class=\"good\">Nothing: every cell has five seeds.</p>\n";
    } else {
        text += "<p>Cells of the paper's accuracy tables without a run here, and with fewer than its five \
                 seeds. <code>bandroot reproduce accuracy</code> runs them.</p>\n";
        text += &scroll(&missing);
    }
    text
}
