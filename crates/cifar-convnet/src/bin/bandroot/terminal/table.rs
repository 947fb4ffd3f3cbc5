//! Tables as aligned text, Markdown, CSV, LaTeX or HTML.

/// A header and rows of cells; every row has as many cells as the header.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub(crate) fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Unless it has one cell per column.
    pub(crate) fn push(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.header.len(), "one cell per column");
        self.rows.push(row);
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.header).chain(&self.rows)
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| self.lines().map(|row| row[column].chars().count()).max();
        (0..self.header.len()).map(|column| width(column).unwrap_or(0)).collect()
    }

    /// Columns aligned to the right, two spaces between them.
    pub(crate) fn to_text(&self) -> String {
        self.aligned("", "  ", "", false)
    }

    /// A Markdown table, aligned in the source too.
    pub(crate) fn to_markdown(&self) -> String {
        self.aligned("| ", " | ", " |", true)
    }

    fn aligned(&self, before: &str, between: &str, after: &str, rule: bool) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for (number, row) in self.lines().enumerate() {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
            text += &format!("{before}{}{after}\n", cells.join(between));
            if rule && number == 0 {
                let dashes: Vec<String> = widths
                    .iter()
                    .map(|width| format!("{}:", "-".repeat(width.max(&2) - 1)))
                    .collect();
                text += &format!("{before}{}{after}\n", dashes.join(between));
            }
        }
        text
    }

    /// A LaTeX `tabular`, columns aligned to the right.
    pub(crate) fn to_latex(&self) -> String {
        let escape = |cell: &String| {
            let mut text = String::new();
            for c in cell.chars() {
                match c {
                    '%' | '&' | '#' | '_' | '$' | '{' | '}' => text.extend(['\\', c]),
                    '\u{b1}' => text += "$\\pm$",
                    '\u{2013}' => text += "--",
                    '<' | '>' => text.extend(['$', c, '$']),
                    '~' | '^' | '\\' => text.push(' '),
                    c => text.push(c),
                }
            }
            text
        };
        let mut text = format!("\\begin{{tabular}}{{{}}}\n", "r".repeat(self.header.len()));
        for (number, row) in self.lines().enumerate() {
            let cells: Vec<String> = row.iter().map(escape).collect();
            text += &format!("{} \\\\\n", cells.join(" & "));
            if number == 0 {
                text += "\\hline\n";
            }
        }
        text + "\\end{tabular}\n"
    }

    /// An HTML table; the first column is the head of its row.
    pub(crate) fn to_html(&self) -> String {
        let mut text = String::from("<table>\n");
        for (number, row) in self.lines().enumerate() {
            text += "<tr>";
            for (column, cell) in row.iter().enumerate() {
                let tag = if number == 0 || column == 0 { "th" } else { "td" };
                text += &format!("<{tag}>{}</{tag}>", escape_html(cell));
            }
            text += "</tr>\n";
        }
        text + "</table>\n"
    }

    /// The number of rows below the header.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Comma-separated values.
    pub(crate) fn to_csv(&self) -> anyhow::Result<String> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in self.lines() {
            writer.write_record(row)?;
        }
        Ok(String::from_utf8(writer.into_inner()?)?)
    }
}

/// Text that may stand anywhere in HTML.
pub(crate) fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_table_five_ways() {
        let mut table = Table::new(&["n", "error"]);
        table.push(vec!["10".into(), "1,5".into()]);
        assert_eq!(table.to_text(), " n  error\n10    1,5\n");
        assert_eq!(table.to_markdown(), "|  n | error |\n| -: | ----: |\n| 10 |   1,5 |\n");
        assert_eq!(table.to_csv().unwrap(), "n,error\n10,\"1,5\"\n");
        assert_eq!(
            table.to_latex(),
            "\\begin{tabular}{rr}\nn & error \\\\\n\\hline\n10 & 1,5 \\\\\n\\end{tabular}\n"
        );
        table.push(vec!["<5 %".into(), "a_b".into()]);
        assert!(table.to_html().contains("<tr><th>&lt;5 %</th><td>a_b</td></tr>"));
        assert!(table.to_latex().contains("$<$5 \\% & a\\_b"));
    }
}
