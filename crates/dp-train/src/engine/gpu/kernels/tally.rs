//! What is known of a step besides its sum, kept on the device until someone asks.

use cubecl::prelude::*;

use super::UNITS;
use super::ledger::enter;
use super::reduction::sum_of_units;

/// Numbers of a step: the sum of losses, correct images, clipped examples, examples that are not finite.
pub(crate) const TALLIED: usize = 4;

/// One cube adds up a step, or more of one. Counts are exact below 2^24.
#[cube(launch)]
pub(crate) fn tally(
    ledger: &mut [u32],
    measures: &[f32],
    marks: &[u32],
    to: &mut [f32],
    images: u32,
    examples: u32,
    row: u32,
    more: u32,
) {
    enter(ledger);
    let mut loss = 0.0f32;
    let mut correct = 0.0f32;
    for block in 0..(images as usize).div_ceil(UNITS) {
        let image = block * UNITS + UNIT_POS as usize;
        if image < images as usize {
            loss += measures[2 * image];
            correct += measures[2 * image + 1];
        }
    }
    let mut clipped = 0.0f32;
    let mut bad = 0.0f32;
    for block in 0..(examples as usize).div_ceil(UNITS) {
        let example = block * UNITS + UNIT_POS as usize;
        if example < examples as usize {
            clipped += select(marks[example] == 1u32, 1.0f32, 0.0f32);
            bad += select(marks[example] == 2u32, 1.0f32, 0.0f32);
        }
    }
    let loss = sum_of_units(loss);
    let correct = sum_of_units(correct);
    let clipped = sum_of_units(clipped);
    let bad = sum_of_units(bad);
    if UNIT_POS == 0 {
        let first = row as usize * TALLIED;
        let before = more != 0u32;
        to[first] = select(before, to[first], 0.0f32) + loss;
        to[first + 1] = select(before, to[first + 1], 0.0f32) + correct;
        to[first + 2] = select(before, to[first + 2], 0.0f32) + clipped;
        to[first + 3] = select(before, to[first + 3], 0.0f32) + bad;
    }
}
