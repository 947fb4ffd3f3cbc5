//! Activations that follow nothing that could apply them.

use cubecl::prelude::*;

use super::activation::{Activation, activate, derivative};
use super::ledger::enter;
use super::position::position;

/// `to = act(from)`.
#[cube(launch)]
pub(crate) fn activate_all(
    ledger: &mut [u32],
    from: &[f32],
    to: &mut [f32],
    length: u32,
    #[comptime] activation: Activation,
) {
    enter(ledger);
    let index = position();
    if index < length as usize {
        to[index] = activate(from[index], activation);
    }
}

/// `to = act'(seen) dy`: the gradient of a value that `activation` was applied to before it was seen.
#[cube(launch)]
pub(crate) fn derive_all(
    ledger: &mut [u32],
    dy: &[f32],
    seen: &[f32],
    to: &mut [f32],
    length: u32,
    #[comptime] activation: Activation,
) {
    enter(ledger);
    let index = position();
    if index < length as usize {
        to[index] = dy[index] * derivative(seen[index], activation);
    }
}
