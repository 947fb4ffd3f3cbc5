//! Ghost norms: the norm of an example's gradient without the gradient.
//!
//! With the windows `a_p` and the output gradients `g_p` at the positions `p` of all views of an example, the squared norm of
//! `sum_p g_p (a_p, 1)'` is
//!
//! ```text
//! sum_{p,q} (1 + <a_p, a_q>) <g_p, g_q>
//! ```
//!
//! Cubes make tiles of 32 x 32 pairs, on and above the diagonal. One more cube per example makes a bound on what all of them can
//! have lost. Where there is one position only, nothing cancels and the norm is `(1 + |a|^2) |g|^2`. Otherwise terms cancel, so the error is relative to what they sum to without signs, at most `(sum_p |(a_p, 1)| |g_p|)^2`.

use cubecl::prelude::*;

use super::geometry::Geometry;
use super::lanes::{self, Form};
use super::ledger::enter;
use super::reduction::sum_of_units;
use super::window::pixel_under;
use super::{DEEP, UNITS};

/// Positions along a side of a tile.
const POSITIONS: usize = 32;
/// Pairs along a side of a unit's part of a tile.
const PART: usize = 4;

/// Tiles along a side for so many positions.
pub(crate) fn tiles(positions: usize) -> usize {
    positions.div_ceil(POSITIONS)
}

/// Slots of an example and group: the tiles, and what they lost; one if there is one position. In lanes there is one tile.
pub(crate) fn slots(g: &Geometry, positions: usize, form: Form) -> usize {
    match positions {
        1 => 1,
        _ if lanes::gram::fits(g, positions, form) => 2,
        _ => pairs_of_tiles(positions) + 1,
    }
}

/// Tiles on and above the diagonal.
pub(crate) fn pairs_of_tiles(positions: usize) -> usize {
    let tiles = if positions == 1 { 0 } else { tiles(positions) };
    tiles * (tiles + 1) / 2
}

/// Terms that are added up one after the other for a sum over pairs, in all its levels: the strips of both products, a
/// unit's pairs, the units, and the slots of an example.
pub(crate) fn terms(g: &Geometry, positions: usize, form: Form) -> usize {
    let slots = slots(g, positions, form);
    if lanes::gram::fits(g, positions, form) {
        return lanes::gram::terms(g, slots);
    }
    let strips = g.taps() * g.inner.div_ceil(DEEP) + g.outer.div_ceil(DEEP);
    2 * DEEP + strips + PART * PART + UNITS + g.groups * slots
}

/// One tile of pairs, or what they lost: slot `CUBE_POS_X` of group `CUBE_POS_Y` of example `CUBE_POS_Z`.
#[cube(launch)]
pub(crate) fn gram(
    ledger: &mut [u32],
    x: &[f32],
    dy: &[f32],
    squares: &mut [f32],
    error: f32,
    vanished: f32,
    #[comptime] g: Geometry,
    #[comptime] views: usize,
    #[comptime] slot: usize,
    #[comptime] slots: usize,
    #[comptime] form: Form,
) {
    enter(ledger);
    let positions = comptime!(views * g.area());
    let tiles = comptime!(tiles(positions));
    let last = comptime!(self::slots(&g, positions, form) - 1);
    let group = CUBE_POS_Y as usize;
    let example = CUBE_POS_Z as usize;
    let index = CUBE_POS_X as usize;
    let mut found = 0.0f32;
    if comptime!(positions == 1) {
        found += single(x, dy, vanished, example, group, g);
    } else if index == last {
        found += lost(x, dy, error, vanished, example, group, g, views);
    } else if comptime!(lanes::gram::fits(&g, positions, form)) {
        found += lanes::gram::pairs(x, dy, example, group, g);
    } else {
        let mut down = 0;
        let mut rest = index;
        while rest >= tiles - down {
            rest -= tiles - down;
            down += 1;
        }
        let both = select(rest > 0, 2.0f32, 1.0f32);
        found += both * pairs(x, dy, example, group, down, down + rest, g, views);
    }
    if UNIT_POS == 0 {
        let scale = comptime!(1.0 / (views * views) as f32);
        squares[example * slots + slot + group * comptime!(last + 1) + index] = found * scale;
    }
}

/// The sum over the pairs of two blocks of positions.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a kernel's parts share its arguments")]
fn pairs(
    x: &[f32],
    dy: &[f32],
    example: usize,
    group: usize,
    down: usize,
    right: usize,
    #[comptime] g: Geometry,
    #[comptime] views: usize,
) -> f32 {
    let area = comptime!(g.area());
    let positions = comptime!(views * g.area());
    let mut strip = Shared::<[f32]>::new_slice(comptime!(DEEP * UNITS));
    let unit = UNIT_POS as usize;
    // The position that this unit loads: the first 32 of one block, the others of the other.
    let block = select(unit < POSITIONS, down, right);
    let position = block * POSITIONS + unit % POSITIONS;
    let inside = position < positions;
    let image = example * views + select(inside, position / area, 0);
    let p = position % area;
    let oy = p / comptime!(g.columns);
    let ox = p % comptime!(g.columns);
    let mut inputs = Array::<f32>::new(comptime!(PART * PART));
    let mut gradients = Array::<f32>::new(comptime!(PART * PART));
    #[unroll]
    for i in 0..comptime!(PART * PART) {
        inputs[i] = 1.0f32;
        gradients[i] = 0.0f32;
    }
    let plane = (image * comptime!(g.groups) + group) * comptime!(g.inner * g.plane());
    for tap in 0..comptime!(g.taps()) {
        let (there, pixel) = pixel_under(oy, ox, tap, g);
        let valid = inside && there;
        let start = plane + pixel;
        for first in 0..comptime!(g.inner.div_ceil(DEEP)) {
            sync_cube();
            #[unroll]
            for k in 0..DEEP {
                let channel = first * DEEP + k;
                let mut value = 0.0f32;
                if valid && channel < comptime!(g.inner) {
                    value = x[start + channel * comptime!(g.plane())];
                }
                strip[k * UNITS + unit] = value;
            }
            sync_cube();
            products(&strip, &mut inputs);
        }
    }
    let start = (image * comptime!(g.groups) + group) * comptime!(g.outer * g.area()) + p;
    for first in 0..comptime!(g.outer.div_ceil(DEEP)) {
        sync_cube();
        #[unroll]
        for k in 0..DEEP {
            let channel = first * DEEP + k;
            let mut value = 0.0f32;
            if inside && channel < comptime!(g.outer) {
                value = dy[start + channel * area];
            }
            strip[k * UNITS + unit] = value;
        }
        sync_cube();
        products(&strip, &mut gradients);
    }
    let mut sum = 0.0f32;
    #[unroll]
    for i in 0..comptime!(PART * PART) {
        sum += inputs[i] * gradients[i];
    }
    sum_of_units(sum)
}

/// Adds the products of a strip to a unit's part of a tile. A strip is summed up by itself: so a sum of many terms is one
/// of few strips, and loses little. Positions outside are zeros, in the gradients at least.
#[cube]
fn products(strip: &Shared<[f32]>, sums: &mut Array<f32>) {
    let across = UNIT_POS as usize % 8;
    let down = UNIT_POS as usize / 8;
    let mut parts = Array::<f32>::new(comptime!(PART * PART));
    #[unroll]
    for i in 0..comptime!(PART * PART) {
        parts[i] = 0.0f32;
    }
    #[unroll]
    for k in 0..DEEP {
        #[unroll]
        for i in 0..PART {
            let left = strip[k * UNITS + down + 8 * i];
            #[unroll]
            for j in 0..PART {
                parts[i * PART + j] += left * strip[k * UNITS + POSITIONS + across + 8 * j];
            }
        }
    }
    #[unroll]
    for i in 0..comptime!(PART * PART) {
        sums[i] += parts[i];
    }
}

/// The squared norm if there is one position, made larger by what may have vanished.
#[cube]
fn single(
    x: &[f32],
    dy: &[f32],
    vanished: f32,
    example: usize,
    group: usize,
    #[comptime] g: Geometry,
) -> f32 {
    let plane = (example * comptime!(g.groups) + group) * comptime!(g.inner * g.plane());
    let mut inputs = 0.0f32;
    for block in 0..comptime!(g.window().div_ceil(UNITS)) {
        let at = block * UNITS + UNIT_POS as usize;
        if at < comptime!(g.window()) {
            let (there, pixel) = pixel_under(0, 0, at % comptime!(g.taps()), g);
            if there {
                let value = x[plane + at / comptime!(g.taps()) * comptime!(g.plane()) + pixel];
                inputs += value * value;
            }
        }
    }
    let mut gradients = 0.0f32;
    for block in 0..comptime!(g.outer.div_ceil(UNITS)) {
        let channel = block * UNITS + UNIT_POS as usize;
        if channel < comptime!(g.outer) {
            let value = dy[(example * comptime!(g.groups) + group) * comptime!(g.outer) + channel];
            gradients += value * value;
        }
    }
    let inputs = 1.0f32 + sum_of_units(inputs);
    let gradients = sum_of_units(gradients);
    inputs * gradients + vanished * comptime!(g.outer as f32) * inputs
}

/// What the tiles of an example can have lost, at most.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a kernel's parts share its arguments")]
fn lost(
    x: &[f32],
    dy: &[f32],
    error: f32,
    vanished: f32,
    example: usize,
    group: usize,
    #[comptime] g: Geometry,
    #[comptime] views: usize,
) -> f32 {
    let area = comptime!(g.area());
    let positions = comptime!(views * g.area());
    let mut bound = 0.0f32;
    let mut reach = 0.0f32;
    for block in 0..comptime!(positions.div_ceil(UNITS)) {
        let position = block * UNITS + UNIT_POS as usize;
        if position < positions {
            let image = example * views + position / area;
            let p = position % area;
            let mut inputs = 1.0f32;
            let plane = (image * comptime!(g.groups) + group) * comptime!(g.inner * g.plane());
            for tap in 0..comptime!(g.taps()) {
                let oy = p / comptime!(g.columns);
                let (there, pixel) = pixel_under(oy, p % comptime!(g.columns), tap, g);
                if there {
                    let start = plane + pixel;
                    for channel in 0..comptime!(g.inner) {
                        let value = x[start + channel * comptime!(g.plane())];
                        inputs += value * value;
                    }
                }
            }
            let start = (image * comptime!(g.groups) + group) * comptime!(g.outer * g.area()) + p;
            let mut gradients = 0.0f32;
            for channel in 0..comptime!(g.outer) {
                let value = dy[start + channel * area];
                gradients += value * value;
            }
            bound += (inputs * gradients).sqrt();
            reach += inputs.sqrt();
        }
    }
    let bound = sum_of_units(bound);
    let reach = sum_of_units(reach);
    error * bound * bound + vanished * comptime!(g.outer as f32) * reach * reach
}
