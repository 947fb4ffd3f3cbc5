//! Direct convolution: forward, input gradient and weight gradient as products of tiles.
//!
//! A linear layer is the convolution whose window is the whole image: PyTorch's weight `[out, in]`
//! after flattening is `[out, channels, height, width]`.

use std::ops::Range;

use crate::engine::plane::Plane;
use crate::engine::tile::{COLUMNS, Product, Rows, Start, Steps, product};
use crate::engine::vector::{Isa, kernel};
use crate::engine::winograd::Winograd;

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
    pub(crate) lists: Lists,
}

/// Offsets of the rows and columns of the products.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    windows: Vec<u32>,
    outputs: Vec<u32>,
    out_groups: Vec<u32>,
    gradient_windows: Vec<u32>,
    input_pixels: Vec<u32>,
    input_groups: Vec<u32>,
    window_floats: Vec<u32>,
    packed_rows: Vec<u32>,
    patch_rows: Vec<u32>,
    patch_groups: Vec<u32>,
}

/// The parameters of one convolution in the order in which the products read them.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    pub(crate) forward: Vec<f32>,
    pub(crate) backward: Vec<f32>,
    /// Scratch: the weights before a transform.
    pub(crate) plain: Vec<f32>,
    pub(crate) bias: Vec<f32>,
    /// One per group of a grouped convolution, which uses nothing else.
    pub(crate) groups: Vec<Weights>,
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

    /// Fills in the offsets once the geometry is known.
    pub(crate) fn prepare(&mut self) {
        let (input, output, gradient) = (self.input, self.output, self.output_gradient);
        let shift = input.border - self.padding;
        let groups = |channels: usize| (0..channels as u32).step_by(COLUMNS).collect::<Vec<_>>();
        let window = |y: usize, x: usize| {
            input.bordered(y * self.stride + shift, x * self.stride + shift) as u32
        };
        let grid = |height: usize, width: usize, at: &dyn Fn(usize, usize) -> u32| {
            (0..height * width).map(|i| at(i / width, i % width)).collect::<Vec<_>>()
        };
        let mut lists = Lists {
            windows: grid(output.height, output.width, &window),
            outputs: output.pixels(),
            out_groups: groups(output.pitch),
            window_floats: (0..(self.kernel.1 * input.pitch) as u32).collect(),
            ..Lists::default()
        };
        lists.packed_rows = lists.window_floats.iter().map(|r| r * output.pitch as u32).collect();
        if let Some(target) = self.input_gradient {
            match self.backward_kind() {
                Backward::Flipped => {
                    let shift = gradient.border - (self.kernel.0 - 1 - self.padding);
                    let at = |y, x| gradient.bordered(y + shift, x + shift) as u32;
                    lists.gradient_windows = grid(input.height, input.width, &at);
                    lists.input_pixels = target.pixels();
                    lists.input_groups = groups(target.pitch);
                }
                Backward::Patches => {
                    let patch = self.window();
                    let rows = 0..self.positions();
                    lists.gradient_windows = gradient.pixels();
                    lists.patch_rows = rows.map(|r| (r * patch) as u32).collect();
                    lists.patch_groups = groups(patch);
                }
            }
        }
        self.lists = lists;
    }

    /// Floats of scratch that the input gradient of one example needs.
    pub(crate) fn scratch(&self) -> usize {
        self.lists.patch_rows.len() * self.window()
    }

    /// Brings weights and bias into the order of the products. O(weights).
    pub(crate) fn pack(&self, isa: Isa, (source, bias): (&[f32], &[f32]), weights: &mut Weights) {
        let (kh, kw) = self.kernel;
        let (ci, co) = (self.input.channels, self.output.channels);
        let (ci_pitch, co_pitch) = (self.input.pitch, self.output.pitch);
        weights.bias.resize(co_pitch, 0.0);
        weights.bias[..co].copy_from_slice(bias);
        if let Some(winograd) = &self.winograd {
            winograd.pack(isa, self, source, weights);
            return;
        }
        let window = self.window();
        weights.forward.resize(window * co_pitch, 0.0);
        let backward = self.input_gradient.is_some().then(|| self.backward_kind());
        if backward.is_some() {
            weights.backward.resize(window * co_pitch, 0.0);
        }
        for o in 0..co {
            for i in 0..ci {
                for y in 0..kh {
                    for x in 0..kw {
                        let value = source[((o * ci + i) * kh + y) * kw + x];
                        let k = (y * kw + x) * ci_pitch + i;
                        let group = o / COLUMNS * window;
                        weights.forward[(group + k) * COLUMNS + o % COLUMNS] = value;
                        let at = match backward {
                            None => continue,
                            Some(Backward::Flipped) => {
                                let k = ((kh - 1 - y) * kw + kw - 1 - x) * co_pitch + o;
                                let group = i / COLUMNS * (kh * kw * co_pitch);
                                (group + k) * COLUMNS + i % COLUMNS
                            }
                            Some(Backward::Patches) => {
                                (k / COLUMNS * co_pitch + o) * COLUMNS + k % COLUMNS
                            }
                        };
                        weights.backward[at] = value;
                    }
                }
            }
        }
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
                a_rows: Rows { offsets: &self.lists.windows, stride: self.input.len() },
                b: &weights.forward,
                b_group: self.window() * COLUMNS,
                sum: [
                    Steps::ONCE,
                    Steps::new(kh, line, kw * pitch * COLUMNS),
                    Steps::new(kw * pitch, 1, COLUMNS),
                ],
                start: Start::Row(&weights.bias),
                c: y,
                c_rows: Rows { offsets: &self.lists.outputs, stride: self.output.len() },
                columns: &self.lists.out_groups,
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
                    a_rows: Rows { offsets: &self.lists.gradient_windows, stride: gradient.len() },
                    b: &weights.backward,
                    b_group: kh * kw * pitch * COLUMNS,
                    sum: [
                        Steps::ONCE,
                        Steps::new(kh, gradient.columns * pitch, kw * pitch * COLUMNS),
                        Steps::new(kw * pitch, 1, COLUMNS),
                    ],
                    start: Start::Zero,
                    c: dx,
                    c_rows: Rows { offsets: &self.lists.input_pixels, stride: target.len() },
                    columns: &self.lists.input_groups,
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
                    a_rows: Rows { offsets: &self.lists.gradient_windows, stride: gradient.len() },
                    b: &weights.backward,
                    b_group: pitch * COLUMNS,
                    sum: [Steps::ONCE, Steps::ONCE, Steps::new(pitch, 1, COLUMNS)],
                    start: Start::Zero,
                    c: scratch,
                    c_rows: Rows { offsets: &self.lists.patch_rows, stride: self.scratch() },
                    columns: &self.lists.patch_groups,
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
                    a_rows: Rows { offsets: &self.lists.window_floats, stride: 0 },
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
                    c_rows: Rows { offsets: &self.lists.packed_rows, stride: 0 },
                    columns: &self.lists.out_groups,
                },
            );
        }
    }

    /// Writes a packed gradient in PyTorch's order to those of weights and bias.
    pub(crate) fn unpack(&self, packed: &[f32], (target, to): (&mut [f32], &mut [f32])) {
        let (kh, kw) = self.kernel;
        let (ci, co) = (self.input.channels, self.output.channels);
        let co_pitch = self.output.pitch;
        let (weights, bias) = packed.split_at(self.window() * co_pitch);
        let area = kh * kw;
        for k in 0..area {
            for i in 0..ci {
                let row = &weights[(k * self.input.pitch + i) * co_pitch..][..co];
                for (o, value) in row.iter().enumerate() {
                    target[(o * ci + i) * area + k] = *value;
                }
            }
        }
        to.copy_from_slice(&bias[..co]);
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
