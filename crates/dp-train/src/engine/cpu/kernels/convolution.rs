//! Direct convolution: forward, input gradient and weight gradient as products of tiles.
//!
//! A linear layer is the convolution whose window is the whole image: PyTorch's weight `[out, in]`
//! after flattening is `[out, channels, height, width]`.

use std::ops::Range;

use crate::engine::cpu::kernels::plane::Plane;
use crate::engine::cpu::kernels::tile::{COLUMNS, Product, Rows, Start, Steps, product};
use crate::engine::cpu::kernels::vector::{Isa, kernel};
use crate::engine::cpu::kernels::winograd::Winograd;

mod offsets;

mod packing;

pub(crate) use offsets::Offsets;
pub(crate) use packing::Weights;

/// The geometry of one convolution.
#[derive(Debug)]
pub(crate) struct Convolution {
    pub(crate) input: Plane,
    pub(crate) output: Plane,
    /// Layout of the loss's gradient with respect to the input; the first layer needs none.
    pub(crate) input_gradient: Option<Plane>,
    pub(crate) output_gradient: Plane,
    pub(crate) kernel: (usize, usize),
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    /// In the flat vector of parameters.
    pub(crate) weight: Range<usize>,
    pub(crate) bias: Range<usize>,
    /// In the packed gradient: `[kh][kw][in pitch][out pitch]`, then the bias.
    pub(crate) packed: Range<usize>,
    /// The norm comes from Gram matrices; gradients are summed over examples at once.
    pub(crate) ghost: bool,
    pub(crate) winograd: Option<Winograd>,
    pub(crate) offsets: Offsets,
}

/// How the input gradient is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backward {
    /// Stride 1: a convolution of the output gradient with the flipped weights.
    Flipped,
    /// Each output pixel's patch of the input gradient, added where it belongs.
    Patches,
}

impl Convolution {
    /// Zeros that the layout of the output gradient needs around it for a layer of this geometry.
    pub(crate) fn gradient_border(kernel: usize, stride: usize, padding: usize) -> usize {
        if stride == 1 && padding < kernel { kernel - 1 - padding } else { 0 }
    }

    fn backward_kind(&self) -> Backward {
        let dense = self.output.height * self.output.width == 1;
        let fits = self.padding < self.kernel.0.min(self.kernel.1);
        if self.stride == 1 && fits && !dense { Backward::Flipped } else { Backward::Patches }
    }

    /// Output pixels.
    pub(crate) fn positions(&self) -> usize {
        self.output.height * self.output.width
    }

    /// Floats of one window of the input.
    pub(crate) fn window(&self) -> usize {
        self.kernel.0 * self.kernel.1 * self.input.pitch
    }

    /// Floats of scratch that the input gradient of one example needs.
    pub(crate) fn scratch(&self) -> usize {
        self.offsets.patch_rows.len() * self.window()
    }

    /// `y = w * x + b` for `samples` examples.
    pub(crate) fn forward(
        &self,
        isa: Isa,
        samples: usize,
        weights: &Weights,
        x: &[f32],
        y: &mut [f32],
    ) {
        let (kh, kw) = self.kernel;
        let (pitch, line) = (self.input.pitch, self.input.columns * self.input.pitch);
        product(
            isa,
            Product {
                samples,
                a: x,
                a_rows: Rows { offsets: &self.offsets.windows, stride: self.input.len() },
                b: &weights.forward,
                b_group: self.window() * COLUMNS,
                sum: [
                    Steps::ONCE,
                    Steps::new(kh, line, kw * pitch * COLUMNS),
                    Steps::new(kw * pitch, 1, COLUMNS),
                ],
                start: Start::Row(&weights.bias),
                c: y,
                c_rows: Rows { offsets: &self.offsets.outputs, stride: self.output.len() },
                columns: &self.offsets.out_groups,
            },
        );
    }

    /// The gradient with respect to the input from that with respect to the output.
    pub(crate) fn input_gradient(
        &self,
        isa: Isa,
        samples: usize,
        weights: &Weights,
        dy: &[f32],
        (dx, scratch): (&mut [f32], &mut [f32]),
    ) {
        let Some(target) = self.input_gradient else { return };
        let (kh, kw) = self.kernel;
        let (gradient, pitch) = (self.output_gradient, self.output_gradient.pitch);
        if self.backward_kind() == Backward::Flipped {
            product(
                isa,
                Product {
                    samples,
                    a: dy,
                    a_rows: Rows {
                        offsets: &self.offsets.gradient_windows,
                        stride: gradient.len(),
                    },
                    b: &weights.backward,
                    b_group: kh * kw * pitch * COLUMNS,
                    sum: [
                        Steps::ONCE,
                        Steps::new(kh, gradient.columns * pitch, kw * pitch * COLUMNS),
                        Steps::new(kw * pitch, 1, COLUMNS),
                    ],
                    start: Start::Zero,
                    c: dx,
                    c_rows: Rows { offsets: &self.offsets.input_pixels, stride: target.len() },
                    columns: &self.offsets.input_groups,
                },
            );
            return;
        }
        // A linear layer has one output pixel: examples then share a product.
        let together = if self.positions() == 1 { scratch.len() / self.window() } else { 1 };
        for first in (0..samples).step_by(together) {
            let count = together.min(samples - first);
            product(
                isa,
                Product {
                    samples: count,
                    a: &dy[first * gradient.len()..],
                    a_rows: Rows {
                        offsets: &self.offsets.gradient_windows,
                        stride: gradient.len(),
                    },
                    b: &weights.backward,
                    b_group: pitch * COLUMNS,
                    sum: [Steps::ONCE, Steps::ONCE, Steps::new(pitch, 1, COLUMNS)],
                    start: Start::Zero,
                    c: scratch,
                    c_rows: Rows { offsets: &self.offsets.patch_rows, stride: self.scratch() },
                    columns: &self.offsets.patch_groups,
                },
            );
            for sample in 0..count {
                let dx = &mut dx[(first + sample) * target.len()..][..target.len()];
                self.gather(&scratch[sample * self.scratch()..], dx);
            }
        }
    }

    /// Adds every output pixel's patch where its window lies in the input.
    fn gather(&self, patches: &[f32], dx: &mut [f32]) {
        let Some(target) = self.input_gradient else { return };
        let (pitch, (kh, kw)) = (target.pitch, self.kernel);
        for y in 0..target.height {
            dx[target.row(y)].fill(0.0);
        }
        for (position, patch) in patches.chunks_exact(self.window()).enumerate() {
            if position == self.positions() {
                break;
            }
            let (oy, ox) = (position / self.output.width, position % self.output.width);
            for (at, source) in patch.chunks_exact(pitch).enumerate() {
                let (y, x) = (oy * self.stride + at / kw, ox * self.stride + at % kw);
                debug_assert!(at < kh * kw);
                let inside = (self.padding..target.height + self.padding).contains(&y)
                    && (self.padding..target.width + self.padding).contains(&x);
                if inside {
                    let at = target.pixel(y - self.padding, x - self.padding);
                    dx[at..at + pitch].iter_mut().zip(source).for_each(|(d, s)| *d += s);
                }
            }
        }
    }

    /// The gradient of weights and bias, summed over `samples` examples, in the packed order.
    /// Added to `target` if `keep`.
    pub(crate) fn weight_gradient(
        &self,
        isa: Isa,
        samples: usize,
        (x, dy): (&[f32], &[f32]),
        (target, keep): (&mut [f32], bool),
    ) {
        let (weights, bias) = target.split_at_mut(self.window() * self.output.pitch);
        self.bias_gradient(isa, samples, dy, (bias, keep));
        // Pixels whose window floats and gradients fill half of a first-level cache.
        let line = self.output.width * (self.input.pitch * self.stride + COLUMNS);
        let lines = (6144 / line).clamp(1, self.output.height);
        let whole = self.positions() < 64;
        let (chunk, together) = if whole { (self.output.height, samples) } else { (lines, 1) };
        let mut keep = keep;
        for sample in (0..samples).step_by(together.max(1)) {
            for first in (0..self.output.height).step_by(chunk) {
                let count = chunk.min(self.output.height - first);
                self.add_lines(isa, (sample, together), (first, count), (x, dy), (weights, keep));
                keep = true;
            }
        }
    }

    /// The sum of the output gradient over examples and pixels.
    pub(crate) fn bias_gradient(
        &self,
        isa: Isa,
        samples: usize,
        dy: &[f32],
        (target, keep): (&mut [f32], bool),
    ) {
        add_pixels(isa, &self.output_gradient, samples, dy, target, keep);
    }

    /// The part of the weight gradient that some lines of the output make.
    fn add_lines(
        &self,
        isa: Isa,
        (sample, samples): (usize, usize),
        (line, lines): (usize, usize),
        (x, dy): (&[f32], &[f32]),
        (weights, keep): (&mut [f32], bool),
    ) {
        let (input, gradient, stride) = (self.input, self.output_gradient, self.stride);
        let shift = input.border - self.padding;
        let row = self.kernel.1 * input.pitch * gradient.pitch;
        for ky in 0..self.kernel.0 {
            let from = sample * input.len() + input.bordered(line * stride + ky + shift, shift);
            product(
                isa,
                Product {
                    samples: 1,
                    a: &x[from..],
                    a_rows: Rows { offsets: &self.offsets.window_floats, stride: 0 },
                    b: &dy[sample * gradient.len() + gradient.pixel(line, 0)..],
                    b_group: COLUMNS,
                    sum: [
                        Steps::new(samples, input.len(), gradient.len()),
                        Steps::new(
                            lines,
                            stride * input.columns * input.pitch,
                            gradient.columns * gradient.pitch,
                        ),
                        Steps::new(self.output.width, stride * input.pitch, gradient.pitch),
                    ],
                    start: if keep { Start::Kept } else { Start::Zero },
                    c: &mut weights[ky * row..][..row],
                    c_rows: Rows { offsets: &self.offsets.packed_rows, stride: 0 },
                    columns: &self.offsets.out_groups,
                },
            );
        }
    }
}

kernel! {
    /// The sum of the output gradient over examples and pixels.
    fn add_pixels<V>(
        plane: &Plane,
        samples: usize,
        dy: &[f32],
        target: &mut [f32],
        keep: bool,
    ) {
        if !keep {
            target.fill(0.0);
        }
        for sample in 0..samples {
            let dy = &dy[sample * plane.len()..][..plane.len()];
            for y in 0..plane.height {
                for pixel in dy[plane.row(y)].chunks_exact(plane.pitch) {
                    target.iter_mut().zip(pixel).for_each(|(t, d)| *t += d);
                }
            }
        }
    }
}
