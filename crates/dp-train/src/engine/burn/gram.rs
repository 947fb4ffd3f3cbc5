//! Norms of per-example gradients without the gradients.

use burn::tensor::Tensor;

use super::clip::rounded_up;
use crate::engine::cost::MULTIPLICATIONS_PER_WEIGHT;
use crate::engine::rounding::rounding_error;

/// Whether Gram matrices are cheaper than holding every example's gradient.
///
/// They cost `positions^2 (inner + outer)` multiplications per group, and holding a weight is
/// worth [`MULTIPLICATIONS_PER_WEIGHT`]. The product that makes the gradient does not count:
/// the clipped sum needs it either way.
pub(crate) fn ghost_pays(positions: usize, inner: usize, outer: usize) -> bool {
    positions * positions * (inner + outer) < MULTIPLICATIONS_PER_WEIGHT * inner * outer
}

/// `sum_{p,q} (1 + <a_p, a_q>) <g_p, g_q>` per example, rounded up by what f32 may have lost: the squared norm of
/// `sum_p g_p a_p'` and of `sum_p g_p`, the gradients of a weight and a bias that all positions `p` share. Without a bias the
/// 1 is left out.
///
/// Inputs are `a: [n, groups, inner, positions]` and `g: [n, groups, outer, positions]`. Terms cancel, so the error is relative to
/// what they would sum to without signs, which is at most `(sum_p |(1, a_p)| |g_p|)^2`.
pub(crate) fn squared_norms(a: Tensor<4>, g: Tensor<4>, bias: bool) -> Tensor<1> {
    let [n, groups, inner, positions] = a.dims();
    let outer = g.dims()[2];
    let one = if bias { 1.0 } else { 0.0 };
    // <a_p, a_p> and <g_p, g_p> are the diagonals of the matrices below.
    let lengths = |v: Tensor<4>| v.square().sum_dim(2).reshape([n, groups, positions]);
    let input_lengths = lengths(a.clone()).add_scalar(one);
    let gradient_lengths = lengths(g.clone());
    // Squares that vanish in f32 may stand beside huge numbers in the other factor.
    let beside = |lengths: &Tensor<3>, numbers: usize| {
        let lost = (numbers as f32 * f32::MIN_POSITIVE).sqrt();
        let lengths = lengths.clone().sqrt().mul_scalar(lost);
        lengths.sum_dim(2).square().sum_dim(1).reshape([n])
    };
    let vanished = beside(&input_lengths, outer) + beside(&gradient_lengths, inner);
    let bound = (input_lengths * gradient_lengths).sqrt();
    let bound = bound.sum_dim(2).square().sum_dim(1).reshape([n]);
    let inputs = a.clone().swap_dims(2, 3).matmul(a).add_scalar(one);
    let gradients = g.clone().swap_dims(2, 3).matmul(g);
    let sum = (inputs * gradients).sum_dim(3).sum_dim(2).sum_dim(1).reshape([n]);
    // Again as much for the product whose rows are summed in place of these.
    let terms = inner + outer + 2 * positions + groups;
    let lost = rounded_up(bound, terms).mul_scalar(2.0 * rounding_error(terms));
    // The sum can be negative by rounding; what is not a number must stay that.
    rounded_up(sum.abs() + lost + vanished, 4)
}
