//! The transforms of Winograd's F(4x4, 3x3), eight channels at a time.

use crate::engine::cpu::kernels::plane::{Plane, Size};
use crate::engine::cpu::kernels::reduce::Target;
use crate::engine::cpu::kernels::tile::COLUMNS;
use crate::engine::cpu::kernels::transform_1d::{
    gradients_1d, inputs_1d, outputs_1d, weight_gradients_1d, weights_1d,
};
use crate::engine::cpu::kernels::vector::kernel;

/// Outputs on the side of a tile.
pub(crate) const TILE: usize = 4;
/// Positions of a transformed tile.
pub(crate) const POSITIONS: usize = 36;

/// The tiles of some examples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tiles<'a> {
    pub(crate) plane: &'a Plane,
    /// Tiles in a column and in a row of the image.
    pub(crate) grid: Size,
    pub(crate) samples: usize,
}

impl Tiles<'_> {
    fn count(&self) -> usize {
        self.samples * self.grid.area()
    }
}

/// A 1-D transform of the columns of an `n x n` array and then of the rows of the result, `m x m`.
///
/// A macro, because a function passed as an argument would be called through a shim that is not
/// compiled for the instruction set: every operation would become a call.
macro_rules! both_ways {
    ($d:expr, $transform:ident, $n:literal => $m:literal) => {{
        let d = $d;
        let mut half = [[V::splat(0.0); $n]; $m];
        for j in 0..$n {
            let mut column = [V::splat(0.0); $n];
            for i in 0..$n {
                column[i] = d[i][j];
            }
            let column = $transform(column);
            for i in 0..$m {
                half[i][j] = column[i];
            }
        }
        let mut all = [[V::splat(0.0); $m]; $m];
        for i in 0..$m {
            all[i] = $transform(half[i]);
        }
        all
    }};
}

kernel! {
    /// `target[xi][tile] = B' d B` for the 6 x 6 pixels around every tile.
    ///
    /// # Panics
    /// Unless layout, tiles and stride stay inside the slices.
    pub(crate) fn inputs<V>(
        tiles: Tiles<'_>,
        source: &[f32],
        target: &mut [f32],
        stride: usize,
    ) {
        let Tiles { plane, grid, samples } = tiles;
        assert!(plane.rows >= TILE * grid.height + 2 && plane.columns >= TILE * grid.width + 2);
        assert!(source.len() >= samples * plane.len());
        assert!(target.len() >= (POSITIONS - 1) * stride + tiles.count() * plane.pitch);
        let origin = plane.border - 1;
        let mut at = 0;
        for sample in 0..samples {
            for ty in 0..grid.height {
                for tx in 0..grid.width {
                    let corner = sample * plane.len()
                        + plane.bordered(TILE * ty + origin, TILE * tx + origin);
                    for channel in (0..plane.pitch).step_by(8) {
                        let mut d = [[V::splat(0.0); 6]; 6];
                        for i in 0..6 {
                            for j in 0..6 {
                                let from = corner + plane.bordered(i, j) + channel;
                                // SAFETY: rows and columns of all tiles were asserted to lie in
                                // the layout, and the layout in the source.
                                d[i][j] = unsafe { V::load(source.as_ptr().add(from)) };
                            }
                        }
                        let d = both_ways!(d, inputs_1d, 6 => 6);
                        for xi in 0..POSITIONS {
                            let to = xi * stride + at + channel;
                            // SAFETY: asserted for the last position and tile.
                            unsafe { d[xi / 6][xi % 6].store(target.as_mut_ptr().add(to)) };
                        }
                    }
                    at += plane.pitch;
                }
            }
        }
    }
}

kernel! {
    /// `target[xi][tile] = A y A'` for the 4 x 4 pixels of every tile.
    ///
    /// # Panics
    /// Unless layout, tiles and stride stay inside the slices.
    pub(crate) fn gradients<V>(
        tiles: Tiles<'_>,
        source: &[f32],
        target: &mut [f32],
        stride: usize,
    ) {
        let Tiles { plane, grid, samples } = tiles;
        let (rows, columns) = (TILE * grid.height + plane.border, TILE * grid.width + plane.border);
        assert!(plane.rows >= rows && plane.columns >= columns);
        assert!(source.len() >= samples * plane.len());
        assert!(target.len() >= (POSITIONS - 1) * stride + tiles.count() * plane.pitch);
        let mut at = 0;
        for sample in 0..samples {
            for ty in 0..grid.height {
                for tx in 0..grid.width {
                    let corner = sample * plane.len() + plane.pixel(TILE * ty, TILE * tx);
                    for channel in (0..plane.pitch).step_by(8) {
                        let mut y = [[V::splat(0.0); 4]; 4];
                        for i in 0..4 {
                            for j in 0..4 {
                                let from = corner + plane.bordered(i, j) + channel;
                                // SAFETY: asserted as for the inputs.
                                y[i][j] = unsafe { V::load(source.as_ptr().add(from)) };
                            }
                        }
                        let y = both_ways!(y, gradients_1d, 4 => 6);
                        for xi in 0..POSITIONS {
                            let to = xi * stride + at + channel;
                            // SAFETY: asserted for the last position and tile.
                            unsafe { y[xi / 6][xi % 6].store(target.as_mut_ptr().add(to)) };
                        }
                    }
                    at += plane.pitch;
                }
            }
        }
    }
}

kernel! {
    /// The pixels `A' m A + bias` of every tile, as far as they lie in the image.
    ///
    /// # Panics
    /// Unless layout, tiles and stride stay inside the slices.
    pub(crate) fn outputs<V>(
        tiles: Tiles<'_>,
        source: &[f32],
        stride: usize,
        bias: Option<&[f32]>,
        target: &mut [f32],
    ) {
        let Tiles { plane, grid, samples } = tiles;
        assert!(source.len() >= (POSITIONS - 1) * stride + tiles.count() * plane.pitch);
        assert!(target.len() >= samples * plane.len());
        assert!(bias.is_none_or(|bias| bias.len() >= plane.pitch));
        let mut at = 0;
        for sample in 0..samples {
            for ty in 0..grid.height {
                for tx in 0..grid.width {
                    let corner = sample * plane.len() + plane.pixel(TILE * ty, TILE * tx);
                    let rows = TILE.min(plane.height - TILE * ty);
                    let columns = TILE.min(plane.width - TILE * tx);
                    for channel in (0..plane.pitch).step_by(8) {
                        let mut m = [[V::splat(0.0); 6]; 6];
                        for xi in 0..POSITIONS {
                            let from = xi * stride + at + channel;
                            // SAFETY: asserted for the last position and tile.
                            m[xi / 6][xi % 6] = unsafe { V::load(source.as_ptr().add(from)) };
                        }
                        let start = match bias {
                            // SAFETY: asserted to have a whole pixel.
                            Some(bias) => unsafe { V::load(bias.as_ptr().add(channel)) },
                            None => V::splat(0.0),
                        };
                        let y = both_ways!(m, outputs_1d, 6 => 4);
                        for i in 0..rows {
                            for j in 0..columns {
                                let to = corner + plane.bordered(i, j) + channel;
                                // SAFETY: the pixel lies in the image, the image in the target.
                                unsafe { y[i][j].add(start).store(target.as_mut_ptr().add(to)) };
                            }
                        }
                    }
                    at += plane.pitch;
                }
            }
        }
    }
}

kernel! {
    /// `G w G'` of weights `[9][inner][outer]`, as the 36 operands `[xi][group][inner][16]`.
    ///
    /// # Panics
    /// Unless both slices have these lengths.
    pub(crate) fn weights<V>(source: &[f32], inner: usize, outer: usize, target: &mut [f32]) {
        let size = inner * outer;
        assert!(source.len() >= 9 * size && target.len() >= POSITIONS * size);
        for i in 0..inner {
            for o in (0..outer).step_by(8) {
                let mut w = [[V::splat(0.0); 3]; 3];
                for k in 0..9 {
                    // SAFETY: asserted, as `i * outer + o + 8 <= size`.
                    w[k / 3][k % 3] =
                        unsafe { V::load(source.as_ptr().add(k * size + i * outer + o)) };
                }
                let w = both_ways!(w, weights_1d, 3 => 6);
                let at = (o / COLUMNS * inner + i) * COLUMNS + o % COLUMNS;
                for xi in 0..POSITIONS {
                    // SAFETY: asserted, as `at + 8 <= size`.
                    unsafe { w[xi / 6][xi % 6].store(target.as_mut_ptr().add(xi * size + at)) };
                }
            }
        }
    }
}

kernel! {
    /// `G' m G` of `m [36][count]`, written or added to `target[9]` with a stride.
    ///
    /// # Panics
    /// Unless both slices are long enough.
    pub(crate) fn weight_gradients<V>(
        source: &[f32],
        count: usize,
        target: Target<'_>,
        stride: usize,
    ) {
        let Target { values: target, keep } = target;
        assert!(source.len() >= POSITIONS * count && target.len() >= 8 * stride + count);
        assert_eq!(count % 8, 0);
        for at in (0..count).step_by(8) {
            let mut m = [[V::splat(0.0); 6]; 6];
            for xi in 0..POSITIONS {
                // SAFETY: asserted, as `at + 8 <= count`.
                m[xi / 6][xi % 6] = unsafe { V::load(source.as_ptr().add(xi * count + at)) };
            }
            let w = both_ways!(m, weight_gradients_1d, 6 => 3);
            for k in 0..9 {
                let value = w[k / 3][k % 3];
                // SAFETY: asserted, as `at + 8 <= count`.
                unsafe {
                    let to = target.as_mut_ptr().add(k * stride + at);
                    if keep { V::load(to).add(value).store(to) } else { value.store(to) }
                }
            }
        }
    }
}
