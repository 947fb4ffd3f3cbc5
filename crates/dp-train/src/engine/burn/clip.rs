//! Norms and scales on the device, on the safe side of f32.
//!
//! A norm that rounding made too small would clip too little. So every squared norm is multiplied
//! by a bound on what its sum can have lost, worst case and not typical: with `u = 2^-24`, a sum of
//! `k` rounded terms of one sign is off by a factor of at most `1 + k u + O(u^2)`, in any order.
//! Numbers whose squares vanish in f32 are covered by adding the smallest normal number per weight.

use burn::tensor::{Bool, Tensor};

use crate::engine::rounding::{UNIT, round_down, rounding_error};

/// Squared norms above it count as not finite: they are about to overflow.
const LARGEST: f32 = 1e37;

/// Non-negative numbers, made larger by what a sum of so many terms may have lost.
pub(crate) fn rounded_up<const D: usize>(x: Tensor<D>, terms: usize) -> Tensor<D> {
    x.mul_scalar(1.0 + rounding_error(terms))
}

/// `|v|^2` of every row, rounded up. The sum has two levels of nearly equal size, which keeps the
/// rounding error of 100,000 weights near 1e-4.
pub(crate) fn sum_of_squares(rows: Tensor<2>) -> Tensor<1> {
    let [n, length] = rows.dims();
    let inner = nearly_square(length);
    let squares = rows.square().reshape([n, length / inner, inner]);
    rounded_up(squares.sum_dim(2).sum_dim(1).reshape([n]), inner + length / inner)
}

/// The smallest divisor that is at least the (whole) square root, so that a sum has two levels.
fn nearly_square(length: usize) -> usize {
    let root = length.isqrt().max(1);
    (root..=length).find(|d| length.is_multiple_of(*d)).unwrap_or(1)
}

/// What becomes of each example of a block.
#[derive(Debug, Clone)]
pub(crate) struct Scales {
    /// The factor of its gradient: at most 1, and 0 if it is bad.
    pub(crate) factor: Tensor<1>,
    /// Whether its gradient is not finite.
    pub(crate) bad: Tensor<1, Bool>,
    /// Whether it is scaled down.
    pub(crate) clipped: Tensor<1, Bool>,
    /// The norm that was compared with the clip norm.
    pub(crate) norm: Tensor<1>,
}

impl Scales {
    /// `min(1, clip_norm / |g|)` from squared norms, rounded down, for gradients of `weights` numbers.
    pub(crate) fn new(squared_norm: Tensor<1>, weights: usize, clip_norm: f64) -> Self {
        let vanished = weights as f32 * f32::MIN_POSITIVE;
        let squared_norm = squared_norm.add_scalar(vanished);
        // NaN compares as false: what is not known to be good is bad.
        let bad = squared_norm.clone().lower_equal_scalar(LARGEST).bool_not();
        let squared_norm = squared_norm.mask_fill(bad.clone(), 1.0);
        // A GPU's root and quotient are off by a few units.
        let norm = rounded_up(squared_norm.sqrt(), 8);
        let clip_norm = round_down(clip_norm);
        let clipped = norm.clone().greater_scalar(clip_norm).bool_and(bad.clone().bool_not());
        let ratio = norm.clone().recip().mul_scalar(clip_norm).mul_scalar(1.0 - 16.0 * UNIT);
        let factor = ratio.clone().ones_like().mask_where(clipped.clone(), ratio);
        Self { factor: factor.mask_fill(bad.clone(), 0.0), bad, clipped, norm }
    }

    /// Whether clipped, whether bad, and the norm: `[n, 3]`.
    pub(crate) fn columns(&self) -> Tensor<2> {
        let n = self.norm.dims()[0];
        let columns = [self.clipped.clone().float(), self.bad.clone().float(), self.norm.clone()];
        Tensor::cat(columns.map(|column| column.reshape([n, 1])).into(), 1)
    }

    /// The sum of the scaled rows; bad rows are replaced, for 0 times NaN is NaN.
    pub(crate) fn sum(&self, rows: Tensor<2>) -> Tensor<1> {
        let [n, length] = rows.dims();
        let bad = self.bad.clone().reshape([n, 1]).expand([n, length]);
        let scaled = rows.mask_fill(bad, 0.0) * self.factor.clone().reshape([n, 1]);
        scaled.sum_dim(0).reshape([length])
    }

    /// Values with zeros in place of bad examples.
    pub(crate) fn without_bad<const D: usize>(&self, value: Tensor<D>) -> Tensor<D> {
        let bad = self.bad.clone().reshape(per_example(&value)).expand(value.dims());
        value.mask_fill(bad, 0.0)
    }

    /// The same, scaled.
    pub(crate) fn scaled<const D: usize>(&self, value: Tensor<D>) -> Tensor<D> {
        let factor = self.factor.clone().reshape(per_example(&value));
        self.without_bad(value) * factor
    }
}

/// The shape of one number per example, to go with a value.
fn per_example<const D: usize>(value: &Tensor<D>) -> [usize; D] {
    let mut shape = [1; D];
    shape[0] = value.dims()[0];
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_two_levels() {
        assert_eq!([1, 2, 10, 147_456, 97].map(nearly_square), [1, 1, 5, 384, 97]);
    }
}
