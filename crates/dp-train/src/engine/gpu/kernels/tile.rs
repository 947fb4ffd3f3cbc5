//! A unit's part of a tile: the product of two strips in shared memory.

use cubecl::prelude::*;

use super::SIDE;

/// Adds the product of two strips, `deep` terms of rows of `left_row` and `right_row` numbers, to a unit's `tall x 8` numbers: rows
/// `tall (unit / 8)` and on, columns `unit % 8` and every eighth behind it, so that neighbouring units read neighbouring
/// numbers.
#[cube]
pub(crate) fn add_product(
    left: &Shared<[f32]>,
    right: &Shared<[f32]>,
    sums: &mut Array<f32>,
    #[comptime] deep: usize,
    #[comptime] tall: usize,
    #[comptime] left_row: usize,
    #[comptime] right_row: usize,
) {
    let across = UNIT_POS as usize % SIDE;
    let down = UNIT_POS as usize / SIDE;
    #[unroll]
    for k in 0..deep {
        let mut column = Array::<f32>::new(tall);
        #[unroll]
        for i in 0..tall {
            column[i] = left[k * left_row + down * tall + i];
        }
        #[unroll]
        for j in 0..SIDE {
            let value = right[k * right_row + across + SIDE * j];
            #[unroll]
            for i in 0..tall {
                sums[i * SIDE + j] += column[i] * value;
            }
        }
    }
}
