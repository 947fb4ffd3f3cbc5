//! Sums of held gradients.

use cubecl::prelude::*;

use super::ledger::enter;
use super::position::position;
use super::product::Place;

/// One weight of one part, which is row `first_part + CUBE_POS_Y`: `to[part] = sum_j factor_j held[j]` over the part's examples, `together` of them. An example with
/// factor 0 is left out whatever it holds. In a plain sum all factors are 1.
#[cube(launch)]
pub(crate) fn held_sum(
    ledger: &mut [u32],
    held: &[f32],
    factors: &[f32],
    to: &mut [f32],
    examples: u32,
    together: u32,
    first_part: u32,
    length: u32,
    #[comptime] from: Place,
    #[comptime] place: Place,
    #[comptime] plain: bool,
) {
    enter(ledger);
    let weight = position();
    if weight < length as usize {
        let first = CUBE_POS_Y * together;
        let count = select(first + together < examples, together, examples - first);
        let mut sum = 0.0f32;
        for i in 0..count {
            let example = (first + i) as usize;
            let mut factor = 1.0f32;
            if !plain {
                factor = factors[example];
            }
            if factor != 0.0f32 {
                sum += factor * held[example * comptime!(from.row) + comptime!(from.at) + weight];
            }
        }
        to[(first_part + CUBE_POS_Y) as usize * comptime!(place.row)
            + comptime!(place.at)
            + weight] = sum;
    }
}
