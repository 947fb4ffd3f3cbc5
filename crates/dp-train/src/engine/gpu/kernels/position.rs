//! Where a unit stands in a grid of one number per unit.

use cubecl::prelude::*;

use super::{SPAN, UNITS};

/// The number of a unit in a grid that is spread over two axes.
#[cube]
pub(crate) fn position() -> usize {
    (CUBE_POS_Z as usize * SPAN + CUBE_POS_X as usize) * UNITS + UNIT_POS as usize
}
