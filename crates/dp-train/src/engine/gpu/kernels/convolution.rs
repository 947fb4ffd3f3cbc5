//! Convolutions and their input gradients: one product of matrices with two ways to find its numbers.
//!
//! ```text
//! forward   out[o, p]  = act(bias_o + sum_{c,k} w[o,c,k] x[c, s p + k - pad])      rows o, columns p, terms (k, c)
//! turned    out[c, q]  = act'(y_cq)   sum_{o,k} w[o,c,k] dy[o, (q + pad - k) / s]   rows c, columns q, terms (k, o)
//! ```
//!
//! The pixels of all images are the columns, so the last tile of an image is shared with the next one.
//!
//! # Pooling
//! A maximum over windows of 2 x 2 pixels behind the activation is taken by the kernel itself: its columns are then ordered by
//! window, so that a unit's eight are two windows of four, and it writes two numbers and the two bits of each that say which
//! pixel was the largest. The value before the maximum is nowhere in memory.

use cubecl::prelude::*;

use super::activation::{Activation, activate, derivative};
use super::geometry::Geometry;
use super::lanes::{self, Form};
use super::ledger::enter;
use super::order::goes_before;
use super::product::Way;
use super::tile::add_product;
use super::window::{output_over, pixel_under};
use super::{DEEP, SIDE, SPAN, UNITS};

/// The pixel of column `n` of a tile: its image, row and column. Columns are pixels in their order, or, for pooling, the pixels
/// of windows in the order of windows: columns `n`, `n + 8`, `n + 16` and `n + 24` are one.
#[cube]
fn pixel_of(
    tile: usize,
    n: usize,
    #[comptime] area: usize,
    #[comptime] across: usize,
    #[comptime] pooled: bool,
) -> (usize, usize, usize) {
    if pooled {
        let windows = comptime!(area / 4);
        let window = tile * comptime!(UNITS / 4) + n % SIDE * 2 + n / SIDE / 4;
        let place = n / SIDE % 4;
        let y = window % windows / comptime!(across / 2) * 2 + place / 2;
        let x = window % comptime!(across / 2) * 2 + place % 2;
        (window / windows, y, x)
    } else {
        let column = tile * UNITS + n;
        (column / area, column % area / across, column % across)
    }
}

/// One tile of the product. `seen` is what the activation's derivative depends on; forward it is not read. `places` gets the places of
/// maxima if it is `pooled`, see [`word_of_tile`](super::pool::word_of_tile).
#[cube(launch)]
#[expect(clippy::too_many_arguments, reason = "those of a kernel")]
pub(crate) fn convolve(
    ledger: &mut [u32],
    from: &[f32],
    parameters: &[f32],
    seen: &[f32],
    to: &mut [f32],
    places: &mut [u32],
    images: u32,
    #[comptime] g: Geometry,
    #[comptime] way: Way,
    #[comptime] at: usize,
    #[comptime] tall: usize,
    #[comptime] activation: Activation,
    #[comptime] pooled: bool,
    #[comptime] form: Form,
) {
    enter(ledger);
    if comptime!(form == Form::Lanes) {
        lanes::convolution::convolve(
            from, parameters, seen, to, places, images, g, way, at, activation, pooled,
        );
    } else {
        tile_of(from, parameters, seen, to, places, images, g, way, at, tall, activation, pooled);
    }
}

#[cube]
#[expect(clippy::too_many_arguments, reason = "a kernel's parts share its arguments")]
fn tile_of(
    from: &[f32],
    parameters: &[f32],
    seen: &[f32],
    to: &mut [f32],
    places: &mut [u32],
    images: u32,
    #[comptime] g: Geometry,
    #[comptime] way: Way,
    #[comptime] at: usize,
    #[comptime] tall: usize,
    #[comptime] activation: Activation,
    #[comptime] pooled: bool,
) {
    let turned = comptime!(way == Way::Turned);
    let rows = comptime!(if turned { g.inner } else { g.outer });
    let terms = comptime!(if turned { g.outer } else { g.inner });
    let area = comptime!(if turned { g.plane() } else { g.area() });
    let across = comptime!(if turned { g.width } else { g.columns });
    let from_area = comptime!(if turned { g.area() } else { g.plane() });
    let taps = comptime!(g.taps());
    let deep = comptime!(DEEP.min(terms));
    let tile_rows = comptime!(SIDE * tall);
    let row_tiles = comptime!(rows.div_ceil(SIDE * tall));
    let mut left = Shared::<[f32]>::new_slice(comptime!(deep * SIDE * tall));
    let mut right = Shared::<[f32]>::new_slice(comptime!(deep * UNITS));

    let unit = UNIT_POS as usize;
    let tile = CUBE_POS_Z as usize * SPAN + CUBE_POS_X as usize;
    let group = CUBE_POS_Y as usize / row_tiles;
    let first_row = (CUBE_POS_Y as usize % row_tiles) * tile_rows;
    // The pixel of the column that this unit loads.
    let (image, y, x) = pixel_of(tile, unit, area, across, pooled);
    let inside = image < images as usize;
    let base = (image * comptime!(g.groups) + group) * comptime!(terms * from_area);

    let mut sums = Array::<f32>::new(comptime!(tall * SIDE));
    #[unroll]
    for i in 0..comptime!(tall * SIDE) {
        sums[i] = 0.0f32;
    }
    let across_tile = unit % SIDE;
    let down_tile = unit / SIDE;
    for tap in 0..taps {
        let (reached, start) =
            if turned { output_over(y, x, tap, g) } else { pixel_under(y, x, tap, g) };
        let valid = inside && reached;
        let start = select(valid, base + start, 0);
        for strip in 0..comptime!(terms.div_ceil(deep)) {
            let first = strip * deep;
            #[unroll]
            for k in 0..deep {
                let term = first + k;
                let mut value = 0.0f32;
                if valid && (comptime!(terms.is_multiple_of(deep)) || term < terms) {
                    value = from[start + term * from_area];
                }
                right[k * UNITS + unit] = value;
            }
            #[unroll]
            for e in 0..comptime!((deep * SIDE * tall).div_ceil(UNITS)) {
                let index = unit + e * UNITS;
                let k = index / tile_rows;
                let row = first_row + index % tile_rows;
                let term = first + k;
                if k < deep {
                    let mut weight = 0.0f32;
                    if row < rows && term < terms {
                        let (o, c) = if turned { (term, row) } else { (row, term) };
                        let o = group * comptime!(g.outer) + o;
                        weight = parameters[at + (o * comptime!(g.inner) + c) * taps + tap];
                    }
                    left[index] = weight;
                }
            }
            sync_cube();
            add_product(&left, &right, &mut sums, deep, tall, tile_rows, UNITS);
            sync_cube();
        }
    }
    if pooled {
        let mut word = 0u32;
        #[unroll]
        for half in 0..2 {
            let (image, y, x) =
                pixel_of(tile, across_tile + half * comptime!(4 * SIDE), area, across, pooled);
            if image < images as usize {
                #[unroll]
                for i in 0..tall {
                    let row = first_row + down_tile * tall + i;
                    if row < rows {
                        let channel = group * rows + row;
                        let bias = parameters[at + comptime!(g.weights()) + channel];
                        let mut best = activate(sums[i * SIDE + half * 4] + bias, activation);
                        let mut place = 0u32;
                        #[unroll]
                        for j in 1..4 {
                            let sum = sums[i * SIDE + half * 4 + j];
                            let value = activate(sum + bias, activation);
                            if goes_before(value, best) {
                                best = value;
                                place = j as u32;
                            }
                        }
                        let plane = image * comptime!(g.groups * rows) + channel;
                        to[plane * comptime!(area / 4) + y / 2 * comptime!(across / 2) + x / 2] =
                            best;
                        word |= place << comptime!(2 * (half * tall + i) as u32);
                    }
                }
            }
        }
        places[(tile * comptime!(g.groups * row_tiles) + CUBE_POS_Y as usize) * UNITS + unit] =
            word;
    } else {
        #[unroll]
        for j in 0..SIDE {
            let (image, y, x) = pixel_of(tile, across_tile + SIDE * j, area, across, pooled);
            if image < images as usize {
                #[unroll]
                for i in 0..tall {
                    let row = first_row + down_tile * tall + i;
                    if row < rows {
                        let channel = group * rows + row;
                        let index =
                            (image * comptime!(g.groups * rows) + channel) * area + y * across + x;
                        let sum = sums[i * SIDE + j];
                        if turned {
                            to[index] = match comptime!(activation) {
                                Activation::None => sum,
                                _ => sum * derivative(seen[index], activation),
                            };
                        } else {
                            let bias = parameters[at + comptime!(g.weights()) + channel];
                            to[index] = activate(sum + bias, activation);
                        }
                    }
                }
            }
        }
    }
}
