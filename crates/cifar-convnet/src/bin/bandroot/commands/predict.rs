//! `bandroot predict`: what the model of a run makes of new examples.

use anyhow::Context;
use serde::Serialize;

use crate::cli::Predict;
use crate::terminal::output;
use crate::terminal::table::Table;
use cifar_convnet::BadArgument;
use cifar_convnet::files;
use cifar_convnet::run::evaluation::{Showing, probabilities, show_logits};
use cifar_convnet::run::trained::Trained;

/// Classes that are shown of each example.
const SHOWN: usize = 3;

/// What a model makes of one example.
#[derive(Debug, Serialize)]
struct Prediction {
    /// The file, and the record in it if it holds several.
    file: String,
    class: String,
    probability: f64,
    /// The classes that come next, the most probable first.
    next: Vec<Likely>,
}

#[derive(Debug, Serialize)]
struct Likely {
    class: String,
    probability: f64,
}

pub(crate) fn run(arguments: &Predict) -> anyhow::Result<()> {
    let Trained { config, architecture, parameters, .. } = Trained::read(&arguments.run)?;
    let wrong = |error| BadArgument(format!("{}: {error}", arguments.run.display()));
    let taken = config.data.taken().map_err(wrong)?;
    let classes = config.data.classes().map_err(wrong)?;
    let shape = config.data.shape().map_err(wrong)?;
    let extraction = config.data.extraction().map_err(wrong)?;
    let mirror = config.evaluation.mirror;
    let showing = Showing { shape, classes: classes.len(), mirror };
    let mut engine = config.engine.build(&architecture)?;
    let mut predictions = vec![];
    for path in &arguments.files {
        let mut inputs = taken.read(path)?;
        if let Some(extraction) = &extraction {
            let featured = extraction.of(inputs.split, mirror);
            inputs.split = featured.with_context(|| path.display().to_string())?;
        }
        show_logits(&mut *engine, &parameters, &inputs.split, showing, |index, logits| {
            let file = inputs.names[index as usize].clone();
            predictions.push(prediction(file, logits, &classes));
        })?;
    }
    output::print(&if arguments.json { files::json(&predictions)? } else { text(&predictions) })
}

fn prediction(file: String, logits: &[f32], classes: &[String]) -> Prediction {
    let mut likely: Vec<(f64, &String)> = probabilities(logits).into_iter().zip(classes).collect();
    // Equal ones stay in the order of the classes.
    likely.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut likely = likely
        .into_iter()
        .take(SHOWN)
        .map(|(probability, class)| Likely { class: class.clone(), probability });
    // A config has at least two classes.
    let Likely { class, probability } =
        likely.next().unwrap_or(Likely { class: String::new(), probability: f64::NAN });
    Prediction { file, class, probability, next: likely.collect() }
}

fn text(predictions: &[Prediction]) -> String {
    let mut table = Table::new(&["file", "class", "probability", "second", "third"]);
    for Prediction { file, class, probability, next } in predictions {
        let likely = |at: usize| {
            let likely = next.get(at);
            likely.map_or(String::new(), |l| format!("{} {:.4}", l.class, l.probability))
        };
        let probability = format!("{probability:.4}");
        table.push(vec![file.clone(), class.clone(), probability, likely(0), likely(1)]);
    }
    table.to_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_most_probable_classes_are_shown_in_order() {
        let classes = ["a", "b", "c", "d"].map(String::from);
        let found = prediction("x.png".into(), &[0.0, 2.0, 1.0, -1.0], &classes);
        assert_eq!((found.class.as_str(), found.next.len()), ("b", 2));
        assert_eq!(found.next[0].class, "c");
        let text = text(&[found]);
        assert!(text.contains("x.png") && text.contains("c 0.2369"), "{text}");
        let two = prediction("x".into(), &[0.0, 0.0], &classes[..2]);
        assert_eq!((two.class.as_str(), two.probability, two.next.len()), ("a", 0.5, 1));
    }
}
