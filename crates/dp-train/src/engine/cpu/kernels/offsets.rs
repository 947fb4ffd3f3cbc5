//! Where the rows and columns of a convolution's products lie.

use crate::engine::cpu::kernels::geometry::{Backward, Geometry};
use crate::engine::cpu::kernels::plane::Planes;
use crate::engine::cpu::kernels::tile::COLUMNS;

/// Offsets of the rows and columns of the products.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    pub(crate) windows: Vec<u32>,
    pub(crate) outputs: Vec<u32>,
    pub(crate) out_groups: Vec<u32>,
    pub(crate) gradient_windows: Vec<u32>,
    pub(crate) input_pixels: Vec<u32>,
    pub(crate) input_groups: Vec<u32>,
    pub(crate) window_floats: Vec<u32>,
    pub(crate) packed_rows: Vec<u32>,
    pub(crate) patch_rows: Vec<u32>,
    pub(crate) patch_groups: Vec<u32>,
}

impl Offsets {
    /// Those of a geometry.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let Planes { input, output, input_gradient, output_gradient: gradient } = geometry.planes;
        let Geometry { kernel, stride, padding, .. } = *geometry;
        let shift = input.border - padding;
        let groups = |channels: usize| (0..channels as u32).step_by(COLUMNS).collect::<Vec<_>>();
        let window =
            |y: usize, x: usize| input.bordered(y * stride + shift, x * stride + shift) as u32;
        let grid = |height: usize, width: usize, at: &dyn Fn(usize, usize) -> u32| {
            (0..height * width).map(|i| at(i / width, i % width)).collect::<Vec<_>>()
        };
        let mut offsets = Offsets {
            windows: grid(output.height, output.width, &window),
            outputs: output.pixels(),
            out_groups: groups(output.pitch),
            window_floats: (0..(kernel.width * input.pitch) as u32).collect(),
            ..Offsets::default()
        };
        offsets.packed_rows =
            offsets.window_floats.iter().map(|r| r * output.pitch as u32).collect();
        if let Some(target) = input_gradient {
            match geometry.backward() {
                Backward::Flipped => {
                    let shift = gradient.border - (kernel.height - 1 - padding);
                    let at = |y, x| gradient.bordered(y + shift, x + shift) as u32;
                    offsets.gradient_windows = grid(input.height, input.width, &at);
                    offsets.input_pixels = target.pixels();
                    offsets.input_groups = groups(target.pitch);
                }
                Backward::Patches => {
                    let patch = geometry.window();
                    let rows = 0..geometry.positions();
                    offsets.gradient_windows = gradient.pixels();
                    offsets.patch_rows = rows.map(|r| (r * patch) as u32).collect();
                    offsets.patch_groups = groups(patch);
                }
            }
        }
        offsets
    }
}
