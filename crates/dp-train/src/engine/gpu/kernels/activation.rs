//! Activations, which the kernel that makes a value applies to it, and their derivatives.

use cubecl::prelude::*;

/// What is done to a value as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Activation {
    None,
    Relu,
    Tanh,
}

/// The activation of a number. What is not a number stays that.
#[cube]
pub(crate) fn activate(x: f32, #[comptime] activation: Activation) -> f32 {
    match comptime!(activation) {
        Activation::None => x,
        Activation::Relu => {
            let bits = u32::reinterpret(x);
            select(bits > 0x8000_0000u32 && bits <= 0xff80_0000u32, 0.0f32, x)
        }
        Activation::Tanh => x.tanh(),
    }
}

/// The derivative where the activation is `y`.
#[cube]
pub(crate) fn derivative(y: f32, #[comptime] activation: Activation) -> f32 {
    match comptime!(activation) {
        Activation::None => 1.0f32,
        Activation::Relu => {
            let bits = u32::reinterpret(y) & 0x7fff_ffffu32;
            select(bits == 0u32, 0.0f32, 1.0f32)
        }
        Activation::Tanh => 1.0f32 - y * y,
    }
}
