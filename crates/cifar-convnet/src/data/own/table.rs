//! A data set in CSV files: a line of names, then one example per line, numbers and a label.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use csv::{ReaderBuilder, StringRecord, Trim};

use super::super::{Numbers, Scaling, Shape, Split};
use super::label;

/// Which columns are what.
#[derive(Debug, Clone, PartialEq)]
pub struct Columns {
    /// The column with the label.
    pub label: String,
    /// The columns with the numbers, in the order in which a model sees them.
    pub features: Vec<String>,
    /// How the numbers are scaled.
    pub scaling: Scaling,
}

/// The records of a file with their lines, the names in the first line apart.
fn reader(content: &[u8]) -> csv::Reader<&[u8]> {
    ReaderBuilder::new().trim(Trim::All).from_reader(content)
}

/// The names of the columns besides that of the label, and the number of examples. Nothing is looked at
/// but where records end: a table has no header that counts them.
///
/// # Errors
/// If it is no table, or has no such column.
pub(crate) fn facts(path: &Path, label: &str) -> anyhow::Result<(Vec<String>, usize)> {
    let read = || -> anyhow::Result<(Vec<String>, usize)> {
        let content = fs::read(path)?;
        let mut reader = reader(&content);
        let names: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
        let at = place(&names, label).context("data.label names the column of the label")?;
        let mut features = names;
        features.remove(at);
        let mut record = csv::ByteRecord::new();
        let mut examples = 0;
        while reader.read_byte_record(&mut record)? {
            examples += 1;
        }
        Ok((features, examples))
    };
    read().with_context(|| remedy(path))
}

fn remedy(path: &Path) -> String {
    format!(
        "{} cannot be used; data.folder, data.train_table and data.test_table say where it is",
        path.display()
    )
}

fn place(names: &[String], name: &str) -> anyhow::Result<usize> {
    let found = names.iter().position(|found| found == name);
    let place =
        found.with_context(|| format!("it has no column {name:?}; it has {}", names.join(", ")))?;
    let twice = names[place + 1..].iter().any(|found| found == name);
    ensure!(!twice, "it has two columns {name:?}");
    Ok(place)
}

/// Reads examples and their labels.
///
/// # Errors
/// The file and the line that cannot be used.
pub(crate) fn load(path: &Path, columns: &Columns, classes: &[String]) -> anyhow::Result<Split> {
    let content = fs::read(path);
    let content = content.with_context(|| remedy(path))?;
    let parsed = parse(&content, columns, Some(classes));
    parsed.with_context(|| format!("{} cannot be used", path.display()))
}

/// Reads examples whose labels are not known, or do not matter; all get label 0.
///
/// # Errors
/// The file and the line that cannot be used.
pub(crate) fn load_unlabelled(path: &Path, columns: &Columns) -> anyhow::Result<Split> {
    let content = fs::read(path)?;
    parse(&content, columns, None)
}

/// The examples of the content of a file.
pub(crate) fn parse(
    content: &[u8],
    columns: &Columns,
    classes: Option<&[String]>,
) -> anyhow::Result<Split> {
    let mut reader = reader(content);
    let names: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
    let places: Vec<usize> =
        columns.features.iter().map(|name| place(&names, name)).collect::<anyhow::Result<_>>()?;
    let label_place = classes.map(|_| place(&names, &columns.label)).transpose()?;
    let (mut numbers, mut labels) = (vec![], vec![]);
    let mut record = StringRecord::new();
    // A record with more or fewer fields than names is refused here, with its line.
    while reader.read_record(&mut record)? {
        let line = record.position().map_or(0, csv::Position::line);
        let start = numbers.len();
        for (&at, name) in places.iter().zip(&columns.features) {
            let number = record[at].parse::<f32>().ok().with_context(|| {
                format!("line {line}: {:?} in the column {name:?} is no number", &record[at])
            })?;
            numbers.push(number);
        }
        if let Some(at) = columns.scaling.first_not_finite(&numbers[start..]) {
            anyhow::bail!(
                "line {line}: {} in the column {:?} is not finite once it is scaled; clean the data, or see \
                 data.scale",
                numbers[start + at],
                columns.features[at]
            );
        }
        labels.push(match (label_place, classes) {
            (Some(at), Some(classes)) => label_of(&record[at], labels.len(), classes)
                .with_context(|| format!("line {line}"))?,
            _ => 0,
        });
    }
    let shape = Shape::vector(columns.features.len());
    Ok(Split::new(Numbers::Floats(numbers, columns.scaling.clone()), labels, shape))
}

/// The name of a class, or its number unless names are numbers themselves: 3 could then mean either.
fn label_of(text: &str, record: usize, classes: &[String]) -> anyhow::Result<u16> {
    if let Some(found) = classes.iter().position(|class| class == text) {
        return Ok(u16::try_from(found)?);
    }
    let is_number = |text: &String| text.parse::<i64>().is_ok();
    let number = text.parse::<i64>().ok().filter(|_| !classes.iter().any(is_number));
    let number = number.with_context(|| {
        format!("{text:?} is none of the classes {}; see data.classes", classes.join(", "))
    })?;
    label(record, i128::from(number), classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(features: &[&str]) -> Columns {
        let features: Vec<String> = features.iter().map(ToString::to_string).collect();
        let scaling = Scaling::new(&[1.0], &[2.0], features.len()).unwrap();
        Columns { label: "kind".into(), features, scaling }
    }

    fn classes() -> Vec<String> {
        ["no", "yes"].map(String::from).into()
    }

    #[test]
    fn a_number_is_no_place_in_the_list_where_names_are_numbers() {
        let names = ["1", "3"].map(String::from);
        let table = |label: &str| format!("a,kind\n5,{label}\n");
        let read = |label: &str| parse(table(label).as_bytes(), &columns(&["a"]), Some(&names));
        assert_eq!(read("3").unwrap().labels(), [1]);
        assert!(format!("{:#}", read("0").unwrap_err()).contains("none of the classes 1, 3"));
    }

    #[test]
    fn columns_are_found_by_name_and_labels_by_name_or_number() {
        let table = b"b, kind, a\n3, yes, 1\n\"5\",0,7\n";
        let split = parse(table, &columns(&["a", "b"]), Some(&classes())).unwrap();
        assert_eq!(split.labels(), [1, 0]);
        let mut out = vec![0.0; 4];
        split.decode(&[0, 1], &mut out);
        assert_eq!(out, [0.0, 1.0, 3.0, 2.0]);
        let unlabelled = parse(b"a,b\n1,3\n", &columns(&["a", "b"]), None).unwrap();
        assert_eq!((unlabelled.len(), unlabelled.labels()), (1, &[0][..]));
    }

    #[test]
    fn damage_is_refused_with_the_line() {
        let refused = |table: &str, words: &[&str]| {
            let outcome = parse(table.as_bytes(), &columns(&["a"]), Some(&classes()));
            let message = format!("{:#}", outcome.unwrap_err());
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        };
        refused("a,kind\n1,no\nx,no\n", &["line 3", "\"x\"", "\"a\""]);
        refused("a,kind\n1,no\n,no\n", &["line 3", "no number"]);
        refused("a,kind\n1,no\ninf,no\n", &["line 3", "not finite"]);
        refused("a,kind\n1,no\n1e39,no\n", &["line 3", "not finite"]);
        refused("a,kind\n1,maybe\n", &["line 2", "maybe", "no, yes"]);
        refused("a,kind\n1,2\n", &["line 2", "label 2"]);
        refused("a,kind\n1,-1\n", &["label -1"]);
        refused("a,kind\n1\n", &["line: 2"]);
        refused("b,kind\n1,no\n", &["no column \"a\"", "b, kind"]);
        refused("a,sort\n1,no\n", &["no column \"kind\""]);
        refused("a,a,kind\n1,1,no\n", &["two columns"]);
    }

    #[test]
    fn the_names_and_the_number_of_examples_are_found_without_looking_at_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        fs::write(&path, "x,kind,y\n1,no,2\n\"broken\nhere\",?,3\n").unwrap();
        let (names, examples) = facts(&path, "kind").unwrap();
        assert_eq!((names, examples), (vec!["x".to_owned(), "y".to_owned()], 2));
        let message = format!("{:#}", facts(&path, "label").unwrap_err());
        assert!(message.contains("a.csv") && message.contains("data.label"), "{message}");
    }
}
