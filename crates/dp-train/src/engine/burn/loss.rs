//! Softmax cross-entropy of every example of a block.

use burn::tensor::{Int, Tensor};

/// Losses `[n, 1]`, whether the largest logit is that of the class `[n, 1]` (1 or 0), and the
/// gradients `softmax(logits) - e_label` as `[n, classes, 1, 1]`.
#[derive(Debug)]
pub(crate) struct Losses {
    pub(crate) loss: Tensor<2>,
    pub(crate) correct: Tensor<2>,
    pub(crate) gradient: Tensor<4>,
}

/// `-log softmax(logits)[label]` of logits `[n, classes, 1, 1]` and labels `[n, 1]`.
pub(crate) fn cross_entropy(logits: Tensor<4>, labels: Tensor<2, Int>) -> Losses {
    let [n, classes, ..] = logits.dims();
    let logits = logits.reshape([n, classes]);
    let numbers = Tensor::<1, Int>::arange(0..classes as i64, &logits.device());
    let target = numbers.reshape([1, classes]).expand([n, classes]);
    let target = target.equal(labels.clone().expand([n, classes])).float();
    let shifted = logits.clone() - logits.clone().max_dim(1);
    let powers = shifted.clone().exp();
    let total = powers.clone().sum_dim(1);
    let loss = total.clone().log() - (shifted * target.clone()).sum_dim(1);
    let correct = logits.argmax(1).equal(labels).float();
    let gradient = (powers / total - target).reshape([n, classes, 1, 1]);
    Losses { loss, correct, gradient }
}
