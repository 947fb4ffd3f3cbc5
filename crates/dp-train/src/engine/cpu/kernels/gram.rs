//! Ghost norms: the norm of a layer's per-example gradient without the gradient.
//!
//! The gradient of a convolution is `sum_p a_p g_p'` over output pixels `p`, with the window `a_p`
//! and the output gradient `g_p`. So its squared norm, that of the bias included, is
//!
//! ```text
//! sum_{p,q} (1 + <a_p, a_q>) <g_p, g_q>
//! ```
//!
//! For a linear layer there is one `p`. For a 3 x 3 convolution the windows overlap, and
//! `<a_p, a_q>` is a sum of 9 products `<x_u, x_v>` of pixels: with `T` pixels both Gram matrices
//! cost `T^2 (in + out)` multiplications. That is the cost rule: see [`pays`].

use crate::engine::cost::MULTIPLICATIONS_PER_WEIGHT;
use crate::engine::cpu::kernels::geometry::Geometry;
use crate::engine::cpu::kernels::plane::{Plane, Size};
use crate::engine::cpu::kernels::reduce::squared_norm;
use crate::engine::cpu::kernels::tile::{COLUMNS, Product, Rows, Start, Steps, product};
use crate::engine::cpu::kernels::vector::{Isa, kernel};

/// Relative rounding error that is allowed for in a squared norm, as a part of what it would be
/// without cancellation. A norm that rounding made too small would clip too little.
const GUARD: f64 = 1.0 / (1 << 20) as f64;

/// Whether Gram matrices are cheaper than the gradient of one example.
///
/// Holding the gradient moves `weights` floats about five times between caches; the multiplications
/// are the same either way, for the sum needs them too. For the ConvNet on 32 x 32 images this
/// picks the linear layers and the 8 x 8 convolutions, 79 % of the weights.
pub(crate) fn pays(geometry: &Geometry, is_winograd: bool) -> bool {
    let positions = geometry.positions();
    if positions == 1 {
        return true;
    }
    let (inner, outer) = (geometry.planes.input.pitch, geometry.planes.output.pitch);
    let weights = geometry.kernel.area() * inner * outer;
    // The overlap of windows is written for 3 x 3 windows of stride 1 and padding 1.
    is_winograd
        && positions <= MOST_PIXELS
        && positions * positions * (inner + outer) < MULTIPLICATIONS_PER_WEIGHT * weights
}

/// Buffers for the Gram matrices of one example.
#[derive(Debug, Default)]
pub(crate) struct Grams {
    transposed: Vec<f32>,
    inputs: Vec<f32>,
    gradients: Vec<f32>,
}

impl Grams {
    /// The squared norm of one example's gradient of weights and bias, rounded up.
    pub(crate) fn squared_norm(
        &mut self,
        isa: Isa,
        geometry: &Geometry,
        x: &[f32],
        dy: &[f32],
    ) -> f64 {
        let (input, gradient) = (&geometry.planes.input, &geometry.planes.output_gradient);
        if geometry.positions() == 1 {
            let mut window = 0.0;
            for y in 0..geometry.kernel.height {
                let shift = input.border - geometry.padding;
                let at = input.bordered(y + shift, shift);
                let line = &x[at..at + geometry.kernel.width * input.pitch];
                window += squared_norm(isa, line);
            }
            let at = gradient.pixel(0, 0);
            return (1.0 + window) * squared_norm(isa, &dy[at..at + gradient.pitch]);
        }
        gram(isa, input, x, &mut self.transposed, &mut self.inputs);
        gram(isa, gradient, dy, &mut self.transposed, &mut self.gradients);
        let (sum, bound, reach) = overlap(isa, input.size(), &self.inputs, &self.gradients);
        // Squares of output gradients that vanish in f32 may stand beside huge inputs.
        let vanished = gradient.pitch as f64 * f64::from(f32::MIN_POSITIVE) * reach * reach;
        // The sum can be negative by rounding; what is not a number must stay that.
        sum.abs() + GUARD * bound * bound + vanished
    }
}

/// `target[p][q] = <x_p, x_q>` for the pixels of an image, rows filled up to whole tiles.
fn gram(isa: Isa, plane: &Plane, x: &[f32], transposed: &mut Vec<f32>, target: &mut Vec<f32>) {
    let pixels = plane.height * plane.width;
    let pitch = pixels.next_multiple_of(COLUMNS);
    // The columns that fill up the last tile hold anything: nobody reads their results.
    transposed.resize(transposed.len().max(plane.pitch * pitch), 0.0);
    target.resize(target.len().max(pixels * pitch), 0.0);
    for p in 0..pixels {
        let at = plane.pixel(p / plane.width, p % plane.width);
        for (c, value) in x[at..at + plane.pitch].iter().enumerate() {
            transposed[c * pitch + p] = *value;
        }
    }
    for line in 0..plane.height {
        let at = plane.pixel(line, 0);
        for first in (0..plane.width).step_by(CHUNK) {
            let count = CHUNK.min(plane.width - first);
            let mut rows = [0; CHUNK];
            let mut results = [0; CHUNK];
            for i in 0..count {
                rows[i] = (at + (first + i) * plane.pitch) as u32;
                results[i] = ((line * plane.width + first + i) * pitch) as u32;
            }
            let groups: [u32; CHUNK] = std::array::from_fn(|i| (i * COLUMNS) as u32);
            for group in (0..pitch / COLUMNS).step_by(CHUNK) {
                let columns = CHUNK.min(pitch / COLUMNS - group);
                product(
                    isa,
                    Product {
                        samples: 1,
                        a: x,
                        a_rows: Rows { offsets: &rows[..count], stride: 0 },
                        b: &transposed[group * COLUMNS..],
                        b_group: COLUMNS,
                        sum: [Steps::ONCE, Steps::ONCE, Steps::new(plane.pitch, 1, pitch)],
                        start: Start::Zero,
                        relu: false,
                        c: &mut target[group * COLUMNS..],
                        c_rows: Rows { offsets: &results[..count], stride: 0 },
                        columns: &groups[..columns],
                    },
                );
            }
        }
    }
}

/// Rows or groups of columns of one product here.
const CHUNK: usize = 12;

kernel! {
    /// `sum_{p,q} (1 + sum_k s[p+k][q+k]) g[p][q]` over the 3 x 3 shifts `k` that stay inside the
    /// image; `sum_p |a_p| |g_p|`, which bounds its root; and `sum_p |a_p|`. O(9 T^2).
    fn overlap<V>(size: Size, s: &[f32], g: &[f32]) -> (f64, f64, f64) {
        let Size { height, width } = size;
        let pixels = height * width;
        let pitch = pixels.next_multiple_of(COLUMNS);
        let (mut total, mut bound, mut reach) = (0.0, 0.0, 0.0);
        let mut line = [0.0_f32; MOST_PIXELS];
        for p in 0..pixels {
            let line = &mut line[..pixels];
            line.fill(1.0);
            for ky in 0..3 {
                for kx in 0..3 {
                    let (y, x) = (p / width + ky, p % width + kx);
                    if y < 1 || y > height || x < 1 || x > width {
                        continue;
                    }
                    let row = &s[((y - 1) * width + x - 1) * pitch..][..pixels];
                    // The lines of q whose shifted line exists, and in each the columns.
                    let first = usize::from(ky == 0);
                    let last = height - usize::from(ky == 2);
                    let left = usize::from(kx == 0);
                    let right = width - usize::from(kx == 2);
                    for qy in first..last {
                        let to = &mut line[qy * width + left..qy * width + right];
                        let from = &row[(qy + ky - 1) * width + left + kx - 1..][..right - left];
                        to.iter_mut().zip(from).for_each(|(t, f)| *t += f);
                    }
                }
            }
            let g = &g[p * pitch..][..pixels];
            total += line.iter().zip(g).map(|(a, g)| f64::from(*a) * f64::from(*g)).sum::<f64>();
            bound += (f64::from(line[p]) * f64::from(g[p])).sqrt();
            reach += f64::from(line[p]).sqrt();
        }
        (total, bound, reach)
    }
}

/// The largest image for which Gram matrices are considered.
pub(crate) const MOST_PIXELS: usize = 256;
