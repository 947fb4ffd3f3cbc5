//! Images out of a data set that stays on the device as bytes.

use cubecl::prelude::*;

use super::ledger::{FAILED, enter};
use super::position::position;

/// How a view is cut out of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Cut {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// Pixels around the image before it is cut back to its size.
    pub(crate) padding: usize,
    /// Whether they show the image reflected in its outermost pixels, or byte 0.
    pub(crate) reflect: bool,
    pub(crate) views: usize,
}

/// No example: zeros, and a label that the loss knows.
pub(crate) const ABSENT: u32 = u32::MAX;

/// The pixel of a line that is seen at `at - padding`, and whether there is one.
#[cube]
fn pixel(
    at: usize,
    #[comptime] padding: usize,
    #[comptime] length: usize,
    #[comptime] reflect: bool,
) -> (bool, usize) {
    let inside = at >= padding && at < comptime!(length + padding);
    if reflect {
        let before = at < padding;
        // Behind the line, 2 (length - 1) - (at - padding).
        let mirrored = select(before, padding - at, comptime!(2 * length + padding) - 2 - at);
        (true, select(inside, at - padding, mirrored))
    } else {
        (inside, select(inside, at - padding, 0))
    }
}

/// One number of one view, if its example is one of those in `bytes`: `first` and `count - 1` behind it. A place is two words: the example, and its move down, its move right (12 bits each) and,
/// in the highest bit, whether it is mirrored. Behind the places stands their stamp. `table` is what a model sees of a byte.
#[cube(launch)]
pub(crate) fn gather(
    ledger: &mut [u32],
    bytes: &[u32],
    labels: &[u32],
    table: &[f32],
    places: &[u32],
    images: &mut [f32],
    chosen: &mut [u32],
    length: u32,
    first: u32,
    count: u32,
    stamp: u32,
    #[comptime] cut: Cut,
) {
    enter(ledger);
    let index = position();
    let numbers = comptime!(cut.channels * cut.height * cut.width);
    if index == 0 && places[2 * (length as usize / numbers)] != stamp {
        ledger[FAILED] = 1u32;
    }
    if index < length as usize {
        let image = index / numbers;
        let at = index % numbers;
        let example = places[2 * image];
        let place = places[2 * image + 1];
        if example == ABSENT {
            images[index] = 0.0f32;
        } else if example >= first && example - first < count {
            let y = at / comptime!(cut.width) % comptime!(cut.height);
            let x = at % comptime!(cut.width);
            let mirrored = place >> 31u32 == 1u32;
            let x = select(mirrored, comptime!(cut.width) - 1 - x, x);
            let down = (place & 0xfffu32) as usize;
            let right = (place >> 12u32 & 0xfffu32) as usize;
            let (row_there, row) = pixel(y + down, cut.padding, cut.height, cut.reflect);
            let (column_there, column) = pixel(x + right, cut.padding, cut.width, cut.reflect);
            let mut byte = 0u32;
            if row_there && column_there {
                let channel = at / comptime!(cut.height * cut.width);
                let from = (example - first) as usize * numbers
                    + (channel * comptime!(cut.height) + row) * comptime!(cut.width)
                    + column;
                byte = bytes[from / 4] >> ((from % 4) as u32 * 8u32) & 0xffu32;
            }
            images[index] = table[byte as usize];
        }
        if at == 0 && image % comptime!(cut.views) == 0 {
            let there = example != ABSENT;
            let label = labels[select(there, example as usize, 0)];
            chosen[image / comptime!(cut.views)] = select(there, label, ABSENT);
        }
    }
}
