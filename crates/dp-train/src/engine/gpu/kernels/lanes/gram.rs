//! Ghost norms in lanes, for images of few pixels.
//!
//! Windows overlap: `<a_p, a_q> = sum_t X[p + t, q + t]` over taps `t`, with the products `X` of all channels of two pixels. So there are
//! `in + out` multiplications for a pair and not `9 in + out`. A cube makes the pairs of an example, a unit those of one
//! position; the products of pixels go through shared memory once.

use cubecl::prelude::*;

use super::{Form, LANES};
use crate::engine::gpu::kernels::UNITS;
use crate::engine::gpu::kernels::geometry::Geometry;
use crate::engine::gpu::kernels::reduction::sum_of_units;
use crate::engine::gpu::kernels::window::pixel_under;

/// Whether a cube has a unit for every position and for every pixel of an example.
pub(crate) fn fits(g: &Geometry, positions: usize, form: Form) -> bool {
    let one_view = positions == g.area();
    form == Form::Lanes && one_view && positions > 1 && positions.max(g.plane()) <= UNITS
}

/// Terms that are added up one after the other for a sum over pairs, in all its levels: channels of both products, taps, a unit's
/// pairs, the units, and the slots of an example.
pub(crate) fn terms(g: &Geometry, slots: usize) -> usize {
    g.inner + g.taps() + 1 + g.outer + 2 * UNITS + g.groups * slots
}

/// The sum over all pairs of positions.
#[cube]
pub(crate) fn pairs(
    x: &[f32],
    dy: &[f32],
    example: usize,
    group: usize,
    #[comptime] g: Geometry,
) -> f32 {
    let mut products = Shared::<[f32]>::new_slice(comptime!(UNITS * UNITS));
    let unit = UNIT_POS as usize;
    let mut inputs = Array::<f32>::new(UNITS);
    let mut gradients = Array::<f32>::new(UNITS);
    #[unroll]
    for p in 0..UNITS {
        inputs[p] = 0.0f32;
        gradients[p] = 0.0f32;
    }
    let image = example * comptime!(g.groups) + group;
    add_products(x, &mut inputs, image * comptime!(g.inner * g.plane()), g.inner, g.plane());
    #[unroll]
    for p in 0..UNITS {
        products[comptime!(p * UNITS) + unit] = inputs[p];
    }
    sync_cube();
    add_products(dy, &mut gradients, image * comptime!(g.outer * g.area()), g.outer, g.area());
    #[unroll]
    for p in 0..UNITS {
        inputs[p] = 1.0f32;
    }
    let inside = unit < comptime!(g.area());
    let (oy, ox) = (unit / comptime!(g.columns), unit % comptime!(g.columns));
    for tap in 0..comptime!(g.taps()) {
        let (there, pixel) = pixel_under(oy, ox, tap, g);
        let valid = inside && there;
        #[unroll]
        for p in 0..comptime!(g.area()) {
            let (there, other) = pixel_under(
                comptime!(p / g.columns).runtime(),
                comptime!(p % g.columns).runtime(),
                tap,
                g,
            );
            let value = products[other * UNITS + select(valid, pixel, 0)];
            inputs[p] += select(there && valid, value, 0.0f32);
        }
    }
    let mut sum = 0.0f32;
    #[unroll]
    for p in 0..comptime!(g.area()) {
        sum += inputs[p] * gradients[p];
    }
    sum_of_units(sum)
}

/// Adds to a unit's sums the products of its own pixel with all of them, over all channels. Beside the image there are zeros.
#[cube]
fn add_products(
    from: &[f32],
    sums: &mut Array<f32>,
    base: usize,
    #[comptime] channels: usize,
    #[comptime] area: usize,
) {
    let unit = UNIT_POS as usize;
    let lane = unit % LANES;
    let blocks = comptime!(area.div_ceil(LANES));
    for channel in 0..channels {
        let start = base + channel * area;
        let inside = unit < area;
        let own = from[select(inside, start + unit, 0)];
        let own = select(inside, own, 0.0f32);
        #[unroll]
        for block in 0..blocks {
            let pixel = block * LANES + lane;
            let inside = pixel < area;
            let value = from[select(inside, start + pixel, 0)];
            let value = select(inside, value, 0.0f32);
            #[unroll]
            for k in 0..LANES {
                sums[comptime!(block * LANES + k)] +=
                    own * plane_shuffle(value, comptime!(k as u32));
            }
        }
    }
}
