//! The tape: what tapped layers saw in one forward pass.

use std::cell::RefCell;

use burn::module::{Param, ParamId};
use burn::tensor::Tensor;

use super::layer_use::{LayerInput, LayerUse};

thread_local! {
    /// The uses of this thread's pass, while one is recorded.
    static TAPE: RefCell<Option<Vec<LayerUse>>> = const { RefCell::new(None) };
}

/// Ends the recording, also if the pass panics.
struct Recording;

impl Drop for Recording {
    fn drop(&mut self) {
        TAPE.with_borrow_mut(|tape| *tape = None);
    }
}

/// Runs a forward pass and returns what its layers recorded on this thread.
pub(super) fn record<R>(pass: impl FnOnce() -> R) -> (R, Vec<LayerUse>) {
    TAPE.with_borrow_mut(|tape| *tape = Some(Vec::new()));
    let _recording = Recording;
    let result = pass();
    let uses = TAPE.with_borrow_mut(|tape| tape.take().unwrap_or_default());
    (result, uses)
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
    let tap = offset.expand(output.dims()).autodiff().require_grad();
    let tapped = output + tap.clone();
    TAPE.with_borrow_mut(|tape| {
        if let Some(tape) = tape {
            tape.push(LayerUse { layer, tap });
        }
    });
    tapped
}
