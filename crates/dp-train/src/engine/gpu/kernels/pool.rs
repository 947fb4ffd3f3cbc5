//! Pooling. A unit makes one number; where the largest entry of a window lies is found again on the way back, unless the
//! convolution before it took the maximum and noted its place.

use cubecl::prelude::*;

use super::activation::{Activation, activate, derivative};
use super::geometry::{Geometry, tall};
use super::lanes::{self, Form};
use super::ledger::enter;
use super::order::goes_before;
use super::position::position;
use super::window::output_over;
use super::{SIDE, UNITS};

/// What becomes of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Pooling {
    Max,
    Mean,
}

/// The largest entry of the window at a place of a plane, and its tap: the first of equal ones.
#[cube]
fn largest(
    from: &[f32],
    plane: usize,
    oy: usize,
    ox: usize,
    #[comptime] g: Geometry,
) -> (f32, usize) {
    let start = plane + (oy * comptime!(g.width) + ox) * comptime!(g.stride);
    let mut best = from[start];
    let mut at = 0;
    for tap in 1..comptime!(g.taps()) {
        let value = from
            [start + tap / comptime!(g.kernel) * comptime!(g.width) + tap % comptime!(g.kernel)];
        if goes_before(value, best) {
            best = value;
            at = tap;
        }
    }
    (best, at)
}

/// One number of the output.
#[cube(launch)]
pub(crate) fn pool(
    ledger: &mut [u32],
    from: &[f32],
    to: &mut [f32],
    length: u32,
    #[comptime] g: Geometry,
    #[comptime] pooling: Pooling,
    #[comptime] activation: Activation,
) {
    enter(ledger);
    let index = position();
    if index < length as usize {
        let plane = index / comptime!(g.area()) * comptime!(g.plane());
        let oy = index % comptime!(g.area()) / comptime!(g.columns);
        let ox = index % comptime!(g.columns);
        let value = match comptime!(pooling) {
            Pooling::Max => {
                let (value, _) = largest(from, plane, oy, ox, g);
                value
            }
            Pooling::Mean => {
                let start = plane + (oy * comptime!(g.width) + ox) * comptime!(g.stride);
                let mut sum = 0.0f32;
                for tap in 0..comptime!(g.taps()) {
                    let row = tap / comptime!(g.kernel);
                    sum += from[start + row * comptime!(g.width) + tap % comptime!(g.kernel)];
                }
                sum * comptime!(1.0 / g.taps() as f32)
            }
        };
        to[index] = activate(value, activation);
    }
}

/// One number of the input's gradient: over all windows that hold it.
#[cube(launch)]
pub(crate) fn unpool(
    ledger: &mut [u32],
    from: &[f32],
    dy: &[f32],
    to: &mut [f32],
    length: u32,
    #[comptime] g: Geometry,
    #[comptime] pooling: Pooling,
    #[comptime] activation: Activation,
) {
    enter(ledger);
    let index = position();
    if index < length as usize {
        let channel = index / comptime!(g.plane());
        let plane = channel * comptime!(g.plane());
        let y = index % comptime!(g.plane()) / comptime!(g.width);
        let x = index % comptime!(g.width);
        let mut sum = 0.0f32;
        for tap in 0..comptime!(g.taps()) {
            let (there, output) = output_over(y, x, tap, g);
            if there {
                let gradient = dy[channel * comptime!(g.area()) + output];
                let oy = output / comptime!(g.columns);
                let ox = output % comptime!(g.columns);
                match comptime!(pooling) {
                    Pooling::Max => {
                        let (_, at) = largest(from, plane, oy, ox, g);
                        if at == tap {
                            sum += gradient;
                        }
                    }
                    Pooling::Mean => sum += gradient * comptime!(1.0 / g.taps() as f32),
                }
            }
        }
        to[index] = match comptime!(activation) {
            Activation::None => sum,
            _ => sum * derivative(from[index], activation),
        };
    }
}

/// Words of places for some images of a convolution's output: two bits for each of its windows of 2 x 2 pixels.
pub(crate) fn words(g: &Geometry, images: usize, form: Form) -> usize {
    match form {
        Form::Lanes => images * g.groups * g.outer * lanes::tiles(g.rows, g.columns),
        Form::Tiles => {
            let tiles = (images * g.area()).div_ceil(UNITS);
            tiles * g.groups * g.outer.div_ceil(SIDE * tall(g.outer)) * UNITS
        }
    }
}

/// Which word holds the place of a window's maximum, and from which bit on: a word is what one unit of a tile of the convolution
/// `g` makes, two windows of `tall` channels.
#[cube]
pub(crate) fn word_of_tile(
    image: usize,
    channel: usize,
    window: usize,
    #[comptime] g: Geometry,
) -> (usize, u32) {
    let tall = comptime!(tall(g.outer));
    let row_tiles = comptime!(g.outer.div_ceil(SIDE * tall));
    let window = image * comptime!(g.area() / 4) + window;
    let row = channel % comptime!(g.outer);
    let tile = window / comptime!(UNITS / 4);
    let down = channel / comptime!(g.outer) * row_tiles + row / comptime!(SIDE * tall);
    let unit = row % comptime!(SIDE * tall) / tall * SIDE + window % comptime!(UNITS / 4) / 2;
    let word = (tile * comptime!(g.groups * row_tiles) + down) * UNITS + unit;
    (word, (2 * (window % 2 * tall + row % tall)) as u32)
}

/// The four numbers of one window of the gradient of the convolution `g` before its activation, from that of the maximum: `seen`.
#[cube(launch)]
pub(crate) fn unpool_places(
    ledger: &mut [u32],
    seen: &[f32],
    places: &[u32],
    dy: &[f32],
    to: &mut [f32],
    length: u32,
    #[comptime] g: Geometry,
    #[comptime] activation: Activation,
    #[comptime] form: Form,
) {
    enter(ledger);
    let index = position();
    if index < length as usize {
        let windows = comptime!(g.area() / 4);
        let plane = index / windows;
        let window = index % windows;
        let y = window / comptime!(g.columns / 2);
        let x = window % comptime!(g.columns / 2);
        let channels = comptime!(g.groups * g.outer);
        let (word, bit) = match comptime!(form) {
            Form::Tiles => word_of_tile(plane / channels, plane % channels, window, g),
            Form::Lanes => lanes::convolution::word_of_lane(plane, y, x, g),
        };
        let place = (places[word] >> bit & 3u32) as usize;
        let gradient = dy[index] * derivative(seen[index], activation);
        let start = plane * comptime!(g.area()) + y * comptime!(2 * g.columns) + x * 2;
        #[unroll]
        for tap in 0..4 {
            to[start + comptime!(tap / 2 * g.columns + tap % 2)] =
                select(place == tap, gradient, 0.0f32);
        }
    }
}
