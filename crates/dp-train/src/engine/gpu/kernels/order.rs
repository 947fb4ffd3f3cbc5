//! Which of two numbers is the larger one.

use cubecl::prelude::*;

/// Whether `a` goes before `b` as the largest entry: what is not a number goes before all numbers.
#[cube]
pub(crate) fn goes_before(a: f32, b: f32) -> bool {
    a > b || (u32::reinterpret(a) & 0x7fff_ffffu32) > 0x7f80_0000u32
}
