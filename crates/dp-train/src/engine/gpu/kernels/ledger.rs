//! What keeps a kernel that was lost from going unnoticed.
//!
//! A driver that drops some commands leaves old numbers in place of new ones: norms or sums of other examples, or another
//! step's noise. So every pass begins by blanking what its kernels are to fill, with numbers that are none, and by writing the
//! pass's stamp; whoever uses them looks for it. What is not a number becomes factor 0 in a norm and a failure in a sum.

use cubecl::prelude::*;

use super::elementwise::position;

/// The stamp of the pass, whether something failed, and how many updates were made.
pub(crate) const STAMP: usize = 0;
pub(crate) const FAILED: usize = 1;
pub(crate) const UPDATES: usize = 2;
/// Words of a ledger.
pub(crate) const WORDS: usize = 3;

/// Blanks `squares` and, from `first` on, `parts`; writes the stamp.
#[cube(launch)]
pub(crate) fn begin(
    squares: &mut [f32],
    parts: &mut [f32],
    ledger: &mut [u32],
    squares_length: u32,
    first: u32,
    parts_length: u32,
    stamp: u32,
) {
    let index = position();
    let blank = f32::reinterpret(0x7fc0_0000u32);
    if index < squares_length as usize {
        squares[index] = blank;
    }
    if index < parts_length as usize {
        parts[first as usize + index] = blank;
    }
    if index == 0 {
        ledger[STAMP] = stamp;
    }
}
