//! Group normalization: within one example, never across a batch.
//!
//! ```text
//! n  = (x - mean) / std             y = scale n + shift           std^2 = variance + 1e-5
//! dx = (e - mean(e) - n mean(e n)) / std                          e = scale dy
//! ```
//!
//! Means are over all pixels and channels of a group. Sixteen channels go side by side; the sums of a
//! line are f32, those of lines and channels f64.

use std::ops::Range;

use crate::engine::cpu::kernels::plane::{Plane, Planes};
use crate::engine::cpu::kernels::tile::COLUMNS;
use crate::engine::cpu::kernels::vector::{Isa, kernel};

/// PyTorch's default.
const EPSILON: f64 = 1e-5;

/// The geometry of one group normalization.
#[derive(Debug)]
pub(crate) struct GroupNorm {
    pub(crate) groups: usize,
    /// Whether the input gradient goes on to what ReLU made the input from.
    pub(crate) through_relu: bool,
    /// In the flat vector of parameters.
    pub(crate) scale: Range<usize>,
    pub(crate) shift: Range<usize>,
    /// In the packed gradient: scale, then shift, each one pixel long.
    pub(crate) packed: Range<usize>,
    pub(crate) planes: Planes,
}

/// What the passes of one group normalization keep of every example of a block, each number one per channel.
#[derive(Debug, Default)]
pub(crate) struct Moments {
    /// Of the group that a channel belongs to: the mean, then the reciprocal of the standard deviation.
    normal: Vec<f32>,
    /// The gradient of one example's scale and shift, in the packed order.
    gradient: Vec<f32>,
    /// Sums over the pixels of one example, two rows.
    sums: Vec<f64>,
    /// Factors and terms of one example, three rows.
    terms: Vec<f32>,
}

impl GroupNorm {
    /// What a block of `samples` examples keeps.
    pub(crate) fn moments(&self, samples: usize) -> Moments {
        let pitch = self.planes.input.pitch;
        Moments {
            normal: vec![0.0; samples * 2 * pitch],
            gradient: vec![0.0; samples * 2 * pitch],
            sums: vec![0.0; 2 * pitch],
            terms: vec![0.0; 3 * pitch],
        }
    }

    /// The mean over a group for each of its channels, from sums over the pixels of every channel.
    fn share(&self, sums: &mut [f64]) {
        let plane = &self.planes.input;
        let size = plane.channels / self.groups;
        let count = (size * plane.height * plane.width) as f64;
        for group in sums[..plane.channels].chunks_exact_mut(size) {
            let mean = group.iter().sum::<f64>() / count;
            group.fill(mean);
        }
    }

    /// `y = scale (x - mean) / std + shift` for `samples` examples; keeps means and deviations.
    pub(crate) fn forward(
        &self,
        isa: Isa,
        samples: usize,
        parameters: &[f32],
        (x, y): (&[f32], &mut [f32]),
        moments: &mut Moments,
    ) {
        let Planes { input, output, .. } = &self.planes;
        let (pitch, channels) = (input.pitch, input.channels);
        let Moments { normal, sums, terms, .. } = moments;
        let sums = &mut sums[..pitch];
        let (factors, rest) = terms.split_at_mut(pitch);
        let shifts = &mut rest[..pitch];
        shifts[..channels].copy_from_slice(&parameters[self.shift.clone()]);
        let scale = &parameters[self.scale.clone()];
        let pairs = x.chunks_exact(input.len()).zip(y.chunks_exact_mut(output.len()));
        for ((x, y), normal) in pairs.zip(normal.chunks_exact_mut(2 * pitch)).take(samples) {
            let (mean, inverse) = normal.split_at_mut(pitch);
            mean.fill(0.0);
            add_lines(isa, input, x, mean, false, sums);
            self.share(sums);
            mean.iter_mut().zip(&*sums).for_each(|(mean, &m)| *mean = m as f32);
            add_lines(isa, input, x, mean, true, sums);
            self.share(sums);
            for c in 0..channels {
                let reciprocal = 1.0 / (sums[c] + EPSILON).sqrt();
                inverse[c] = reciprocal as f32;
                factors[c] = (reciprocal * f64::from(scale[c])) as f32;
            }
            normalize(isa, (input, output), x, [mean, factors, shifts], y);
        }
    }

    /// The gradients of scale and shift, which it keeps, and that of the input if there is room for it.
    pub(crate) fn backward(
        &self,
        isa: Isa,
        samples: usize,
        parameters: &[f32],
        (x, dy): (&[f32], &[f32]),
        mut dx: Option<&mut [f32]>,
        moments: &mut Moments,
    ) {
        let Planes { input, input_gradient, output_gradient, .. } = &self.planes;
        let (pitch, channels) = (input.pitch, input.channels);
        let Moments { normal, gradient, sums, terms } = moments;
        let scale = &parameters[self.scale.clone()];
        let kept = normal.chunks_exact(2 * pitch).zip(gradient.chunks_exact_mut(2 * pitch));
        for (sample, (normal, gradient)) in kept.enumerate().take(samples) {
            let x = &x[sample * input.len()..][..input.len()];
            let dy = &dy[sample * output_gradient.len()..][..output_gradient.len()];
            let (mean, inverse) = normal.split_at(pitch);
            add_products(isa, (input, output_gradient), (x, dy), mean, sums);
            let (d_scale, d_shift) = gradient.split_at_mut(pitch);
            let (products, plain) = sums.split_at_mut(pitch);
            for c in 0..channels {
                products[c] *= f64::from(inverse[c]);
                d_scale[c] = products[c] as f32;
                d_shift[c] = plain[c] as f32;
                products[c] *= f64::from(scale[c]);
                plain[c] *= f64::from(scale[c]);
            }
            let (Some(target), Some(dx)) = (input_gradient, &mut dx) else { continue };
            self.share(products);
            self.share(plain);
            // dx = a dy + b (x - mean) + c.
            let (a, rest) = terms.split_at_mut(pitch);
            let (b, c) = rest.split_at_mut(pitch);
            for i in 0..channels {
                let inverse = f64::from(inverse[i]);
                a[i] = (inverse * f64::from(scale[i])) as f32;
                b[i] = (-inverse * inverse * products[i]) as f32;
                c[i] = (-inverse * plain[i]) as f32;
            }
            let dx = &mut dx[sample * target.len()..][..target.len()];
            let planes = (input, output_gradient, target);
            combine(isa, planes, (x, dy), [mean, a, b, c], self.through_relu, dx);
        }
    }

    /// One example's gradient of scale and shift, in the packed order, as the backward pass left it.
    pub(crate) fn gradient<'a>(&self, moments: &'a Moments, sample: usize) -> &'a [f32] {
        let length = 2 * self.planes.input.pitch;
        &moments.gradient[sample * length..][..length]
    }

    /// Writes a packed gradient in PyTorch's order into the flat vector.
    pub(crate) fn unpack(&self, packed: &[f64], flat: &mut [f64]) {
        let (scale, shift) = packed.split_at(packed.len() / 2);
        let channels = self.scale.len();
        flat[self.scale.clone()].copy_from_slice(&scale[..channels]);
        flat[self.shift.clone()].copy_from_slice(&shift[..channels]);
    }
}

/// The sixteen floats of a slice from `at` on.
#[inline(always)]
fn block(x: &[f32], at: usize) -> [f32; COLUMNS] {
    let mut block = [0.0; COLUMNS];
    block.copy_from_slice(&x[at..at + COLUMNS]);
    block
}

kernel! {
    /// The sum of `x - mean`, or of its square, of every channel over the pixels of an example.
    fn add_lines<V>(plane: &Plane, x: &[f32], mean: &[f32], squared: bool, sums: &mut [f64]) {
        for channel in (0..plane.pitch).step_by(COLUMNS) {
            let mean = block(mean, channel);
            let mut total = [0.0_f64; COLUMNS];
            for y in 0..plane.height {
                let mut sum = [0.0_f32; COLUMNS];
                for pixel in x[plane.row(y)].chunks_exact(plane.pitch) {
                    let x = block(pixel, channel);
                    for i in 0..COLUMNS {
                        let centred = x[i] - mean[i];
                        sum[i] += if squared { centred * centred } else { centred };
                    }
                }
                for i in 0..COLUMNS {
                    total[i] += f64::from(sum[i]);
                }
            }
            sums[channel..channel + COLUMNS].copy_from_slice(&total);
        }
    }
}

kernel! {
    /// `y = (x - mean) factor + shift`, with one of each per channel.
    fn normalize<V>(
        planes: (&Plane, &Plane),
        x: &[f32],
        terms: [&[f32]; 3],
        target: &mut [f32],
    ) {
        let (from, to) = planes;
        let pitch = from.pitch;
        let [mean, factor, shift] = terms.map(|term| &term[..pitch]);
        for y in 0..from.height {
            let pixels = x[from.row(y)].chunks_exact(pitch);
            for (x, out) in pixels.zip(target[to.row(y)].chunks_exact_mut(pitch)) {
                for c in 0..pitch {
                    out[c] = (x[c] - mean[c]) * factor[c] + shift[c];
                }
            }
        }
    }
}

kernel! {
    /// The sums of `dy (x - mean)`, then those of `dy`, of every channel over the pixels of an example.
    fn add_products<V>(
        planes: (&Plane, &Plane),
        values: (&[f32], &[f32]),
        mean: &[f32],
        sums: &mut [f64],
    ) {
        let ((plane, gradient), (x, dy)) = (planes, values);
        let pitch = plane.pitch;
        let (products, plain) = sums.split_at_mut(pitch);
        for channel in (0..pitch).step_by(COLUMNS) {
            let mean = block(mean, channel);
            let (mut all_products, mut all_plain) = ([0.0_f64; COLUMNS], [0.0_f64; COLUMNS]);
            for y in 0..plane.height {
                let (mut product, mut sum) = ([0.0_f32; COLUMNS], [0.0_f32; COLUMNS]);
                let pixels = x[plane.row(y)].chunks_exact(pitch);
                for (x, d) in pixels.zip(dy[gradient.row(y)].chunks_exact(pitch)) {
                    let (x, d) = (block(x, channel), block(d, channel));
                    for i in 0..COLUMNS {
                        product[i] += d[i] * (x[i] - mean[i]);
                        sum[i] += d[i];
                    }
                }
                for i in 0..COLUMNS {
                    all_products[i] += f64::from(product[i]);
                    all_plain[i] += f64::from(sum[i]);
                }
            }
            products[channel..channel + COLUMNS].copy_from_slice(&all_products);
            plain[channel..channel + COLUMNS].copy_from_slice(&all_plain);
        }
    }
}

kernel! {
    /// `dx = a dy + b (x - mean) + c`, with one of each per channel; zero where ReLU made `x` zero if asked for.
    fn combine<V>(
        planes: (&Plane, &Plane, &Plane),
        values: (&[f32], &[f32]),
        terms: [&[f32]; 4],
        through_relu: bool,
        dx: &mut [f32],
    ) {
        let ((plane, gradient, target), (x, dy)) = (planes, values);
        let pitch = plane.pitch;
        let [mean, a, b, c] = terms.map(|term| &term[..pitch]);
        for y in 0..plane.height {
            let pixels = x[plane.row(y)].chunks_exact(pitch);
            let pixels = pixels.zip(dy[gradient.row(y)].chunks_exact(pitch));
            for ((x, d), out) in pixels.zip(dx[target.row(y)].chunks_exact_mut(pitch)) {
                for i in 0..pitch {
                    let value = a[i] * d[i] + (b[i] * (x[i] - mean[i]) + c[i]);
                    out[i] = if !through_relu || x[i] > 0.0 { value } else { 0.0 };
                }
            }
        }
    }
}
