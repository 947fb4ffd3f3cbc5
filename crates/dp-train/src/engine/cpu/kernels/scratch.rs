//! Scratch memory that convolutions share.

/// One thread's scratch memory, lent to one convolution.
#[derive(Debug)]
pub(crate) struct Scratch<'a> {
    /// Winograd's transformed inputs: the forward pass makes them, the weight gradient reads them.
    pub(crate) transformed: &'a mut [f32],
    pub(crate) left: &'a mut [f32],
    pub(crate) right: &'a mut [f32],
    /// Patches of an input gradient.
    pub(crate) patches: &'a mut [f32],
}
