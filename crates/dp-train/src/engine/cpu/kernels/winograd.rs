//! Winograd's minimal filtering F(4x4, 3x3) for 3 x 3 convolutions of stride 1 and padding 1.
//!
//! ```text
//! forward          y  = A' [ (G w G') . (B' x B) ] A       summed over input channels
//! input gradient   the same with flipped weights
//! weight gradient  dw = G' [ (B' x B) . (A dy A') ] G      summed over tiles
//! ```
//!
//! (Lavin & Gray 2016, arXiv:1509.09308.) Tiles of 4 x 4 outputs read 6 x 6 inputs, and 36
//! products per tile and pair of channels replace 144. The 36 positions `xi` of a tile are separate
//! matrix products. In f32 the price is about six times the rounding error: on the ConvNet the worst
//! tensor of the gradient is off by 7e-6 of its norm instead of 1e-6.

use std::ops::Range;

use crate::engine::cpu::kernels::geometry::Geometry;
use crate::engine::cpu::kernels::packing::Weights;
use crate::engine::cpu::kernels::plane::{Plane, Size};
use crate::engine::cpu::kernels::reduce::Target;
use crate::engine::cpu::kernels::scratch::Scratch;
use crate::engine::cpu::kernels::tile::{COLUMNS, Product, ROWS, Rows, Start, Steps, product};
use crate::engine::cpu::kernels::transform::{self, Finish, POSITIONS, TILE, Tiles};
use crate::engine::cpu::kernels::vector::Isa;

/// Floats of transformed outputs that should stay in a second-level cache.
const CHUNK_FLOATS: usize = 80 * 1024;
/// Floats of a row block of transformed weight gradients, per position.
const BLOCK_FLOATS: usize = 768;

/// Floats between two positions: not a power of two, or all 36 would fight for the same cache
/// lines.
fn position_stride(tiles: usize, pitch: usize) -> usize {
    (tiles * pitch).next_multiple_of(1024) + 16
}

/// A convolution by tiles.
#[derive(Debug)]
pub(crate) struct Winograd {
    pub(crate) geometry: Geometry,
    /// Tiles in a column and in a row of the image.
    grid: Size,
    /// Examples in a block.
    samples: usize,
    in_rows: Vec<u32>,
    out_rows: Vec<u32>,
    in_groups: Vec<u32>,
    out_groups: Vec<u32>,
    floats: Vec<u32>,
}

impl Winograd {
    /// For blocks of up to `samples` examples.
    pub(crate) fn new(geometry: Geometry, samples: usize) -> Self {
        let (input, output) = (&geometry.planes.input, &geometry.planes.output);
        let (in_pitch, out_pitch) = (input.pitch, output.pitch);
        let Size { height, width } = input.size();
        let grid = Size { height: height.div_ceil(TILE), width: width.div_ceil(TILE) };
        // Rows are tiles, or the channels of a block of weight gradients.
        let count = (samples * grid.area()).max(BLOCK_FLOATS / COLUMNS + ROWS) as u32;
        let rows = |pitch: usize| (0..count).map(|t| t * pitch as u32).collect();
        let groups = |pitch: usize| (0..pitch as u32).step_by(COLUMNS).collect();
        Self {
            geometry,
            grid,
            samples,
            in_rows: rows(in_pitch),
            out_rows: rows(out_pitch),
            in_groups: groups(in_pitch),
            out_groups: groups(out_pitch),
            floats: (0..in_pitch as u32).collect(),
        }
    }

    /// Whether it pays for a layer: it needs 3 x 3 windows, and enough channels and pixels.
    pub(crate) fn pays(
        kernel: Size,
        stride: usize,
        padding: usize,
        image: Size,
        channels: usize,
    ) -> bool {
        (kernel, stride, padding) == (Size::square(3), 1, 1)
            && channels >= 16
            && image.height.min(image.width) >= 4
    }

    /// Tiles of one example.
    fn tiles(&self) -> usize {
        self.grid.area()
    }

    /// A layout with so many zeros around it that every tile can be read whole.
    pub(crate) fn extended(plane: Plane) -> Plane {
        let (height, width) = (plane.height, plane.width);
        plane.at_least(height.next_multiple_of(TILE) + 2, width.next_multiple_of(TILE) + 2)
    }

    /// Floats of the transformed inputs of a block.
    pub(crate) fn transformed(&self) -> usize {
        self.transformed_floats(self.in_pitch())
    }

    fn transformed_floats(&self, pitch: usize) -> usize {
        POSITIONS * position_stride(self.samples * self.tiles(), pitch)
    }

    /// Floats of each of the two scratch buffers.
    pub(crate) fn scratch(&self) -> usize {
        let widest = self.in_pitch().max(self.geometry.planes.output.pitch);
        self.transformed_floats(widest).max(POSITIONS * (BLOCK_FLOATS + ROWS * widest))
    }

    /// Examples whose transformed outputs stay in cache.
    fn chunk(&self, pitch: usize) -> usize {
        (CHUNK_FLOATS / (POSITIONS * self.tiles() * pitch)).clamp(1, self.samples)
    }

    /// `G w G'` for the forward pass and, flipped, for the input gradient.
    pub(crate) fn pack(&self, isa: Isa, source: &[f32], weights: &mut Weights) {
        let planes = &self.geometry.planes;
        let (ci, co) = (planes.input, planes.output);
        let size = POSITIONS * ci.pitch * co.pitch;
        weights.forward.resize(size, 0.0);
        // Both orders share the buffer, and zeros of one are weights of the other.
        weights.plain.clear();
        weights.plain.resize(9 * ci.pitch * co.pitch, 0.0);
        for o in 0..co.channels {
            for i in 0..ci.channels {
                let filter = &source[(o * ci.channels + i) * 9..][..9];
                for (k, &value) in filter.iter().enumerate() {
                    weights.plain[(k * ci.pitch + i) * co.pitch + o] = value;
                }
            }
        }
        transform::weights(isa, &weights.plain, ci.pitch, co.pitch, &mut weights.forward);
        if planes.input_gradient.is_some() {
            weights.backward.resize(size, 0.0);
            weights.plain.fill(0.0);
            for o in 0..co.channels {
                for i in 0..ci.channels {
                    let filter = &source[(o * ci.channels + i) * 9..][..9];
                    for (k, &value) in filter.iter().enumerate() {
                        weights.plain[((8 - k) * co.pitch + o) * ci.pitch + i] = value;
                    }
                }
            }
            transform::weights(isa, &weights.plain, co.pitch, ci.pitch, &mut weights.backward);
        }
    }

    /// The forward pass, with ReLU if asked for; leaves the transformed inputs in the scratch.
    pub(crate) fn forward(
        &self,
        isa: Isa,
        samples: usize,
        weights: &Weights,
        x: &[f32],
        (y, relu): (&mut [f32], bool),
        scratch: Scratch<'_>,
    ) {
        let Scratch { transformed, left: products, .. } = scratch;
        let (input, output) = (self.geometry.planes.input, self.geometry.planes.output);
        let stride = position_stride(self.samples * self.tiles(), input.pitch);
        let chunk = self.chunk(output.pitch);
        for first in (0..samples).step_by(chunk) {
            let count = chunk.min(samples - first);
            let at = first * self.tiles() * input.pitch;
            let x = &x[first * input.len()..];
            let tiles = self.of(&input, count);
            transform::inputs(isa, tiles, x, &mut transformed[at..], stride);
            self.multiply(
                isa,
                count,
                (&transformed[at..], stride, input.pitch),
                &weights.forward,
                (products, output.pitch),
            );
            let y = &mut y[first * output.len()..];
            let stride = position_stride(count * self.tiles(), output.pitch);
            let finish = Finish::Forward { bias: &weights.bias, relu };
            transform::outputs(isa, self.of(&output, count), products, stride, finish, y);
        }
    }

    /// The gradient with respect to the input, or to what ReLU made the input `x` from.
    pub(crate) fn input_gradient(
        &self,
        isa: Isa,
        samples: usize,
        weights: &Weights,
        (x, dy): (Option<&[f32]>, &[f32]),
        dx: &mut [f32],
        scratch: Scratch<'_>,
    ) {
        let Scratch { left, right, .. } = scratch;
        let Some(target) = self.geometry.planes.input_gradient else { return };
        let gradient = self.geometry.planes.output_gradient;
        let chunk = self.chunk(target.pitch.max(gradient.pitch));
        for first in (0..samples).step_by(chunk) {
            let count = chunk.min(samples - first);
            let stride = position_stride(count * self.tiles(), gradient.pitch);
            let dy = &dy[first * gradient.len()..];
            transform::inputs(isa, self.of(&gradient, count), dy, left, stride);
            self.multiply(
                isa,
                count,
                (left, stride, gradient.pitch),
                &weights.backward,
                (right, target.pitch),
            );
            let dx = &mut dx[first * target.len()..];
            let stride = position_stride(count * self.tiles(), target.pitch);
            let input = &self.geometry.planes.input;
            let finish = match x {
                Some(x) => Finish::Relu { values: &x[first * input.len()..], plane: input },
                None => Finish::Gradient,
            };
            transform::outputs(isa, self.of(&target, count), right, stride, finish, dx);
        }
    }

    /// `c[xi] = a[xi] b[xi]` for all positions.
    fn multiply(
        &self,
        isa: Isa,
        samples: usize,
        (a, a_stride, inner): (&[f32], usize, usize),
        b: &[f32],
        (c, outer): (&mut [f32], usize),
    ) {
        let tiles = samples * self.tiles();
        let c_stride = position_stride(tiles, outer);
        let groups = if outer == self.in_pitch() { &self.in_groups } else { &self.out_groups };
        for xi in 0..POSITIONS {
            product(
                isa,
                Product {
                    samples: 1,
                    a: &a[xi * a_stride..],
                    a_rows: Rows { offsets: &self.rows(inner)[..tiles], stride: 0 },
                    b: &b[xi * inner * outer..],
                    b_group: inner * COLUMNS,
                    sum: [Steps::ONCE, Steps::ONCE, Steps::new(inner, 1, COLUMNS)],
                    start: Start::Zero,
                    relu: false,
                    c: &mut c[xi * c_stride..],
                    c_rows: Rows { offsets: &self.rows(outer)[..tiles], stride: 0 },
                    columns: groups,
                },
            );
        }
    }

    /// Offsets of rows of `pitch` floats.
    fn rows(&self, pitch: usize) -> &[u32] {
        if pitch == self.in_pitch() { &self.in_rows } else { &self.out_rows }
    }

    fn in_pitch(&self) -> usize {
        self.floats.len()
    }

    /// The tiles of some examples in a layout.
    fn of<'a>(&self, plane: &'a Plane, samples: usize) -> Tiles<'a> {
        Tiles { plane, grid: self.grid, samples }
    }

    /// The gradient of the weights, `[9][in][out]`, of some examples of the block.
    pub(crate) fn weight_gradient(
        &self,
        isa: Isa,
        samples: Range<usize>,
        dy: &[f32],
        target: Target<'_>,
        scratch: Scratch<'_>,
    ) {
        let Scratch { transformed, left, right, .. } = scratch;
        let Target { values: target, keep } = target;
        let gradient = &self.geometry.planes.output_gradient;
        let (first, samples) = (samples.start, samples.len());
        let (ci, co) = (self.in_pitch(), gradient.pitch);
        let tiles = samples * self.tiles();
        let a_stride = position_stride(self.samples * self.tiles(), ci);
        let b_stride = position_stride(tiles, co);
        let dy = &dy[first * gradient.len()..];
        transform::gradients(isa, self.of(gradient, samples), dy, left, b_stride);
        let block = (BLOCK_FLOATS / co).next_multiple_of(ROWS).min(ci);
        for channel in (0..ci).step_by(block) {
            let count = block.min(ci - channel);
            for xi in 0..POSITIONS {
                let at = xi * a_stride + first * self.tiles() * ci + channel;
                product(
                    isa,
                    Product {
                        samples: 1,
                        a: &transformed[at..],
                        a_rows: Rows { offsets: &self.floats[..count], stride: 0 },
                        b: &left[xi * b_stride..],
                        b_group: COLUMNS,
                        sum: [Steps::ONCE, Steps::ONCE, Steps::new(tiles, ci, co)],
                        start: Start::Zero,
                        relu: false,
                        c: &mut right[xi * count * co..],
                        c_rows: Rows { offsets: &self.out_rows[..count], stride: 0 },
                        columns: &self.out_groups,
                    },
                );
            }
            let target = Target { values: &mut target[channel * co..], keep };
            transform::weight_gradients(isa, right, count * co, target, ci * co);
        }
    }

    /// Zeros in place of one example's transformed inputs.
    pub(crate) fn erase(&self, sample: usize, transformed: &mut [f32]) {
        let floats = self.tiles() * self.in_pitch();
        let stride = position_stride(self.samples * self.tiles(), self.in_pitch());
        for xi in 0..POSITIONS {
            transformed[xi * stride + sample * floats..][..floats].fill(0.0);
        }
    }
}
