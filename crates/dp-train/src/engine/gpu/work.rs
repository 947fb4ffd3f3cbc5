//! What a step asks of a device, counted from the sizes of its kernels.

use super::kernels::UNITS;
use super::kernels::geometry::{Geometry, tall};
use super::kernels::pool::words;
use super::kernels::{DEEP, SIDE, gram};
use super::network::{Clipping, Network, Op, weight_tiles};
use super::pass::PART;

/// Work per image of a private step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Work {
    /// Floating-point operations of all products, those with the empty parts of tiles included: two per multiplication
    /// and addition.
    pub flops: f64,
    /// Bytes of memory, each buffer counted once per kernel that reads or writes it, and parameters not at all.
    pub bytes: f64,
}

impl Work {
    /// That of a network, forward and back, clipped.
    pub(super) fn of(network: &Network) -> Self {
        let mut work = Self::default();
        let views = network.views as f64;
        let (mut numbers, mut flops) = (0.0, 0.0);
        for (i, op) in network.ops.iter().enumerate() {
            let (input, output) = (network.lengths[i] as f64, network.lengths[i + 1] as f64);
            let back = i > network.first;
            // What enters is read, what leaves is written; between a convolution and a maximum that it takes there is nothing.
            let read = if matches!(op, Op::Pool { done: true, .. }) { 0.0 } else { input };
            let wrote =
                if matches!(op, Op::Convolution { pooled: true, .. }) { 0.0 } else { output };
            numbers += read + wrote;
            match *op {
                Op::Convolution { g, clipping, pooled, .. } => {
                    if pooled {
                        // Written here, read on the way back.
                        numbers += 2.0 * words(&g, 1, network.form.of(&g)) as f64;
                    }

                    flops += product(&g, g.outer, g.inner, g.area());
                    if back {
                        flops += product(&g, g.inner, g.outer, g.plane());
                        numbers += 2.0 * input + output;
                    }
                    let (columns, rows) = weight_tiles(&g);
                    let tile = (UNITS * SIDE * tall(g.outer)) as f64;
                    // Terms are the positions of one example, or of a whole part.
                    let positions = match clipping {
                        Clipping::Held { .. } => padded(g.area(), DEEP),
                        Clipping::Ghost { .. } => padded(PART * g.area(), DEEP) / PART as f64,
                    };
                    flops += 2.0 * (columns * rows) as f64 * tile * positions;
                    let weights = (g.weights() + g.groups * g.outer) as f64 / views;
                    numbers += input + output;
                    match clipping {
                        Clipping::Held { .. } => numbers += weights * (2.0 + 1.0 / PART as f64),
                        Clipping::Ghost { .. } => {
                            let all = network.views * g.area();
                            let pairs = gram::pairs_of_tiles(all) as f64 * 1024.0 / views;
                            let terms =
                                g.taps() as f64 * padded(g.inner, DEEP) + padded(g.outer, DEEP);
                            flops += 2.0 * g.groups as f64 * pairs * terms;
                            flops += 2.0 * (g.area() * g.groups * (g.window() + g.outer)) as f64;
                            numbers += input + output + weights / PART as f64;
                        }
                    }
                }
                Op::Normalization { g, .. } => {
                    numbers += 2.0 * input + output;
                    numbers += 4.0 * (g.groups * g.inner) as f64 / views;
                }
                // The maximum, its gradient, and that of the value before it.
                Op::Pool { done: true, .. } if back => numbers += 2.0 * output + input,
                Op::Pool { .. } | Op::Activation if back => numbers += 2.0 * input + output,
                Op::Pool { .. } | Op::Activation => {}
            }
        }
        // Sums of parts on their way into the parameters.
        numbers += network.parameters as f64 / (PART as f64 * views);
        work.flops = flops;
        work.bytes = 4.0 * numbers;
        work
    }
}

fn padded(number: usize, to: usize) -> f64 {
    number.next_multiple_of(to) as f64
}

/// Operations of a product with so many rows per group, terms per tap and columns per image.
fn product(g: &Geometry, rows: usize, terms: usize, columns: usize) -> f64 {
    let rows = padded(rows, SIDE * tall(rows));
    let terms = padded(terms, DEEP.min(terms));
    2.0 * g.groups as f64 * rows * terms * (g.taps() * columns) as f64
}
