//! The tape: what tapped layers saw in one forward pass.

use std::cell::RefCell;

use burn::module::{Param, ParamId};
use burn::tensor::{GradientCheckpointingStrategy, Tensor};

use super::layer_use::{LayerInput, LayerUse};

thread_local! {
    /// That of this thread's pass, while one is recorded.
    static TAPE: RefCell<Option<Tape>> = const { RefCell::new(None) };
}

/// The uses of layers in a pass.
struct Tape {
    uses: Vec<LayerUse>,
    /// Of the module's parameters.
    strategy: Option<GradientCheckpointingStrategy>,
}

/// Ends the recording, also if the pass panics.
struct Recording;

impl Drop for Recording {
    fn drop(&mut self) {
        TAPE.with_borrow_mut(|tape| *tape = None);
    }
}

/// Runs a forward pass and returns what its layers recorded on this thread. Taps keep what a backward pass needs by the strategy of the
/// module's parameters.
pub(super) fn record<R>(
    strategy: Option<GradientCheckpointingStrategy>,
    pass: impl FnOnce() -> R,
) -> (R, Vec<LayerUse>) {
    TAPE.with_borrow_mut(|tape| *tape = Some(Tape { uses: Vec::new(), strategy }));
    let _recording = Recording;
    let result = pass();
    let tape = TAPE.with_borrow_mut(Option::take);
    (result, tape.map_or_else(Vec::new, |tape| tape.uses))
}

/// A tensor that a backward pass follows, by a strategy if there is one.
pub(super) fn tracked<const D: usize>(
    tensor: Tensor<D>,
    strategy: Option<GradientCheckpointingStrategy>,
) -> Tensor<D> {
    let tensor = tensor.autodiff();
    match strategy {
        Some(strategy) => tensor.with_gradient_checkpointing_strategy(strategy),
        None => tensor,
    }
}

/// Whether layers are to record what they see.
pub(super) fn is_recording() -> bool {
    TAPE.with_borrow(Option::is_some)
}

/// What becomes of a parameter while a pass is recorded.
#[derive(Debug)]
pub(super) enum Role<const D: usize> {
    /// It is trained: the layer uses its value as a constant, and records its number.
    Trained(ParamId, Tensor<D>),
    /// It is frozen.
    Frozen(Tensor<D>),
    /// It is computed from other parameters (as burn's LoRA does), which no tap of this layer reaches.
    Computed,
}

pub(super) fn role<const D: usize>(parameter: &Param<Tensor<D>>) -> Role<D> {
    let value = parameter.val();
    if value.is_require_grad() {
        Role::Trained(parameter.id, value.inner())
    } else if value.is_tracked() {
        Role::Computed
    } else {
        Role::Frozen(value.inner())
    }
}

/// Adds a tap to an output `[n, a, b]` and records the layer: the gradient of the tap is that of the output. `offset` is
/// a constant of the same shape or one that expands to it, added in passing, so that a bias costs nothing more.
pub(super) fn tap(output: Tensor<3>, offset: Option<Tensor<3>>, layer: LayerInput) -> Tensor<3> {
    let offset =
        offset.unwrap_or_else(|| Tensor::zeros([1, 1, 1], &output.clone().inner().device()));
    // One number or row stands for all until the sum: an expanded tensor takes no memory.
    let strategy = TAPE.with_borrow(|tape| tape.as_ref().and_then(|tape| tape.strategy));
    let tap = tracked(offset.expand(output.dims()), strategy).require_grad();
    let tapped = output + tap.clone();
    TAPE.with_borrow_mut(|tape| {
        if let Some(tape) = tape {
            tape.uses.push(LayerUse { layer, tap });
        }
    });
    tapped
}
