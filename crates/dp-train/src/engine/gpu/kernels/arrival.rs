//! Whether what the host has sent for a batch is there.

use cubecl::prelude::*;

use super::ledger::{FAILED, enter};
use super::position::position;

/// Stamps of images are numbers, of so many bits that f32 has them all.
pub(crate) const STAMP_BITS: u32 = 0xff_ffff;

/// Looks for the stamp behind `numbers` of images and behind the labels of `examples`.
#[cube(launch)]
pub(crate) fn arrive(
    ledger: &mut [u32],
    images: &[f32],
    labels: &[u32],
    numbers: u32,
    examples: u32,
    stamp: u32,
) {
    enter(ledger);
    if position() == 0 {
        let there = images[numbers as usize] == f32::cast_from(stamp & STAMP_BITS);
        if !there || labels[examples as usize] != stamp {
            ledger[FAILED] = 1u32;
        }
    }
}
