//! Normalizations of single examples: the statistics have no parameters, the scale and shift behind them do.

use burn::module::Param;
use burn::nn::{GroupNorm, LayerNorm, RmsNorm};
use burn::tensor::Tensor;

use super::{Tapped, tape};
use crate::module::layer_use::LayerInput;
use crate::module::tape::Role;

impl<const D: usize> Tapped<Tensor<D>> for LayerNorm {
    type Output = Tensor<D>;

    fn tapped(&self, input: Tensor<D>) -> Tensor<D> {
        let bare = || {
            let mut bare = self.clone();
            bare.gamma = ones(&self.gamma);
            bare.beta = None;
            bare.forward(input.clone())
        };
        scaled(bare, Some(&self.gamma), self.beta.as_ref(), true)
            .unwrap_or_else(|| self.forward(input.clone()))
    }
}

impl<const D: usize> Tapped<Tensor<D>> for RmsNorm {
    type Output = Tensor<D>;

    fn tapped(&self, input: Tensor<D>) -> Tensor<D> {
        let bare = || {
            let mut bare = self.clone();
            bare.gamma = ones(&self.gamma);
            bare.forward(input.clone())
        };
        scaled(bare, Some(&self.gamma), None, true).unwrap_or_else(|| self.forward(input.clone()))
    }
}

impl<const D: usize> Tapped<Tensor<D>> for GroupNorm {
    type Output = Tensor<D>;

    fn tapped(&self, input: Tensor<D>) -> Tensor<D> {
        let bare = || {
            let bare = Self { gamma: None, beta: None, affine: false, ..self.clone() };
            bare.forward(input.clone())
        };
        scaled(bare, self.gamma.as_ref(), self.beta.as_ref(), false)
            .unwrap_or_else(|| self.forward(input.clone()))
    }
}

/// A scale that changes nothing, in place of one that is trained.
fn ones(gamma: &Param<Tensor<1>>) -> Param<Tensor<1>> {
    Param::initialized(gamma.id, gamma.val().inner().ones_like())
}

/// `scale * normal + shift` with a tap; none where nothing is recorded or trained, or a tap does not reach it.
fn scaled<const D: usize>(
    normal: impl FnOnce() -> Tensor<D>,
    scale: Option<&Param<Tensor<1>>>,
    shift: Option<&Param<Tensor<1>>>,
    last: bool,
) -> Option<Tensor<D>> {
    // A vector has no axis of examples.
    if D == 1 || !tape::is_recording() {
        return None;
    }
    let role = |parameter: Option<&Param<Tensor<1>>>| match parameter.map(tape::role) {
        Some(Role::Trained(id, value)) => Some((Some(id), Some(value))),
        Some(Role::Frozen(value)) => Some((None, Some(value))),
        Some(Role::Computed) => None,
        None => Some((None, None)),
    };
    let ((scale_id, scale), (shift_id, shift)) = (role(scale)?, role(shift)?);
    if scale_id.is_none() && shift_id.is_none() {
        return None;
    }
    let normal = normal();
    let shape = normal.dims();
    let split = if last { D - 1 } else { 2 };
    let channels = |from: usize, to: usize| shape[from..to].iter().product::<usize>();
    let flat = [shape[0], channels(1, split), channels(split, D)];
    let along = |values: Tensor<1>| {
        let width = values.dims()[0];
        values.reshape(if last { [1, 1, width] } else { [1, width, 1] })
    };
    let x = normal.reshape(flat);
    let seen = x.clone().inner();
    let y = match scale {
        Some(scale) => x * along(scale),
        None => x,
    };
    let layer = LayerInput::Scale { scale: scale_id, shift: shift_id, x: seen, last };
    Some(tape::tap(y, shift.map(along), layer).reshape(shape))
}
