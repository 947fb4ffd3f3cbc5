//! The second form of the products, for software that stands in for a GPU: registers and shuffles in place of shared memory.
//!
//! llvmpipe makes one vector of the processor of 8 units, its plane. It loads a vector number by number, from shared memory too:
//! 16 ns, the time of 45 multiplications and additions of vectors (Mesa 22.3, 256 bits, measured); and at each barrier
//! it changes coroutines. A shuffle with a known source is one instruction. So a plane
//! here loads numbers that are all different, one in each lane, and hands those that all lanes need from one to the next: 22
//! loads make 576 multiplications of vectors in a convolution of 3 x 3, 14 make 288 in the gradient of its weights.
//!
//! Which products have this form is a rule of their sizes ([`Form::of`], [`gram::fits`]); the others are tiles everywhere.

pub(crate) mod convolution;
pub(crate) mod gram;
pub(crate) mod weight_gradient;

use cubecl::prelude::*;

use super::UNITS;
use super::geometry::Geometry;
use super::position::position;
use super::product::Way;

/// Units of a plane.
pub(crate) const LANES: usize = 8;
/// Pixels along a side of the square of outputs that a plane makes for 8 channels.
pub(crate) const SQUARE: usize = 8;

/// How a product is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// Tiles of strips in shared memory: for GPUs.
    Tiles,
    /// Planes of 8 lanes that hand numbers around.
    Lanes,
}

impl Form {
    /// That of a convolution and its gradients on a device whose form is `self`: lanes for windows that move by one pixel and are
    /// small enough to be written out, over more than a few pixels.
    pub(crate) fn of(self, g: &Geometry) -> Self {
        let small = g.kernel <= 5 && g.padding < g.kernel;
        if self == Self::Lanes && g.stride == 1 && small && g.area() >= 2 * LANES {
            Self::Lanes
        } else {
            Self::Tiles
        }
    }
}

/// Squares of outputs in an image.
pub(crate) fn tiles(rows: usize, columns: usize) -> usize {
    rows.div_ceil(SQUARE) * columns.div_ceil(SQUARE)
}

/// Planes of a convolution.
pub(crate) fn convolution_planes(g: &Geometry, way: Way, images: usize) -> usize {
    match way {
        Way::Forward => images * tiles(g.rows, g.columns) * g.groups * g.outer.div_ceil(LANES),
        Way::Turned => images * tiles(g.height, g.width) * g.groups * g.inner.div_ceil(LANES),
    }
}

/// The number of a plane in a grid that is spread over two axes.
#[cube]
pub(crate) fn plane() -> usize {
    position() / LANES
}

/// Planes of a cube.
pub(crate) const PLANES: usize = UNITS / LANES;
