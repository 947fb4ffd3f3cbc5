//! Convolutions and their input gradients: one product of matrices with two ways to find its numbers.
//!
//! ```text
//! forward   out[o, p]  = act(bias_o + sum_{c,k} w[o,c,k] x[c, s p + k - pad])      rows o, columns p, terms (k, c)
//! turned    out[c, q]  = act'(y_cq)   sum_{o,k} w[o,c,k] dy[o, (q + pad - k) / s]   rows c, columns q, terms (k, o)
//! ```
//!
//! The pixels of all images are the columns, so the last tile of an image is shared with the next one.

use cubecl::prelude::*;

use super::activation::{Activation, activate, derivative};
use super::geometry::Geometry;
use super::{DEEP, SIDE, SPAN, UNITS};

/// Which way a convolution goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// From the input to the output, bias and activation included.
    Forward,
    /// From the gradient of the output to that of the input, times the derivative of the input's activation.
    Turned,
}

/// One tile of the product. `seen` is what the activation's derivative depends on; forward it is not read.
#[cube(launch)]
pub(crate) fn convolve(
    from: &[f32],
    parameters: &[f32],
    seen: &[f32],
    to: &mut [f32],
    images: u32,
    #[comptime] g: Geometry,
    #[comptime] way: Way,
    #[comptime] at: usize,
    #[comptime] tall: usize,
    #[comptime] activation: Activation,
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
    let total = images as usize * area;
    // The column that this unit loads.
    let column = tile * UNITS + unit;
    let inside = column < total;
    let base = (column / area * comptime!(g.groups) + group) * comptime!(terms * from_area);
    let y = column % area / across;
    let x = column % across;

    let mut sums = Array::<f32>::new(comptime!(tall * SIDE));
    #[unroll]
    for i in 0..comptime!(tall * SIDE) {
        sums[i] = 0.0f32;
    }
    let across_tile = unit % SIDE;
    let down_tile = unit / SIDE;
    for tap in 0..taps {
        let ky = tap / comptime!(g.kernel);
        let kx = tap % comptime!(g.kernel);
        let (reached, start) = source(y, x, ky, kx, g, way);
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
            #[unroll]
            for k in 0..deep {
                let mut column_of_left = Array::<f32>::new(tall);
                #[unroll]
                for i in 0..tall {
                    column_of_left[i] = left[k * tile_rows + down_tile * tall + i];
                }
                #[unroll]
                for j in 0..SIDE {
                    let value = right[k * UNITS + across_tile + SIDE * j];
                    #[unroll]
                    for i in 0..tall {
                        sums[i * SIDE + j] += column_of_left[i] * value;
                    }
                }
            }
            sync_cube();
        }
    }
    #[unroll]
    for j in 0..SIDE {
        let column = tile * UNITS + across_tile + SIDE * j;
        if column < total {
            #[unroll]
            for i in 0..tall {
                let row = first_row + down_tile * tall + i;
                if row < rows {
                    let channel = group * rows + row;
                    let index = (column / area * comptime!(g.groups * rows) + channel) * area
                        + column % area;
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

/// Where the number lies that meets a tap at a pixel, within a channel, and whether there is one.
#[cube]
fn source(
    y: usize,
    x: usize,
    ky: usize,
    kx: usize,
    #[comptime] g: Geometry,
    #[comptime] way: Way,
) -> (bool, usize) {
    let padding = comptime!(g.padding);
    let stride = comptime!(g.stride);
    match comptime!(way) {
        Way::Forward => {
            let row = y * stride + ky;
            let column = x * stride + kx;
            let reached = row >= padding
                && row < comptime!(g.height + g.padding)
                && column >= padding
                && column < comptime!(g.width + g.padding);
            let row = select(reached, row - padding, 0);
            let column = select(reached, column - padding, 0);
            (reached, row * comptime!(g.width) + column)
        }
        Way::Turned => {
            let row = y + padding;
            let column = x + padding;
            let after = row >= ky && column >= kx;
            let row = select(after, row - ky, 0);
            let column = select(after, column - kx, 0);
            let reached = after
                && row % stride == 0
                && column % stride == 0
                && row / stride < comptime!(g.rows)
                && column / stride < comptime!(g.columns);
            (reached, row / stride * comptime!(g.columns) + column / stride)
        }
    }
}
