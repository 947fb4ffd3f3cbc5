//! When ghost norms pay, for every engine.

/// Multiplications that holding one more weight of one example is worth: it is written, squared,
/// read again and added to the sum.
pub(crate) const MULTIPLICATIONS_PER_WEIGHT: usize = 16;
