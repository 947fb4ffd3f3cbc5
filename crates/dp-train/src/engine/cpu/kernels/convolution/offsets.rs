//! Where the rows and columns of a convolution's products lie.

use super::{Backward, Convolution};
use crate::engine::cpu::kernels::tile::COLUMNS;

/// Offsets of the rows and columns of the products.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    pub(super) windows: Vec<u32>,
    pub(super) outputs: Vec<u32>,
    pub(super) out_groups: Vec<u32>,
    pub(super) gradient_windows: Vec<u32>,
    pub(super) input_pixels: Vec<u32>,
    pub(super) input_groups: Vec<u32>,
    pub(super) window_floats: Vec<u32>,
    pub(super) packed_rows: Vec<u32>,
    pub(super) patch_rows: Vec<u32>,
    pub(super) patch_groups: Vec<u32>,
}

impl Convolution {
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
        let mut offsets = Offsets {
            windows: grid(output.height, output.width, &window),
            outputs: output.pixels(),
            out_groups: groups(output.pitch),
            window_floats: (0..(self.kernel.1 * input.pitch) as u32).collect(),
            ..Offsets::default()
        };
        offsets.packed_rows =
            offsets.window_floats.iter().map(|r| r * output.pitch as u32).collect();
        if let Some(target) = self.input_gradient {
            match self.backward_kind() {
                Backward::Flipped => {
                    let shift = gradient.border - (self.kernel.0 - 1 - self.padding);
                    let at = |y, x| gradient.bordered(y + shift, x + shift) as u32;
                    offsets.gradient_windows = grid(input.height, input.width, &at);
                    offsets.input_pixels = target.pixels();
                    offsets.input_groups = groups(target.pitch);
                }
                Backward::Patches => {
                    let patch = self.window();
                    let rows = 0..self.positions();
                    offsets.gradient_windows = gradient.pixels();
                    offsets.patch_rows = rows.map(|r| (r * patch) as u32).collect();
                    offsets.patch_groups = groups(patch);
                }
            }
        }
        self.offsets = offsets;
    }
}
