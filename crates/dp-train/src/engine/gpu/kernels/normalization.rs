//! Group normalization: mean 0 and variance 1 over a group of channels of one image, then a scale and a shift per channel.
//!
//! A cube handles one group; its channels lie one after the other. Statistics are `[image][group][mean, 1 / deviation]`.

use cubecl::prelude::*;

use super::activation::{Activation, activate, derivative};
use super::geometry::Geometry;
use super::ledger::enter;
use super::product::Place;
use super::reduction::sum_of_units;
use super::{SPAN, UNITS};

/// What is added to the variance.
const EPSILON: f32 = 1e-5;

/// One group of one image. `g.inner` channels in `g.groups` groups.
#[cube(launch)]
pub(crate) fn normalize(
    ledger: &mut [u32],
    from: &[f32],
    parameters: &[f32],
    to: &mut [f32],
    statistics: &mut [f32],
    images: u32,
    #[comptime] g: Geometry,
    #[comptime] at: usize,
    #[comptime] activation: Activation,
) {
    enter(ledger);
    let area = comptime!(g.plane());
    let length = comptime!(g.inner * g.plane());
    let channels = comptime!(g.groups * g.inner);
    let cube = CUBE_POS_Z as usize * SPAN + CUBE_POS_X as usize;
    if cube < images as usize * comptime!(g.groups) {
        let start = cube * length;
        let mut sum = 0.0f32;
        for block in 0..comptime!(length.div_ceil(UNITS)) {
            let index = block * UNITS + UNIT_POS as usize;
            if index < length {
                sum += from[start + index];
            }
        }
        let mean = sum_of_units(sum) * comptime!(1.0 / length as f32);
        let mut squares = 0.0f32;
        for block in 0..comptime!(length.div_ceil(UNITS)) {
            let index = block * UNITS + UNIT_POS as usize;
            if index < length {
                let deviation = from[start + index] - mean;
                squares += deviation * deviation;
            }
        }
        let variance = sum_of_units(squares) * comptime!(1.0 / length as f32);
        let inverse = 1.0f32 / (variance + EPSILON).sqrt();
        let first = cube % comptime!(g.groups) * comptime!(g.inner);
        for block in 0..comptime!(length.div_ceil(UNITS)) {
            let index = block * UNITS + UNIT_POS as usize;
            if index < length {
                let channel = first + index / area;
                let value = (from[start + index] - mean) * inverse * parameters[at + channel];
                to[start + index] =
                    activate(value + parameters[at + channels + channel], activation);
            }
        }
        if UNIT_POS == 0 {
            statistics[2 * cube] = mean;
            statistics[2 * cube + 1] = inverse;
        }
    }
}

/// One group of one example: the gradients of its scales and shifts, means over the views, with the sum of their squares, and,
/// unless the layer is the first with parameters, the gradient of the input.
#[cube(launch)]
#[expect(clippy::too_many_arguments, reason = "buffers and sizes of one kernel")]
pub(crate) fn normalize_back(
    ledger: &mut [u32],
    from: &[f32],
    dy: &[f32],
    parameters: &[f32],
    statistics: &[f32],
    to: &mut [f32],
    held: &mut [f32],
    squares: &mut [f32],
    examples: u32,
    #[comptime] g: Geometry,
    #[comptime] at: usize,
    #[comptime] views: usize,
    #[comptime] place: Place,
    #[comptime] slot: usize,
    #[comptime] slots: usize,
    #[comptime] activation: Activation,
    #[comptime] first_layer: bool,
) {
    enter(ledger);
    let area = comptime!(g.plane());
    let inner = comptime!(g.inner);
    let channels = comptime!(g.groups * g.inner);
    let cube = CUBE_POS_Z as usize * SPAN + CUBE_POS_X as usize;
    if cube < examples as usize * comptime!(g.groups) {
        let example = cube / comptime!(g.groups);
        let group = cube % comptime!(g.groups);
        // Of the scale and the shift of every channel, over the views so far.
        let mut scales = Shared::<[f32]>::new_slice(inner);
        let mut shifts = Shared::<[f32]>::new_slice(inner);
        for view in 0..views {
            let part = (example * views + view) * comptime!(g.groups) + group;
            let start = part * comptime!(g.inner * g.plane());
            let mean = statistics[2 * part];
            let inverse = statistics[2 * part + 1];
            let mut along = 0.0f32;
            let mut level = 0.0f32;
            for channel in 0..inner {
                let mut scale = 0.0f32;
                let mut shift = 0.0f32;
                for block in 0..comptime!(area.div_ceil(UNITS)) {
                    let pixel = block * UNITS + UNIT_POS as usize;
                    if pixel < area {
                        let index = start + channel * area + pixel;
                        let gradient = dy[index];
                        shift += gradient;
                        scale += gradient * ((from[index] - mean) * inverse);
                    }
                }
                let scale = sum_of_units(scale);
                let shift = sum_of_units(shift);
                let gamma = parameters[at + group * inner + channel];
                along += gamma * scale;
                level += gamma * shift;
                if UNIT_POS == 0 {
                    let before_scale = select(view == 0, 0.0f32, scales[channel]);
                    let before_shift = select(view == 0, 0.0f32, shifts[channel]);
                    scales[channel] = before_scale + scale;
                    shifts[channel] = before_shift + shift;
                }
            }
            if !first_layer {
                let along = along * comptime!(1.0 / (g.inner * g.plane()) as f32);
                let level = level * comptime!(1.0 / (g.inner * g.plane()) as f32);
                for block in 0..comptime!((g.inner * g.plane()).div_ceil(UNITS)) {
                    let index = block * UNITS + UNIT_POS as usize;
                    if index < comptime!(g.inner * g.plane()) {
                        let gamma = parameters[at + group * inner + index / area];
                        let value = from[start + index];
                        let normal = (value - mean) * inverse;
                        let gradient =
                            inverse * (gamma * dy[start + index] - level - normal * along);
                        to[start + index] = match comptime!(activation) {
                            Activation::None => gradient,
                            _ => gradient * derivative(value, activation),
                        };
                    }
                }
            }
        }
        if UNIT_POS == 0 {
            let mut square = 0.0f32;
            for channel in 0..inner {
                let scale = scales[channel] * comptime!(1.0 / views as f32);
                let shift = shifts[channel] * comptime!(1.0 / views as f32);
                let index =
                    example * comptime!(place.row) + comptime!(place.at) + group * inner + channel;
                held[index] = scale;
                held[index + channels] = shift;
                square += scale * scale;
                square += shift * shift;
            }
            squares[example * slots + slot + group] = square;
        }
    }
}
