//! Pooling. A unit makes one number; where the largest entry of a window lies is found again on the way back.

use cubecl::prelude::*;

use super::activation::{Activation, activate, derivative};
use super::elementwise::position;
use super::geometry::Geometry;

/// What becomes of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Pooling {
    Max,
    Mean,
}

/// Whether `a` goes before `b` as the largest entry: what is not a number goes before all numbers.
#[cube]
fn goes_before(a: f32, b: f32) -> bool {
    a > b || (u32::reinterpret(a) & 0x7fff_ffffu32) > 0x7f80_0000u32
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
    from: &[f32],
    to: &mut [f32],
    length: u32,
    #[comptime] g: Geometry,
    #[comptime] pooling: Pooling,
    #[comptime] activation: Activation,
) {
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
    from: &[f32],
    dy: &[f32],
    to: &mut [f32],
    length: u32,
    #[comptime] g: Geometry,
    #[comptime] pooling: Pooling,
    #[comptime] activation: Activation,
) {
    let index = position();
    if index < length as usize {
        let channel = index / comptime!(g.plane());
        let plane = channel * comptime!(g.plane());
        let y = index % comptime!(g.plane()) / comptime!(g.width);
        let x = index % comptime!(g.width);
        let mut sum = 0.0f32;
        for tap in 0..comptime!(g.taps()) {
            let ky = tap / comptime!(g.kernel);
            let kx = tap % comptime!(g.kernel);
            let after = y >= ky && x >= kx;
            let row = select(after, y - ky, 0);
            let column = select(after, x - kx, 0);
            if after
                && row % comptime!(g.stride) == 0
                && column % comptime!(g.stride) == 0
                && row / comptime!(g.stride) < comptime!(g.rows)
                && column / comptime!(g.stride) < comptime!(g.columns)
            {
                let oy = row / comptime!(g.stride);
                let ox = column / comptime!(g.stride);
                let gradient = dy[channel * comptime!(g.area()) + oy * comptime!(g.columns) + ox];
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
