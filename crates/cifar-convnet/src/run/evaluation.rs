//! Evaluation: how a model does on examples that it was not trained on.

use dp_train::engine::{EngineError, GradientEngine};
use serde::{Deserialize, Serialize};

use crate::data::Split;

/// Examples that are decoded at a time.
const BATCH: usize = 500;

/// Accuracy and loss over a split.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Share of examples whose largest logit is that of their class.
    pub accuracy: f64,
    /// Mean cross-entropy in nats.
    pub loss: f64,
}

impl Evaluation {
    /// Evaluates the parameters on every example of a split. One forward pass.
    pub fn of(
        engine: &mut dyn GradientEngine,
        parameters: &[f32],
        split: &Split,
        pixels: usize,
        classes: usize,
    ) -> Result<Self, EngineError> {
        Self::with_logits(engine, parameters, split, (pixels, classes), |_, _| {})
    }

    /// The same, and shows the logits of every example in order.
    pub fn with_logits(
        engine: &mut dyn GradientEngine,
        parameters: &[f32],
        split: &Split,
        (pixels, classes): (usize, usize),
        mut show: impl FnMut(u32, &[f32]),
    ) -> Result<Self, EngineError> {
        let (mut correct, mut loss) = (0_usize, 0.0);
        show_logits(engine, parameters, split, (pixels, classes), |index, logits| {
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

/// Shows the logits of every example in order. One forward pass.
///
/// # Errors
/// Those of the engine.
pub fn show_logits(
    engine: &mut dyn GradientEngine,
    parameters: &[f32],
    split: &Split,
    (numbers, classes): (usize, usize),
    mut show: impl FnMut(u32, &[f32]),
) -> Result<(), EngineError> {
    let all: Vec<u32> = (0..split.len() as u32).collect();
    let mut examples = vec![0.0; BATCH.min(all.len()) * numbers];
    let mut logits = vec![0.0; BATCH.min(all.len()) * classes];
    for indices in all.chunks(BATCH) {
        let examples = &mut examples[..indices.len() * numbers];
        let logits = &mut logits[..indices.len() * classes];
        split.decode(indices, examples);
        engine.forward(parameters, examples, logits)?;
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

    #[test]
    fn the_loss_of_equal_logits_is_the_log_of_the_classes_and_no_prediction() {
        let (is_correct, loss) = judge(&[0.5; 10], 3);
        assert!(!is_correct && (loss - 10.0_f64.ln()).abs() < 1e-12);
        assert!(judge(&[0.0, 2.0, 1.0], 1).0);
        assert!(!judge(&[0.0, f32::NAN, 1.0], 1).0);
        assert!((judge(&[0.0, 1000.0], 0).1 - 1000.0).abs() < 1e-9, "no overflow");
    }
}
