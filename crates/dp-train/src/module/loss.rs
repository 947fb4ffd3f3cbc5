//! Losses of single examples.

use burn::tensor::{Int, Tensor, activation};

/// Cross-entropy of every example: `-ln softmax(logits)_target` for `logits: [n, classes]` and `targets: [n]`. burn's own loss is
/// a mean over the batch, which cannot be clipped.
pub fn cross_entropy(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    let n = logits.dims()[0];
    let logarithms = activation::log_softmax(logits, 1);
    logarithms.gather(1, targets.reshape([n, 1])).neg().reshape([n])
}
