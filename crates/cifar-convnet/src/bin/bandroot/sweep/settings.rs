//! The settings of a sweep: every combination of a grid, with a list of candidates and with random ones.

use toml::{Table, Value};

use super::cell::Setting;
use super::random::Random;

/// Settings of the largest sweep: every one of them is checked before anything runs.
const MOST_SETTINGS: usize = 10_000;

/// Every combination of the grid's values, each with every candidate and with every random setting; the last key of
/// the grid changes fastest, and what is beside the grid changes faster still.
pub(super) fn settings(
    grid: &Table,
    candidates: &[Table],
    random: Option<&Random>,
) -> Result<Vec<Setting>, String> {
    let mut axes = Vec::new();
    collect_axes(grid, "", &mut axes)?;
    let drawn = random.map_or(0, |random| random.samples);
    // Before they are written out: eight keys of ten values would not fit into memory.
    let beside = candidates.len().saturating_add(drawn).max(1);
    let sizes = axes.iter().map(|(_, values)| values.len());
    let all = sizes.fold(beside, usize::saturating_mul);
    if all > MOST_SETTINGS {
        return Err(format!(
            "grid, candidates and random make {all} settings, and at most {MOST_SETTINGS} can be run: split the sweep"
        ));
    }
    let combinations = combinations(&axes)?;
    let listed = listed(candidates)?;
    let random = random.map(|random| random.settings(&listed)).transpose()?.unwrap_or_default();
    let mut beside: Vec<Setting> = listed.into_iter().chain(random).collect();
    if beside.is_empty() {
        beside.push(Setting::new());
    }
    for (key, _) in &axes {
        if beside.iter().flatten().any(|(other, _)| other == key) {
            return Err(format!("{key} is in the grid, and beside it again"));
        }
    }
    let longer = |setting: &Setting| {
        let longer = |more: &Setting| [setting.as_slice(), more.as_slice()].concat();
        beside.iter().map(longer).collect::<Vec<_>>()
    };
    Ok(combinations.iter().flat_map(longer).collect())
}

/// The keys of a grid.
pub(super) fn keys(grid: &Table) -> Result<Vec<String>, String> {
    let mut axes = Vec::new();
    collect_axes(grid, "", &mut axes)?;
    Ok(axes.into_iter().map(|(key, _)| key).collect())
}

/// Every combination of the grid's values; the last key changes fastest.
fn combinations(axes: &[(String, Vec<Value>)]) -> Result<Vec<Setting>, String> {
    let mut settings: Vec<Setting> = vec![Vec::new()];
    for (key, values) in axes {
        if values.is_empty() {
            return Err(format!("grid.{key} has no values"));
        }
        for (index, value) in values.iter().enumerate() {
            if values[..index].iter().any(|other| is_same(other, value)) {
                return Err(format!("grid.{key} names {value} twice"));
            }
        }
        let longer = |setting: &Setting| {
            let longer = |value: &Value| {
                let mut setting = setting.clone();
                setting.push((key.clone(), value.clone()));
                setting
            };
            values.iter().map(longer).collect::<Vec<_>>()
        };
        settings = settings.iter().flat_map(longer).collect();
    }
    Ok(settings)
}

/// The candidates as settings.
fn listed(candidates: &[Table]) -> Result<Vec<Setting>, String> {
    let mut settings: Vec<Setting> = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let mut setting = Setting::new();
        flatten(candidate, "", &mut setting);
        setting.sort_by(|(a, _), (b, _)| a.cmp(b));
        if setting.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("candidate {} names a key twice", index + 1));
        }
        let is_setting = |other: &Setting| {
            let pairs = other.iter().zip(&setting);
            other.len() == setting.len()
                && pairs.into_iter().all(|(a, b)| a.0 == b.0 && is_same(&a.1, &b.1))
        };
        if let Some(same) = settings.iter().position(is_setting) {
            return Err(format!("candidates {} and {} are the same", same + 1, index + 1));
        }
        settings.push(setting);
    }
    Ok(settings)
}

/// Whether two values are one to a config: 4 and 4.0 are.
fn is_same(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    };
    a == b || number(a).is_some_and(|a| number(b) == Some(a))
}

/// `"section.key" = value` in quotes or not: both mean the same.
fn flatten(table: &Table, prefix: &str, setting: &mut Setting) {
    for (key, value) in table {
        let key = format!("{prefix}{key}");
        match value {
            Value::Table(inner) => flatten(inner, &format!("{key}."), setting),
            value => setting.push((key, value.clone())),
        }
    }
}

/// `"section.key" = [..]` in quotes or not: both mean the same.
fn collect_axes(
    table: &Table,
    prefix: &str,
    axes: &mut Vec<(String, Vec<Value>)>,
) -> Result<(), String> {
    for (key, value) in table {
        let key = format!("{prefix}{key}");
        match value {
            Value::Array(values) => axes.push((key, values.clone())),
            Value::Table(inner) => collect_axes(inner, &format!("{key}."), axes)?,
            other => return Err(format!("grid.{key} must be a list of values, not {other}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    #[test]
    fn every_combination_of_the_grid_meets_every_candidate_and_every_random_setting() {
        let grid = table("'a.b' = [1, 2]");
        let candidates = [table("'a.c' = 'x'\n'a.d' = 2.0"), table("a.c = 'y'")];
        let random: Random =
            toml::from_str("samples = 3\n[ranges]\n'a.c' = { from = 0.0, to = 1.0 }").unwrap();
        let found = settings(&grid, &candidates, Some(&random)).unwrap();
        assert_eq!(found.len(), 2 * (2 + 3));
        assert_eq!(found[0].len(), 3);
        assert!(found[..5].iter().all(|setting| setting[0].1 == Value::Integer(1)));
        assert_eq!(found[2][1..], found[7][1..], "the same draws for every value of the grid");
        assert_eq!(settings(&Table::new(), &[], None).unwrap(), [Setting::new()]);
    }

    #[test]
    fn what_stands_twice_is_refused() {
        let refused = |grid: &str, candidates: &[&str], words: &str| {
            let candidates: Vec<Table> = candidates.iter().map(|text| table(text)).collect();
            let why = settings(&table(grid), &candidates, None).unwrap_err();
            assert!(why.contains(words), "no {words:?} in {why:?}");
        };
        refused("'a.b' = [1]", &["a.b = 2"], "a.b is in the grid");
        refused("", &["a.b = 2", "'a.b' = 2"], "candidates 1 and 2 are the same");
        refused("", &["'a.b' = 2\na.b = 3"], "candidate 1 names a key twice");
        refused("'a.b' = [1, 2, 1.0]", &[], "names 1.0 twice");
        refused("", &["a.b = 2\na.c = 'x'", "a.c = 'x'\na.b = 2.0"], "are the same");
        let many = vec!["a.b = 1"; 10_001];
        refused("", &many, "10001 settings");
    }
}
