//! Evaluation: how a model does on examples that it was not trained on.

use dp_train::engine::{EngineError, GradientEngine};
use serde::{Deserialize, Serialize};

use crate::data::{Shape, Split, mirror};

/// Examples that are decoded at a time.
const BATCH: usize = 500;

/// What a model is shown of every example, and how many numbers it answers with.
#[derive(Debug, Clone, Copy)]
pub struct Showing {
    /// Of one example.
    pub shape: Shape,
    /// Logits of one example.
    pub classes: usize,
    /// Whether the mirror image is shown too, and the logits of the two are averaged: `evaluation.mirror`.
    pub mirror: bool,
}

/// Accuracy and loss over a split.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Share of examples whose largest logit is that of their class.
    pub accuracy: f64,
    /// Mean cross-entropy in nats.
    pub loss: f64,
}

impl Evaluation {
    /// Evaluates the parameters on every example of a split. One forward pass, or two with mirror images.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn of(
        engine: &mut dyn GradientEngine,
        parameters: &[f32],
        split: &Split,
        showing: Showing,
    ) -> Result<Self, EngineError> {
        Self::with_logits(engine, parameters, split, showing, |_, _| {})
    }

    /// The same, and shows the logits of every example in order.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn with_logits(
        engine: &mut dyn GradientEngine,
        parameters: &[f32],
        split: &Split,
        showing: Showing,
        mut show: impl FnMut(u32, &[f32]),
    ) -> Result<Self, EngineError> {
        let (mut correct, mut loss) = (0_usize, 0.0);
        show_logits(engine, parameters, split, showing, |index, logits| {
            show(index, logits);
            let label = usize::from(split.labels()[index as usize]);
            let (is_correct, cross_entropy) = judge(logits, label);
            correct += usize::from(is_correct);
            loss += cross_entropy;
        })?;
        let n = split.len().max(1) as f64;
        Ok(Self { accuracy: correct as f64 / n, loss: loss / n })
    }
}

/// How a run does after an epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    /// The model that it would end with here: the average of the iterates if one is kept, else the last of them.
    pub(super) result: Evaluation,
    /// The last iterate, where it is not the result by itself.
    pub(super) last_iterate: Option<Evaluation>,
}

impl Judged {
    /// Evaluates the last iterate, and the average if it has begun; `averaged` says whether one is kept. Before its first
    /// iterate the last one stands for it.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn of(
        engine: &mut dyn GradientEngine,
        (last, average, averaged): (&[f32], Option<Vec<f32>>, bool),
        split: &Split,
        showing: Showing,
    ) -> Result<Self, EngineError> {
        let last = Evaluation::of(engine, last, split, showing)?;
        let average = average.map(|average| Evaluation::of(engine, &average, split, showing));
        let result = average.transpose()?.unwrap_or(last);
        Ok(Self { result, last_iterate: averaged.then_some(last) })
    }
}

/// Shows the logits of every example in order. One forward pass, or two with mirror images.
///
/// # Errors
/// Those of the engine.
pub fn show_logits(
    engine: &mut dyn GradientEngine,
    parameters: &[f32],
    split: &Split,
    Showing { shape, classes, mirror }: Showing,
    mut show: impl FnMut(u32, &[f32]),
) -> Result<(), EngineError> {
    let all: Vec<u32> = (0..split.len() as u32).collect();
    let most = BATCH.min(all.len());
    let mut examples = vec![0.0; most * shape.numbers()];
    let mut logits = vec![0.0; most * classes];
    let mut mirrored = vec![0.0; if mirror { logits.len() } else { 0 }];
    for indices in all.chunks(BATCH) {
        let examples = &mut examples[..indices.len() * shape.numbers()];
        let logits = &mut logits[..indices.len() * classes];
        split.decode(indices, examples);
        engine.forward(parameters, examples, logits)?;
        if mirror {
            let mirrored = &mut mirrored[..logits.len()];
            mirror::decode(split, shape, indices, examples);
            engine.forward(parameters, examples, mirrored)?;
            logits.iter_mut().zip(mirrored).for_each(|(z, m)| *z = 0.5 * (*z + *m));
        }
        for (&index, logits) in indices.iter().zip(logits.chunks(classes)) {
            show(index, logits);
        }
    }
    Ok(())
}

/// What the logits say of every class: `exp(z) / sum exp(z)`.
pub fn probabilities(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = logits.iter().map(|&z| f64::from(z - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Whether the largest logit is that of the label, and `log sum exp(z) - z_label`. A NaN is never right.
fn judge(logits: &[f32], label: usize) -> (bool, f64) {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&z| f64::from(z - largest).exp()).sum();
    let cross_entropy = sum.ln() + f64::from(largest) - f64::from(logits[label]);
    let others = logits.iter().enumerate().filter(|(class, _)| *class != label);
    let is_correct = others.into_iter().all(|(_, &z)| z < logits[label]);
    (is_correct, cross_entropy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_however_large_the_logits_are() {
        let found = probabilities(&[1000.0, 1001.0, -1000.0]);
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((found[1] / found[0] - 1.0_f64.exp()).abs() < 1e-9 && found[2] == 0.0);
    }

    /// A linear model, whose logits on picture and mirror image are computed here one by one.
    #[test]
    fn with_mirror_images_the_logits_are_the_mean_of_two_answers() {
        use dp_train::engine::{Device, EngineOptions};
        use dp_train::model::{Architecture, Layer, Shape as Input, initial_parameters};
        use dp_train::seeds::RunSeed;

        let shape = Shape { channels: 1, height: 2, width: 3 };
        let input = Input::Image { channels: 1, height: 2, width: 3 };
        let linear = Layer::Linear { in_features: 6, out_features: 2 };
        let architecture = Architecture::new(input, vec![Layer::Flatten, linear]).unwrap();
        let mut engine = Device::Cpu.engine(&architecture, EngineOptions::default()).unwrap();
        let parameters = initial_parameters(&architecture, RunSeed(3));
        // More examples than are decoded at a time.
        let count = BATCH + 3;
        let bytes: Vec<u8> = (0..6 * count).map(|i| (i * i % 251) as u8).collect();
        let split = Split::new(bytes.clone(), vec![0; count], shape);
        let flipped: Vec<u8> = bytes.chunks(3).flat_map(|row| row.iter().rev().copied()).collect();
        let flipped = Split::new(flipped, vec![0; count], shape);
        let mut logits = |split: &Split, mirror: bool| {
            let showing = Showing { shape, classes: 2, mirror };
            let mut all = Vec::new();
            show_logits(&mut *engine, &parameters, split, showing, |index, logits| {
                assert_eq!(all.len(), 2 * index as usize);
                all.extend_from_slice(logits);
            })
            .unwrap();
            all
        };
        let (plain, mirrored) = (logits(&split, false), logits(&flipped, false));
        let found = logits(&split, true);
        assert_ne!(plain, mirrored);
        for ((p, m), f) in plain.iter().zip(&mirrored).zip(&found) {
            assert!((f64::from(*f) - (f64::from(*p) + f64::from(*m)) / 2.0).abs() < 1e-6);
        }
        assert_eq!(logits(&flipped, true), found, "a picture and its mirror image are one");
    }

    #[test]
    fn the_loss_of_equal_logits_is_the_log_of_the_classes_and_no_prediction() {
        let (is_correct, loss) = judge(&[0.5; 10], 3);
        assert!(!is_correct && (loss - 10.0_f64.ln()).abs() < 1e-12);
        assert!(judge(&[0.0, 2.0, 1.0], 1).0);
        assert!(!judge(&[0.0, f32::NAN, 1.0], 1).0);
        assert!((judge(&[0.0, 1000.0], 0).1 - 1000.0).abs() < 1e-9, "no overflow");
    }
}
