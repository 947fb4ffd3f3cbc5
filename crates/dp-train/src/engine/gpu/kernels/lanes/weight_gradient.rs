//! Gradients of a convolution's weights in lanes: one channel of the input in each lane, a few channels of the output in registers.
//!
//! Rows of 8 outputs go down a strip of the image. The pixels under a row are kept for the rows below it, so that a step
//! loads only the lowest row of pixels; the gradients of the outputs are handed to all lanes one by one.

use cubecl::prelude::*;

use super::{LANES, plane};
use crate::engine::gpu::kernels::geometry::Geometry;
use crate::engine::gpu::kernels::product::{Kind, Place};

/// Sums that a lane has room for.
const SUMS: usize = 36;

/// Channels of the output that a plane makes.
fn outs(g: &Geometry) -> usize {
    (SUMS / g.taps()).clamp(1, LANES)
}

/// Planes for the images of one row, and slots of its squares.
pub(crate) fn planes(g: &Geometry) -> usize {
    g.groups * g.inner.div_ceil(LANES) * g.outer.div_ceil(outs(g))
}

/// Squares that are added up one after the other in a slot.
pub(crate) fn terms(g: &Geometry) -> usize {
    outs(g) * (g.taps() + 1) + LANES
}

/// The gradient of 8 channels of the input and a few of the output. Arguments are those of the form in tiles.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a kernel's parts share its arguments")]
pub(crate) fn weight_gradient(
    x: &[f32],
    dy: &[f32],
    factors: &[f32],
    to: &mut [f32],
    squares: &mut [f32],
    images: u32,
    together: u32,
    first_part: u32,
    #[comptime] g: Geometry,
    #[comptime] kind: Kind,
    #[comptime] place: Place,
    #[comptime] views: usize,
) {
    let area = comptime!(g.area());
    let window = comptime!(g.window());
    let taps = comptime!(g.taps());
    let kernel = comptime!(g.kernel);
    let outs = comptime!(outs(&g));
    let wide = comptime!(LANES + g.kernel - 1);
    let out_blocks = comptime!(g.outer.div_ceil(outs));
    let in_blocks = comptime!(g.inner.div_ceil(LANES));
    let planes = comptime!(planes(&g));

    let lane = UNIT_POS as usize % LANES;
    let plane = plane();
    let tile = plane % planes;
    let row = plane / planes;
    let first_out = tile % out_blocks * outs;
    let block = tile / out_blocks % in_blocks;
    let group = tile / comptime!(out_blocks * in_blocks);
    let channel = block * LANES + lane;
    let first_image = row as u32 * together;
    if first_image < images {
        let count = select(first_image + together < images, together, images - first_image);
        let mut sums = Array::<f32>::new(comptime!(outs * taps));
        #[unroll]
        for i in 0..comptime!(outs * taps) {
            sums[i] = 0.0f32;
        }
        let mut biases = Array::<f32>::new(outs);
        #[unroll]
        for i in 0..outs {
            biases[i] = 0.0f32;
        }
        let mut pixels = Array::<f32>::new(comptime!(kernel * wide));
        for i in 0..count {
            let image = (first_image + i) as usize;
            let mut factor = 1.0f32;
            if comptime!(kind == Kind::Clipped) {
                factor = factors[image / views];
            }
            if factor != 0.0f32 {
                let input =
                    (image * comptime!(g.groups * g.inner) + group * comptime!(g.inner) + channel)
                        * comptime!(g.plane());
                let output = (image * comptime!(g.groups * g.outer)
                    + group * comptime!(g.outer)
                    + first_out)
                    * area;
                for strip in 0..comptime!(g.columns.div_ceil(LANES)) {
                    let left = strip * LANES;
                    #[unroll]
                    for down in 0..comptime!(kernel - 1) {
                        load_row(x, &mut pixels, input, channel, down, left, down, g);
                    }
                    for y in 0..comptime!(g.rows) {
                        load_row(
                            x,
                            &mut pixels,
                            input,
                            channel,
                            y + comptime!(kernel - 1),
                            left,
                            comptime!(kernel - 1),
                            g,
                        );
                        let there = left + lane < comptime!(g.columns);
                        let start = output + y * comptime!(g.columns) + left + lane;
                        #[unroll]
                        for o in 0..outs {
                            let inside = there && first_out + o < comptime!(g.outer);
                            let value = dy[select(inside, start + o * area, 0)];
                            let gradient = select(inside, factor * value, 0.0f32);
                            biases[o] += gradient;
                            #[unroll]
                            for p in 0..LANES {
                                let value = plane_shuffle(gradient, comptime!(p as u32));
                                #[unroll]
                                for tap in 0..taps {
                                    sums[comptime!(o * taps + tap)] += value
                                        * pixels[comptime!(tap / kernel * wide + p + tap % kernel)];
                                }
                            }
                        }
                        #[unroll]
                        for i in 0..comptime!((kernel - 1) * wide) {
                            pixels[i] = pixels[comptime!(i + wide)];
                        }
                    }
                }
            }
        }
        let mut square = 0.0f32;
        let to_row = (first_part as usize + row) * comptime!(place.row) + comptime!(place.at);
        let scale = comptime!(if kind == Kind::Plain { 1.0 } else { 1.0 / views as f32 });
        #[unroll]
        for o in 0..outs {
            let out = group * comptime!(g.outer) + first_out + o;
            if first_out + o < comptime!(g.outer) && channel < comptime!(g.inner) {
                #[unroll]
                for tap in 0..taps {
                    let value = sums[comptime!(o * taps + tap)] * scale;
                    to[to_row + out * window + channel * taps + tap] = value;
                    square += value * value;
                }
            }
            let bias = sum_of_lanes(biases[o]) * scale;
            if channel == 0 && first_out + o < comptime!(g.outer) {
                to[to_row + comptime!(g.weights()) + out] = bias;
                square += bias * bias;
            }
        }
        if let Kind::Held { slot, slots } = comptime!(kind) {
            let sum = sum_of_lanes(square);
            if lane == 0 {
                squares[row * slots + slot + tile] = sum;
            }
        }
    }
}

/// Loads the pixels of a lane's channel under 8 outputs: row `y` of the padded image, columns from `left` on, to row `down` of
/// `pixels`. Outside of the image there are zeros.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a kernel's parts share its arguments")]
fn load_row(
    x: &[f32],
    pixels: &mut Array<f32>,
    input: usize,
    channel: usize,
    y: usize,
    left: usize,
    #[comptime] down: usize,
    #[comptime] g: Geometry,
) {
    let wide = comptime!(LANES + g.kernel - 1);
    let padding = comptime!(g.padding);
    let row = y >= padding && y < comptime!(g.height + g.padding) && channel < comptime!(g.inner);
    #[unroll]
    for j in 0..wide {
        let column = left + j;
        let there = row && column >= padding && column < comptime!(g.width + g.padding);
        // Where there is no pixel this wraps, and constants are never subtracted from each other.
        let at = input + y * comptime!(g.width) + column - comptime!(g.padding * (g.width + 1));
        let value = x[select(there, at, 0)];
        pixels[comptime!(down * wide + j)] = select(there, value, 0.0f32);
    }
}

/// The sum of a number of every lane, in their order.
#[cube]
fn sum_of_lanes(value: f32) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for lane in 0..LANES {
        sum += plane_shuffle(value, comptime!(lane as u32));
    }
    sum
}
