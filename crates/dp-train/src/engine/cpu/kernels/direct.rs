//! Direct convolution: forward, input gradient and weight gradient as products of tiles.

use crate::engine::cpu::kernels::geometry::{Backward, Geometry};
use crate::engine::cpu::kernels::offsets::Offsets;
use crate::engine::cpu::kernels::packing::Weights;
use crate::engine::cpu::kernels::plane::Size;
use crate::engine::cpu::kernels::reduce::{Target, add_pixels};
use crate::engine::cpu::kernels::tile::{COLUMNS, Product, Rows, Start, Steps, product};
use crate::engine::cpu::kernels::vector::Isa;

/// A convolution as it is written.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(crate) geometry: Geometry,
    offsets: Offsets,
}

impl Direct {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self { geometry, offsets: Offsets::new(&geometry) }
    }

    /// Floats of scratch that the input gradient of one example needs.
    pub(crate) fn scratch(&self) -> usize {
        self.offsets.patch_rows.len() * self.geometry.window()
    }

    /// `y = w * x + b` for `samples` examples, with ReLU if asked for.
    pub(crate) fn forward(
        &self,
        isa: Isa,
        samples: usize,
        weights: &Weights,
        x: &[f32],
        (y, relu): (&mut [f32], bool),
    ) {
        let Size { height: kh, width: kw } = self.geometry.kernel;
        let (input, output) = (&self.geometry.planes.input, &self.geometry.planes.output);
        let (pitch, line) = (input.pitch, input.columns * input.pitch);
        product(
            isa,
            Product {
                samples,
                a: x,
                a_rows: Rows { offsets: &self.offsets.windows, stride: input.len() },
                b: &weights.forward,
                b_group: self.geometry.window() * COLUMNS,
                sum: [
                    Steps::ONCE,
                    Steps::new(kh, line, kw * pitch * COLUMNS),
                    Steps::new(kw * pitch, 1, COLUMNS),
                ],
                start: Start::Row(&weights.bias),
                relu,
                c: y,
                c_rows: Rows { offsets: &self.offsets.outputs, stride: output.len() },
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
        dx: &mut [f32],
        scratch: &mut [f32],
    ) {
        let Some(target) = self.geometry.planes.input_gradient else { return };
        let Size { height: kh, width: kw } = self.geometry.kernel;
        let gradient = self.geometry.planes.output_gradient;
        let pitch = gradient.pitch;
        if self.geometry.backward() == Backward::Flipped {
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
                    relu: false,
                    c: dx,
                    c_rows: Rows { offsets: &self.offsets.input_pixels, stride: target.len() },
                    columns: &self.offsets.input_groups,
                },
            );
            return;
        }
        // A linear layer has one output pixel: examples then share a product.
        let dense = self.geometry.positions() == 1;
        let together = if dense { scratch.len() / self.geometry.window() } else { 1 };
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
                    relu: false,
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
        let Some(target) = self.geometry.planes.input_gradient else { return };
        let Geometry { kernel, stride, padding, .. } = self.geometry;
        let (pitch, width) = (target.pitch, self.geometry.planes.output.width);
        for y in 0..target.height {
            dx[target.row(y)].fill(0.0);
        }
        for (position, patch) in patches.chunks_exact(self.geometry.window()).enumerate() {
            if position == self.geometry.positions() {
                break;
            }
            let (oy, ox) = (position / width, position % width);
            for (at, source) in patch.chunks_exact(pitch).enumerate() {
                let (y, x) = (oy * stride + at / kernel.width, ox * stride + at % kernel.width);
                debug_assert!(at < kernel.area());
                let inside = (padding..target.height + padding).contains(&y)
                    && (padding..target.width + padding).contains(&x);
                if inside {
                    let at = target.pixel(y - padding, x - padding);
                    dx[at..at + pitch].iter_mut().zip(source).for_each(|(d, s)| *d += s);
                }
            }
        }
    }

    /// The gradient of weights and bias, summed over `samples` examples, in the packed order.
    pub(crate) fn weight_gradient(
        &self,
        isa: Isa,
        samples: usize,
        x: &[f32],
        dy: &[f32],
        target: Target<'_>,
    ) {
        let (input, output) = (&self.geometry.planes.input, &self.geometry.planes.output);
        let mut keep = target.keep;
        let (weights, bias) = target.values.split_at_mut(self.geometry.window() * output.pitch);
        let gradient = &self.geometry.planes.output_gradient;
        add_pixels(isa, gradient, samples, dy, Target { values: bias, keep });
        // Pixels whose window floats and gradients fill half of a first-level cache.
        let line = output.width * (input.pitch * self.geometry.stride + COLUMNS);
        let lines = (6144 / line).clamp(1, output.height);
        let whole = self.geometry.positions() < 64;
        let (chunk, together) = if whole { (output.height, samples) } else { (lines, 1) };
        for sample in (0..samples).step_by(together.max(1)) {
            for first in (0..output.height).step_by(chunk) {
                let count = chunk.min(output.height - first);
                self.add_lines(isa, (sample, together), (first, count), (x, dy), (weights, keep));
                keep = true;
            }
        }
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
        let Geometry { planes, kernel, stride, padding } = self.geometry;
        let (input, gradient) = (planes.input, planes.output_gradient);
        let shift = input.border - padding;
        let row = kernel.width * input.pitch * gradient.pitch;
        for ky in 0..kernel.height {
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
                        Steps::new(planes.output.width, stride * input.pitch, gradient.pitch),
                    ],
                    start: if keep { Start::Kept } else { Start::Zero },
                    relu: false,
                    c: &mut weights[ky * row..][..row],
                    c_rows: Rows { offsets: &self.offsets.packed_rows, stride: 0 },
                    columns: &self.offsets.out_groups,
                },
            );
        }
    }
}
