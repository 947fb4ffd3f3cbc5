//! The end of a step: sums of parts, noise, momentum, decay and the new parameters, in one kernel.
//!
//! Parts and noise are added as whole multiples of a power of two, in 64 bits: exactly, in any order, on any device and
//! whatever its compiler takes for the same (which is why no two-float sums are used: fast arithmetic on floats would take
//! them apart). So the sum with its noise lies on a grid that is the plan's own, and what is done to it afterwards in f32
//! shows nothing more: see [`Mechanism`](crate::mechanism::Mechanism).

use cubecl::prelude::*;

use super::ledger::{FAILED, STAMP, enter};
use super::position::position;

/// `a + b` of two whole numbers of 64 bits, each a low and a high word in two's complement.
#[cube]
fn add(low: u32, high: u32, more: u32, more_high: u32) -> (u32, u32) {
    let sum = low + more;
    let carry = select(sum < low, 1u32, 0u32);
    (sum, high + more_high + carry)
}

/// `-a`, or `a` unless `turn`.
#[cube]
fn turned(low: u32, high: u32, turn: bool) -> (u32, u32) {
    let minus = (low ^ 0xffff_ffffu32) + 1u32;
    let carry = select(minus == 0u32, 1u32, 0u32);
    (select(turn, minus, low), select(turn, (high ^ 0xffff_ffffu32) + carry, high))
}

/// `x / 2^exponent`, rounded to nearest, and whether it is a number of less than 62 bits.
#[cube]
fn whole(x: f32, exponent: i32) -> (u32, u32, bool) {
    let bits = u32::reinterpret(x);
    let biased = bits >> 23u32 & 0xffu32;
    let digits = bits & 0x7f_ffffu32 | 0x80_0000u32;
    let shift = biased as i32 - 150 - exponent;
    let fits = biased < 255u32 && shift <= 38;
    let mut low = 0u32;
    let mut high = 0u32;
    // What is below the smallest normal number counts as zero.
    if biased > 0u32 && fits && shift > -25 {
        if shift >= 32 {
            high = digits << (shift - 32) as u32;
        } else if shift > 0 {
            low = digits << shift as u32;
            high = digits >> (32 - shift) as u32;
        } else if shift == 0 {
            low = digits;
        } else {
            let right = (0 - shift) as u32;
            low = (digits + (1u32 << (right - 1u32))) >> right;
        }
    }
    let (low, high) = turned(low, high, bits >> 31u32 == 1u32);
    (low, high, fits)
}

/// As an f32, rounded twice.
#[cube]
fn float(low: u32, high: u32) -> f32 {
    let below = high >> 31u32 == 1u32;
    let (low, high) = turned(low, high, below);
    let size = f32::cast_from(high) * 4294967296.0f32 + f32::cast_from(low);
    select(below, 0.0f32 - size, size)
}

/// How many bits finer than the noise the sums of parts are.
pub(crate) const FINER: u32 = 4;
const HALF: u32 = 1 << (FINER - 1);
const REST: u32 = 32 - FINER;
/// What a negative number begins with when it is shifted.
const SIGN: u32 = u32::MAX << REST;

/// The nearest multiple of `2^FINER`, over `2^FINER`, of a number of less than 62 bits.
#[cube]
fn coarser(low: u32, high: u32) -> (u32, u32) {
    let raised = low + HALF;
    let high = high + select(raised < low, 1u32, 0u32);
    let sign = select(high >> 31u32 == 1u32, SIGN, 0u32);
    (raised >> FINER | high << REST, high >> FINER | sign)
}

/// One parameter: `x = (sum of parts + noise) scale`, `m = momentum m + x`, `theta = decay theta - rate m`. `noise` are low
/// words and behind them high ones if `wide`; otherwise the sign goes on. Last comes its stamp. Parts are rounded to
/// multiples of `2^(exponent - FINER)`, and their sum to those of `2^exponent`, which the noise is. The ledger says so if
/// the noise's stamp or the sums' is another, or a part is not finite.
#[cube(launch)]
pub(crate) fn update(
    ledger: &mut [u32],
    parts: &[f32],
    noise: &[u32],
    parameters: &mut [f32],
    momenta: &mut [f32],
    length: u32,
    stamp: u32,
    count: u32,
    exponent: i32,
    scale: f32,
    momentum: f32,
    decay: f32,
    rate: f32,
    #[comptime] wide: bool,
) {
    enter(ledger);
    let index = position();
    let length = length as usize;
    if index == 0 {
        // An empty batch has no pass, and so no stamp.
        let stale = count > 0u32 && ledger[STAMP] != stamp;
        if noise[length * comptime!(if wide { 2usize } else { 1usize })] != stamp || stale {
            ledger[FAILED] = 1u32;
        }
    }
    if index < length {
        let mut low = 0u32;
        let mut high = 0u32;
        for part in 0..count {
            let part = parts[part as usize * length + index];
            let (more, more_high, fits) = whole(part, exponent - comptime!(FINER as i32));
            let (sum, sum_high) = add(low, high, more, more_high);
            low = sum;
            high = sum_high;
            if !fits {
                ledger[FAILED] = 1u32;
            }
        }
        let (low, high) = coarser(low, high);
        let more = noise[index];
        let mut more_high = select(more >> 31u32 == 1u32, 0xffff_ffffu32, 0u32);
        if wide {
            more_high = noise[length + index];
        }
        let (low, high) = add(low, high, more, more_high);
        let moved = momentum * momenta[index] + float(low, high) * scale;
        momenta[index] = moved;
        parameters[index] = decay * parameters[index] - rate * moved;
    }
}
