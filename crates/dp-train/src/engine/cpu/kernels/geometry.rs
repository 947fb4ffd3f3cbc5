//! The geometry of one convolution.
//!
//! A linear layer is the convolution whose window is the whole image: PyTorch's weight `[out, in]`
//! after flattening is `[out, channels, height, width]`.

use crate::engine::cpu::kernels::plane::{Planes, Size};

/// Layouts, window, stride and padding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) planes: Planes,
    pub(crate) kernel: Size,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
}

/// How the input gradient is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backward {
    /// Stride 1: a convolution of the output gradient with the flipped weights.
    Flipped,
    /// Each output pixel's patch of the input gradient, added where it belongs.
    Patches,
}

impl Geometry {
    /// Zeros that the layout of the output gradient needs around it for such a window.
    pub(crate) fn gradient_border(kernel: usize, stride: usize, padding: usize) -> usize {
        if stride == 1 && padding < kernel { kernel - 1 - padding } else { 0 }
    }

    /// How the input gradient is computed.
    pub(crate) fn backward(&self) -> Backward {
        let fits = self.padding < self.kernel.height.min(self.kernel.width);
        let dense = self.positions() == 1;
        if self.stride == 1 && fits && !dense { Backward::Flipped } else { Backward::Patches }
    }

    /// Output pixels.
    pub(crate) fn positions(&self) -> usize {
        self.planes.output.size().area()
    }

    /// Floats of one window of the input.
    pub(crate) fn window(&self) -> usize {
        self.kernel.area() * self.planes.input.pitch
    }

    /// Floats of the packed gradient: `[kh][kw][in pitch][out pitch]`, then the bias.
    pub(crate) fn packed(&self) -> usize {
        (self.window() + 1) * self.planes.output.pitch
    }
}
