//! Sums over the units of a cube.

use cubecl::prelude::*;

use super::UNITS;

/// The sum of a number of every unit, in their order: 64 terms. All units must come here together.
#[cube]
pub(crate) fn sum_of_units(value: f32) -> f32 {
    let mut all = Shared::<[f32]>::new_slice(UNITS);
    // Whoever was here before has read its sum.
    sync_cube();
    all[UNIT_POS as usize] = value;
    sync_cube();
    let mut sum = 0.0f32;
    for i in 0..UNITS {
        sum += all[i];
    }
    sum
}
