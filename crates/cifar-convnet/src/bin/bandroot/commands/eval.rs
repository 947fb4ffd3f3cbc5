//! `bandroot eval`: how the model of a run does, measured again from its files.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::bail;
use clap::ValueEnum;
use serde::Serialize;

use crate::cli::{Eval, SplitName};
use crate::terminal::output;
use cifar_convnet::BadArgument;
use cifar_convnet::data::Split;
use cifar_convnet::data::features::Mirrored;
use cifar_convnet::files;
use cifar_convnet::run::evaluation::{Evaluation, Showing};
use cifar_convnet::run::folder;
use cifar_convnet::run::trained::Trained;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct EvalOutput {
    split: SplitName,
    /// `test_accuracy`, `validation_accuracy` or `train_accuracy`, and the loss.
    #[serde(flatten)]
    numbers: BTreeMap<String, f64>,
    examples: usize,
}

pub(crate) fn run(arguments: &Eval) -> anyhow::Result<()> {
    let Trained { mut config, architecture, parameters, .. } = Trained::read(&arguments.run)?;
    let tuned = config.data.holds_out();
    // A run that was chosen by its score with noise shows it without only to who asks.
    let selected =
        folder::read_certificate(&arguments.run).is_ok_and(|found| found.selection.is_some());
    let judged_by = if tuned && !selected { SplitName::Validation } else { SplitName::Test };
    let split = arguments.split.unwrap_or(judged_by);
    if split == SplitName::Validation && !tuned {
        bail!(BadArgument(format!(
            "--split validation: {} held out nothing, its data.validation is 0",
            arguments.run.display()
        )));
    }
    if split == SplitName::Test {
        // With a share held out, what stands in the place of the test examples is that share.
        config.data.validation = 0.0;
    }
    let data = config.data.load_with(Mirrored { train: false, test: config.evaluation.mirror })?;
    let examples = if split == SplitName::Train { &data.train } else { &data.test };
    let mut engine = config.engine.build(&architecture)?;
    let classes = data.classes.len();
    let mut table = Table::new(examples, classes)?;
    let Evaluation { accuracy, loss } = Evaluation::with_logits(
        &mut *engine,
        &parameters,
        examples,
        Showing { shape: data.shape, classes, mirror: config.evaluation.mirror },
        |index, logits| {
            if arguments.logits.is_some() {
                table.add(index, logits);
            }
        },
    )?;
    if let Some(path) = &arguments.logits {
        table.write(path)?;
    }
    let name: String =
        split.to_possible_value().map_or(String::new(), |value| value.get_name().into());
    if arguments.json {
        let numbers = [(format!("{name}_accuracy"), accuracy), (format!("{name}_loss"), loss)];
        let report = EvalOutput { split, numbers: numbers.into(), examples: examples.len() };
        return output::print(&files::json(&report)?);
    }
    // Test examples are other data, unless they are from the training files; the others are those that a guarantee is
    // for, or that none is for.
    let other = split == SplitName::Test && !config.data.judges_by_training_files();
    let exposure = if other { "" } else { " (not private)" };
    output::print(&format!(
        "accuracy  {:.2} % of {} {name} examples{exposure}\nloss      {:.4}\n",
        100.0 * accuracy,
        examples.len(),
        loss
    ))
}

/// The logits as CSV, in the digits that give every bit back.
struct Table<'a> {
    writer: csv::Writer<Vec<u8>>,
    split: &'a Split,
}

impl<'a> Table<'a> {
    fn new(split: &'a Split, classes: usize) -> anyhow::Result<Self> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let logits = (0..classes).map(|class| format!("logit_{class}"));
        let names = ["example", "label", "prediction"].map(str::to_owned);
        writer.write_record(names.into_iter().chain(logits))?;
        Ok(Self { writer, split })
    }

    fn add(&mut self, index: u32, logits: &[f32]) {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let prediction = logits.iter().position(|&z| z == largest);
        let label = self.split.labels()[index as usize];
        let prediction = prediction.map_or(String::new(), |class| class.to_string());
        let first = [index.to_string(), label.to_string(), prediction];
        let record = first.into_iter().chain(logits.iter().map(ToString::to_string));
        // Writing to memory does not fail.
        drop(self.writer.write_record(record));
    }

    fn write(self, path: &Path) -> anyhow::Result<()> {
        files::write(path, &self.writer.into_inner()?)
    }
}
