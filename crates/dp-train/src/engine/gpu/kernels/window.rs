//! Which pixel lies under a tap of a window.

use cubecl::prelude::*;

use super::geometry::Geometry;

/// Where the pixel lies in its plane that tap `tap` of the window at row `oy` and column `ox` sees, and whether there is one: outside
/// of the image there is none, and the place is 0.
#[cube]
pub(crate) fn pixel_under(
    oy: usize,
    ox: usize,
    tap: usize,
    #[comptime] g: Geometry,
) -> (bool, usize) {
    let padding = comptime!(g.padding);
    let row = oy * comptime!(g.stride) + tap / comptime!(g.kernel);
    let column = ox * comptime!(g.stride) + tap % comptime!(g.kernel);
    let there = row >= padding
        && row < comptime!(g.height + g.padding)
        && column >= padding
        && column < comptime!(g.width + g.padding);
    let row = select(there, row - padding, 0);
    let column = select(there, column - padding, 0);
    (there, row * comptime!(g.width) + column)
}

/// The other way round: which output lies where a window sees pixel (`y`, `x`) under `tap`, and whether there is one.
#[cube]
pub(crate) fn output_over(
    y: usize,
    x: usize,
    tap: usize,
    #[comptime] g: Geometry,
) -> (bool, usize) {
    let stride = comptime!(g.stride);
    let row = y + comptime!(g.padding);
    let column = x + comptime!(g.padding);
    let ky = tap / comptime!(g.kernel);
    let kx = tap % comptime!(g.kernel);
    let after = row >= ky && column >= kx;
    let row = select(after, row - ky, 0);
    let column = select(after, column - kx, 0);
    let there = after
        && row % stride == 0
        && column % stride == 0
        && row / stride < comptime!(g.rows)
        && column / stride < comptime!(g.columns);
    (there, row / stride * comptime!(g.columns) + column / stride)
}
