//! The transforms of Winograd's F(4x4, 3x3), a vector of channels at a time.

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

/// `[e(0), e(1), ...]` with as many entries as the first argument says.
///
/// A macro, because a loop over an array would begin with a call that fills it with zeros, and a function
/// passed as an argument would be called through a shim that is not compiled for the instruction set.
macro_rules! each {
    (3, $k:ident => $e:expr) => {
        [
            {
                let $k = 0;
                $e
            },
            {
                let $k = 1;
                $e
            },
            {
                let $k = 2;
                $e
            },
        ]
    };
    (4, $k:ident => $e:expr) => {
        [
            {
                let $k = 0;
                $e
            },
            {
                let $k = 1;
                $e
            },
            {
                let $k = 2;
                $e
            },
            {
                let $k = 3;
                $e
            },
        ]
    };
    (6, $k:ident => $e:expr) => {
        [
            {
                let $k = 0;
                $e
            },
            {
                let $k = 1;
                $e
            },
            {
                let $k = 2;
                $e
            },
            {
                let $k = 3;
                $e
            },
            {
                let $k = 4;
                $e
            },
            {
                let $k = 5;
                $e
            },
        ]
    };
}

/// A 1-D transform of the columns of an `n x n` array and then of the rows of the result, `m x m`.
macro_rules! both_ways {
    ($i:ident, $j:ident => $d:expr, $transform:ident, $n:tt => $m:tt) => {{
        let half = each!($n, $j => $transform(each!($n, $i => $d)));
        each!($m, $i => $transform(each!($n, $j => half[$j][$i])))
    }};
}

/// What becomes of a pixel before it is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Finish<'a> {
    /// The bias is added, and ReLU follows if it is asked for.
    Forward { bias: &'a [f32], relu: bool },
    /// A gradient stays as it is.
    Gradient,
    /// A gradient stays where ReLU made a positive value of its input, and is zero elsewhere.
    Relu { values: &'a [f32], plane: &'a Plane },
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
                    for channel in (0..plane.pitch).step_by(V::LANES) {
                        // SAFETY: rows and columns of all tiles were asserted to lie in the layout, and
                        // the layout in the source; the last position and tile in the target.
                        unsafe {
                            let from = source.as_ptr().add(corner + channel);
                            let d = both_ways!(
                                i, j => V::load(from.add(plane.bordered(i, j))),
                                inputs_1d, 6 => 6
                            );
                            let to = target.as_mut_ptr().add(at + channel);
                            each!(6, i => each!(6, j => d[i][j].store(to.add((6 * i + j) * stride))));
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
                    for channel in (0..plane.pitch).step_by(V::LANES) {
                        // SAFETY: asserted as for the inputs.
                        unsafe {
                            let from = source.as_ptr().add(corner + channel);
                            let y = both_ways!(
                                i, j => V::load(from.add(plane.bordered(i, j))),
                                gradients_1d, 4 => 6
                            );
                            let to = target.as_mut_ptr().add(at + channel);
                            each!(6, i => each!(6, j => y[i][j].store(to.add((6 * i + j) * stride))));
                        }
                    }
                    at += plane.pitch;
                }
            }
        }
    }
}

kernel! {
    /// The pixels `A' m A` of every tile, as far as they lie in the image, finished.
    ///
    /// # Panics
    /// Unless layout, tiles and stride stay inside the slices.
    pub(crate) fn outputs<V>(
        tiles: Tiles<'_>,
        source: &[f32],
        stride: usize,
        finish: Finish<'_>,
        target: &mut [f32],
    ) {
        let Tiles { plane, grid, samples } = tiles;
        assert!(source.len() >= (POSITIONS - 1) * stride + tiles.count() * plane.pitch);
        assert!(target.len() >= samples * plane.len());
        match finish {
            Finish::Forward { bias, .. } => assert!(bias.len() >= plane.pitch),
            Finish::Gradient => {}
            Finish::Relu { values, plane: other } => {
                assert!(values.len() >= samples * other.len() && other.pitch >= plane.pitch);
                assert!((other.height, other.width) == (plane.height, plane.width));
            }
        }
        let mut at = 0;
        for sample in 0..samples {
            for ty in 0..grid.height {
                for tx in 0..grid.width {
                    let corner = sample * plane.len() + plane.pixel(TILE * ty, TILE * tx);
                    let rows = TILE.min(plane.height - TILE * ty);
                    let columns = TILE.min(plane.width - TILE * tx);
                    for channel in (0..plane.pitch).step_by(V::LANES) {
                        // SAFETY: asserted for the last position and tile of the source; the bias has a whole
                        // pixel; only pixels that lie in the image are stored or read as values, and the
                        // image lies in the target and in the values.
                        unsafe {
                            let from = source.as_ptr().add(at + channel);
                            let mut y = both_ways!(
                                i, j => V::load(from.add((6 * i + j) * stride)),
                                outputs_1d, 6 => 4
                            );
                            match finish {
                                Finish::Forward { bias, relu } => {
                                    let bias = V::load(bias.as_ptr().add(channel));
                                    y = each!(4, i => each!(4, j => y[i][j].add(bias)));
                                    if relu {
                                        y = each!(4, i => each!(4, j => y[i][j].relu()));
                                    }
                                }
                                Finish::Gradient => {}
                                Finish::Relu { values, plane } => {
                                    let corner =
                                        sample * plane.len() + plane.pixel(TILE * ty, TILE * tx);
                                    let x = values.as_ptr().add(corner + channel);
                                    for i in 0..rows {
                                        for j in 0..columns {
                                            let x = V::load(x.add(plane.bordered(i, j)));
                                            y[i][j] = x.where_positive(y[i][j]);
                                        }
                                    }
                                }
                            }
                            let to = target.as_mut_ptr().add(corner + channel);
                            if (rows, columns) == (TILE, TILE) {
                                each!(4, i => each!(4, j => y[i][j].store(to.add(plane.bordered(i, j)))));
                            } else {
                                for i in 0..rows {
                                    for j in 0..columns {
                                        y[i][j].store(to.add(plane.bordered(i, j)));
                                    }
                                }
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
            for o in (0..outer).step_by(V::LANES) {
                let at = (o / COLUMNS * inner + i) * COLUMNS + o % COLUMNS;
                // SAFETY: asserted, as `i * outer + o + LANES <= size` and `at + LANES <= size`.
                unsafe {
                    let from = source.as_ptr().add(i * outer + o);
                    let w = both_ways!(
                        i, j => V::load(from.add((3 * i + j) * size)),
                        weights_1d, 3 => 6
                    );
                    let to = target.as_mut_ptr().add(at);
                    each!(6, i => each!(6, j => w[i][j].store(to.add((6 * i + j) * size))));
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
        assert_eq!(count % V::LANES, 0);
        for at in (0..count).step_by(V::LANES) {
            // SAFETY: asserted, as `at + LANES <= count`.
            unsafe {
                let from = source.as_ptr().add(at);
                let mut w = both_ways!(
                    i, j => V::load(from.add((6 * i + j) * count)),
                    weight_gradients_1d, 6 => 3
                );
                let to = target.as_mut_ptr().add(at);
                if keep {
                    w = each!(3, i => each!(3, j => V::load(to.add((3 * i + j) * stride)).add(w[i][j])));
                }
                each!(3, i => each!(3, j => w[i][j].store(to.add((3 * i + j) * stride))));
            }
        }
    }
}
