//! Group normalization: within one example, never across a batch.

use std::ops::Range;

use crate::engine::cpu::kernels::plane::{Plane, Planes};
use crate::engine::cpu::kernels::reduce::Target;

/// PyTorch's default.
const EPSILON: f64 = 1e-5;

/// The geometry of one group normalization.
#[derive(Debug)]
pub(crate) struct GroupNorm {
    pub(crate) groups: usize,
    /// In the flat vector of parameters.
    pub(crate) scale: Range<usize>,
    pub(crate) shift: Range<usize>,
    /// In the packed gradient: scale, then shift, each one pixel long.
    pub(crate) packed: Range<usize>,
    pub(crate) planes: Planes,
}

impl GroupNorm {
    /// Mean and reciprocal standard deviation of one group, in f64. O(group).
    fn moments(&self, plane: &Plane, x: &[f32], channels: Range<usize>) -> (f64, f64) {
        let count = (channels.len() * plane.height * plane.width) as f64;
        let total = |f: &dyn Fn(f64) -> f64| {
            let mut sum = 0.0;
            for y in 0..plane.height {
                for pixel in x[plane.row(y)].chunks_exact(plane.pitch) {
                    sum += pixel[channels.clone()].iter().map(|&x| f(f64::from(x))).sum::<f64>();
                }
            }
            sum / count
        };
        let mean = total(&|x| x);
        let variance = total(&|x| (x - mean).powi(2));
        (mean, 1.0 / (variance + EPSILON).sqrt())
    }

    fn channels(&self, plane: &Plane, group: usize) -> Range<usize> {
        let size = plane.channels / self.groups;
        group * size..(group + 1) * size
    }

    /// `y = scale (x - mean) / std + shift` for one example.
    pub(crate) fn forward(&self, parameters: &[f32], x: &[f32], y: &mut [f32]) {
        let Planes { input, output, .. } = &self.planes;
        let (scale, shift) = (&parameters[self.scale.clone()], &parameters[self.shift.clone()]);
        for group in 0..self.groups {
            let channels = self.channels(input, group);
            let (mean, inverse) = self.moments(input, x, channels.clone());
            for row in 0..input.height {
                for column in 0..input.width {
                    let (from, to) = (input.pixel(row, column), output.pixel(row, column));
                    for c in channels.clone() {
                        let normal = (f64::from(x[from + c]) - mean) * inverse;
                        y[to + c] = normal as f32 * scale[c] + shift[c];
                    }
                }
            }
        }
    }

    /// The gradients of one example: of the packed parameters, and of the input if asked for.
    ///
    /// With `n = (x - mean) / std` and `e = scale dy`, `dx = (e - mean(e) - n mean(e n)) / std`.
    pub(crate) fn backward(
        &self,
        parameters: &[f32],
        x: &[f32],
        dy: &[f32],
        mut dx: Option<&mut [f32]>,
        target: Target<'_>,
    ) {
        let Planes { input, input_gradient, output_gradient, .. } = &self.planes;
        let Target { values: target, keep } = target;
        let scale = &parameters[self.scale.clone()];
        let (d_scale, d_shift) = target.split_at_mut(input.pitch);
        if !keep {
            d_scale.fill(0.0);
            d_shift.fill(0.0);
        }
        let positions =
            || (0..input.height * input.width).map(|i| (i / input.width, i % input.width));
        for group in 0..self.groups {
            let channels = self.channels(input, group);
            let (mean, inverse) = self.moments(input, x, channels.clone());
            let (mut mean_e, mut mean_en) = (0.0, 0.0);
            for c in channels.clone() {
                let (mut sum, mut sum_n) = (0.0, 0.0);
                for (row, column) in positions() {
                    let d = f64::from(dy[output_gradient.pixel(row, column) + c]);
                    let n = (f64::from(x[input.pixel(row, column) + c]) - mean) * inverse;
                    sum += d;
                    sum_n += d * n;
                }
                d_scale[c] += sum_n as f32;
                d_shift[c] += sum as f32;
                mean_e += f64::from(scale[c]) * sum;
                mean_en += f64::from(scale[c]) * sum_n;
            }
            let (Some(input_gradient), Some(dx)) = (input_gradient, &mut dx) else { continue };
            let count = (channels.len() * input.height * input.width) as f64;
            (mean_e, mean_en) = (mean_e / count, mean_en / count);
            for (row, column) in positions() {
                for c in channels.clone() {
                    let d = f64::from(dy[output_gradient.pixel(row, column) + c]);
                    let n = (f64::from(x[input.pixel(row, column) + c]) - mean) * inverse;
                    let e = f64::from(scale[c]) * d;
                    let value = (e - mean_e - n * mean_en) * inverse;
                    dx[input_gradient.pixel(row, column) + c] = value as f32;
                }
            }
        }
    }

    /// Writes a packed gradient in PyTorch's order into the flat vector.
    pub(crate) fn unpack(&self, packed: &[f64], flat: &mut [f64]) {
        let (scale, shift) = packed.split_at(packed.len() / 2);
        let channels = self.scale.len();
        flat[self.scale.clone()].copy_from_slice(&scale[..channels]);
        flat[self.shift.clone()].copy_from_slice(&shift[..channels]);
    }
}
