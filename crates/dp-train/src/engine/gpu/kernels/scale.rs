//! Norms and factors of all examples, on the safe side of f32.

use cubecl::prelude::*;

use super::ledger::{FAILED, STAMP, enter};
use super::position::position;

/// Squared norms above it, 1e37 as bits, count as not finite: they are about to overflow. Numbers below zero and what is
/// not a number have larger bits.
const LARGEST: u32 = 0x7cf0_bdc2;

/// One example, from the slots that the layers have filled: `factors` gets `min(1, clip_norm / |g|)`, or 0 if the gradient
/// is not finite; `marks` 1 if it was clipped, 2 if it is not finite.
#[cube(launch)]
pub(crate) fn scale(
    ledger: &mut [u32],
    squares: &[f32],
    factors: &mut [f32],
    marks: &mut [u32],
    examples: u32,
    stamp: u32,
    clip_norm: f32,
    error: f32,
    vanished: f32,
    root_error: f32,
    #[comptime] slots: usize,
) {
    enter(ledger);
    let example = position();
    if example < examples as usize {
        let mut sum = 0.0f32;
        let mut size = 0.0f32;
        for slot in 0..slots {
            let square = squares[example * slots + slot];
            sum += square;
            size += square.abs();
        }
        let squared = sum + size * error + vanished;
        let stale = ledger[STAMP] != stamp;
        if stale {
            ledger[FAILED] = 1u32;
        }
        let bad = stale || u32::reinterpret(squared) > LARGEST;
        let norm = squared.sqrt() * (1.0f32 + root_error);
        let clipped = !bad && norm > clip_norm;
        let ratio = clip_norm / norm * (1.0f32 - root_error);
        // A ratio below the normal numbers would be rounded up by as much as itself.
        let vanishes = u32::reinterpret(ratio) < 0x0080_0000u32;
        let ratio = select(vanishes, 0.0f32, ratio);
        factors[example] = select(bad, 0.0f32, select(clipped, ratio, 1.0f32));
        marks[example] = select(bad, 2u32, select(clipped, 1u32, 0u32));
    }
}
