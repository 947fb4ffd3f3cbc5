//! What secret batches are worth: the recipes of `best` on batches of several kinds, in `amplification/NAME`.

use std::path::Path;

use crate::paper::report::record::Record;
use crate::terminal::table::Table;

/// One line per run, the largest epsilon first, then by accuracy.
pub(super) fn table(runs: &[&Record]) -> Table {
    let mut table = Table::new(&[
        "epsilon",
        "batches",
        "method",
        "bands",
        "accuracy",
        "noise",
        "of the last iterate",
    ]);
    let here =
        |run: &&&Record| run.folder.parent() == Some(Path::new("amplification")) && run.private;
    let mut runs: Vec<&Record> = runs.iter().filter(here).copied().collect();
    runs.sort_by(|a, b| b.epsilon.total_cmp(&a.epsilon).then(b.accuracy.total_cmp(&a.accuracy)));
    for run in runs {
        let said = |key: &str| run.setting.get(key).map(|value| value.trim_matches('"').to_owned());
        let number =
            |noise: Option<f64>| noise.map_or(String::new(), |noise| format!("{noise:.3}"));
        let bands = match run.method.as_str() {
            "identity" => "1".to_owned(),
            _ => said("noise.bands").unwrap_or_else(|| run.separation.to_string()),
        };
        table.push(vec![
            run.epsilon.to_string(),
            said("privacy.sampling").unwrap_or_else(|| "fixed-order".to_owned()).replace('-', " "),
            run.method.clone(),
            bands,
            format!("{:.1}", run.accuracy),
            number(run.noise[0]),
            number(run.noise[1]),
        ]);
    }
    table
}
