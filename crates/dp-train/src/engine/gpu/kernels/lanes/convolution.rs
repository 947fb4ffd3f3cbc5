//! A convolution in lanes: a plane makes 8 x 8 pixels of 8 channels, one channel in each lane.
//!
//! For every channel of the input it loads the pixels under the square once, 100 for windows of 3 x 3, and its own
//! weights; every pixel is then handed to all lanes, and used for all taps that see it. Nothing is shared between planes.

use cubecl::prelude::*;

use super::{LANES, SQUARE, plane, tiles};
use crate::engine::gpu::kernels::activation::{Activation, activate, derivative};
use crate::engine::gpu::kernels::geometry::Geometry;
use crate::engine::gpu::kernels::order::goes_before;
use crate::engine::gpu::kernels::product::Way;

/// Which word holds the place of a window's maximum, and from which bit on: a word is what one lane makes.
#[cube]
pub(crate) fn word_of_lane(
    plane: usize,
    y: usize,
    x: usize,
    #[comptime] g: Geometry,
) -> (usize, u32) {
    let side = comptime!(SQUARE / 2);
    let tile = y / side * comptime!(g.columns.div_ceil(SQUARE)) + x / side;
    let window = y % side * side + x % side;
    (plane * comptime!(tiles(g.rows, g.columns)) + tile, (2 * window) as u32)
}

/// One square of 8 channels. Arguments are those of the form in tiles.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a kernel's parts share its arguments")]
pub(crate) fn convolve(
    from: &[f32],
    parameters: &[f32],
    seen: &[f32],
    to: &mut [f32],
    places: &mut [u32],
    images: u32,
    #[comptime] g: Geometry,
    #[comptime] way: Way,
    #[comptime] at: usize,
    #[comptime] activation: Activation,
    #[comptime] pooled: bool,
) {
    let turned = comptime!(way == Way::Turned);
    let rows = comptime!(if turned { g.inner } else { g.outer });
    let terms = comptime!(if turned { g.outer } else { g.inner });
    let high = comptime!(if turned { g.height } else { g.rows });
    let wide = comptime!(if turned { g.width } else { g.columns });
    let from_high = comptime!(if turned { g.rows } else { g.height });
    let from_wide = comptime!(if turned { g.columns } else { g.width });
    // Turned, a window of the gradient sees a pixel under the taps in reverse.
    let padding = comptime!(if turned { g.kernel - 1 - g.padding } else { g.padding });
    let kernel = comptime!(g.kernel);
    let taps = comptime!(g.taps());
    let side = comptime!(SQUARE + g.kernel - 1);
    let loads = comptime!((side * side).div_ceil(LANES));
    let blocks = comptime!(rows.div_ceil(LANES));
    let across = comptime!(wide.div_ceil(SQUARE));
    let tiles = comptime!(tiles(high, wide));

    let lane = UNIT_POS as usize % LANES;
    let plane = plane();
    let row = plane % blocks * LANES + lane;
    let group = plane / blocks % comptime!(g.groups);
    let tile = plane / comptime!(blocks * g.groups) % tiles;
    let image = plane / comptime!(blocks * g.groups * tiles);
    if image < images as usize {
        let top = tile / across * SQUARE;
        let left = tile % across * SQUARE;
        let base = (image * comptime!(g.groups) + group) * comptime!(terms * from_high * from_wide);
        let mut starts = Array::<usize>::new(loads);
        let mut inside = Array::<bool>::new(loads);
        #[unroll]
        for i in 0..loads {
            let pixel = i * LANES + lane;
            let y = top + pixel / side;
            let x = left + pixel % side;
            let there = pixel < comptime!(side * side)
                && y >= padding
                && y < comptime!(from_high + padding)
                && x >= padding
                && x < comptime!(from_wide + padding);
            inside[i] = there;
            starts[i] = select(there, base + (y - padding) * from_wide + x - padding, 0);
        }
        let mut sums = Array::<f32>::new(comptime!(SQUARE * SQUARE));
        #[unroll]
        for i in 0..comptime!(SQUARE * SQUARE) {
            sums[i] = 0.0f32;
        }
        // A lane behind the last channel does as one before it, and writes nothing.
        let safe = select(row < rows, row, 0);
        let step = comptime!(if turned { g.inner * taps } else { taps });
        let each = comptime!(if turned { 1 } else { g.inner });
        let weights_at = at + (group * comptime!(g.outer * g.inner) + safe * each) * taps;
        for term in 0..terms {
            let mut pixels = Array::<f32>::new(loads);
            #[unroll]
            for i in 0..loads {
                let value = from[starts[i] + term * comptime!(from_high * from_wide)];
                pixels[i] = select(inside[i], value, 0.0f32);
            }
            let mut weights = Array::<f32>::new(taps);
            #[unroll]
            for tap in 0..taps {
                let seen_by = comptime!(if turned { taps - 1 - tap } else { tap });
                weights[tap] = parameters[weights_at + term * step + seen_by];
            }
            #[unroll]
            for pixel in 0..comptime!(side * side) {
                let value = plane_shuffle(
                    pixels[comptime!(pixel / LANES)],
                    comptime!((pixel % LANES) as u32),
                );
                #[unroll]
                for tap in 0..taps {
                    let y = comptime!((pixel / side).wrapping_sub(tap / kernel));
                    let x = comptime!((pixel % side).wrapping_sub(tap % kernel));
                    if comptime!(y < SQUARE && x < SQUARE) {
                        sums[comptime!(y * SQUARE + x)] += value * weights[tap];
                    }
                }
            }
        }
        if row < rows {
            let channel = group * rows + row;
            let plane = image * comptime!(g.groups * rows) + channel;
            if pooled {
                let bias = parameters[at + comptime!(g.weights()) + channel];
                let mut word = 0u32;
                #[unroll]
                for window in 0..comptime!(SQUARE * SQUARE / 4) {
                    let y = comptime!(window / (SQUARE / 2));
                    let x = comptime!(window % (SQUARE / 2));
                    let first = comptime!(2 * y * SQUARE + 2 * x);
                    let mut best = activate(sums[first] + bias, activation);
                    let mut place = 0u32;
                    #[unroll]
                    for tap in 1..4 {
                        let sum = sums[comptime!(first + tap / 2 * SQUARE + tap % 2)];
                        let value = activate(sum + bias, activation);
                        let before = goes_before(value, best);
                        best = select(before, value, best);
                        place = select(before, tap as u32, place);
                    }
                    let y = top / 2 + y;
                    let x = left / 2 + x;
                    if y < comptime!(high / 2) && x < comptime!(wide / 2) {
                        to[plane * comptime!(high * wide / 4) + y * comptime!(wide / 2) + x] = best;
                    }
                    word |= place << comptime!(2 * window as u32);
                }
                places[plane * tiles + tile] = word;
            } else {
                let mut bias = 0.0f32;
                if !turned {
                    bias += parameters[at + comptime!(g.weights()) + channel];
                }
                #[unroll]
                for pixel in 0..comptime!(SQUARE * SQUARE) {
                    let y = top + comptime!(pixel / SQUARE);
                    let x = left + comptime!(pixel % SQUARE);
                    if y < high && x < wide {
                        let index = plane * comptime!(high * wide) + y * wide + x;
                        let sum = sums[pixel];
                        if turned {
                            to[index] = match comptime!(activation) {
                                Activation::None => sum,
                                _ => sum * derivative(seen[index], activation),
                            };
                        } else {
                            to[index] = activate(sum + bias, activation);
                        }
                    }
                }
            }
        }
    }
}
