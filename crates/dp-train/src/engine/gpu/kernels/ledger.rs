//! What keeps a kernel or an upload that was lost from going unnoticed.
//!
//! A driver that drops some commands leaves old numbers in place of new ones: images, norms or sums of other examples, or
//! another step's noise. So every kernel enters itself in the ledger, and whoever reads it knows how many there must be.
//! Beside that a pass begins by blanking what its kernels are to fill with numbers that are none, which become factor 0 in
//! a norm and a failure in a sum, and by writing the pass's stamp. Behind what is uploaded for a step stands a stamp too:
//! the kernel that uses it looks for it.

use cubecl::prelude::*;

use super::position::position;

/// The stamp of the pass, whether something failed, and how many kernels have run.
pub(crate) const STAMP: usize = 0;
pub(crate) const FAILED: usize = 1;
pub(crate) const KERNELS: usize = 2;
/// Words of a ledger.
pub(crate) const WORDS: usize = 3;

/// Enters a kernel. One unit does so, and kernels run one after the other.
#[cube]
pub(crate) fn enter(ledger: &mut [u32]) {
    if UNIT_POS == 0 && CUBE_POS_X == 0 && CUBE_POS_Y == 0 && CUBE_POS_Z == 0 {
        ledger[KERNELS] += 1u32;
    }
}

/// Blanks `squares`, `factors` and, from `first` on, `parts`; writes the stamp.
#[cube(launch)]
pub(crate) fn begin(
    ledger: &mut [u32],
    squares: &mut [f32],
    factors: &mut [f32],
    parts: &mut [f32],
    squares_length: u32,
    factors_length: u32,
    first: u32,
    parts_length: u32,
    stamp: u32,
) {
    enter(ledger);
    let index = position();
    let blank = f32::reinterpret(0x7fc0_0000u32);
    if index < squares_length as usize {
        squares[index] = blank;
    }
    if index < factors_length as usize {
        factors[index] = blank;
    }
    if index < parts_length as usize {
        parts[first as usize + index] = blank;
    }
    if index == 0 {
        ledger[STAMP] = stamp;
    }
}
