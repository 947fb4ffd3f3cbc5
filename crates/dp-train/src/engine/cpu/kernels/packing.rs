//! Parameters in the order in which the products read them, and gradients back in PyTorch's order.

use crate::engine::cpu::kernels::geometry::{Backward, Geometry};
use crate::engine::cpu::kernels::plane::Size;
use crate::engine::cpu::kernels::tile::COLUMNS;

/// The parameters of one convolution in the order in which the products read them.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    pub(crate) forward: Vec<f32>,
    pub(crate) backward: Vec<f32>,
    /// Scratch: the weights before a transform.
    pub(crate) plain: Vec<f32>,
    pub(crate) bias: Vec<f32>,
    /// One per group of a grouped convolution, which uses nothing else.
    pub(crate) groups: Vec<Weights>,
}

impl Weights {
    /// The bias, filled up to whole vectors.
    pub(crate) fn pack_bias(&mut self, geometry: &Geometry, bias: &[f32]) {
        self.bias.resize(geometry.planes.output.pitch, 0.0);
        self.bias[..bias.len()].copy_from_slice(bias);
    }

    /// The weights for direct convolutions. O(weights).
    pub(crate) fn pack(&mut self, geometry: &Geometry, source: &[f32]) {
        let Size { height: kh, width: kw } = geometry.kernel;
        let (input, output) = (geometry.planes.input, geometry.planes.output);
        let (ci, co) = (input.channels, output.channels);
        let (ci_pitch, co_pitch) = (input.pitch, output.pitch);
        let window = geometry.window();
        self.forward.resize(window * co_pitch, 0.0);
        let backward = geometry.planes.input_gradient.is_some().then(|| geometry.backward());
        if backward.is_some() {
            self.backward.resize(window * co_pitch, 0.0);
        }
        for o in 0..co {
            for i in 0..ci {
                for y in 0..kh {
                    for x in 0..kw {
                        let value = source[((o * ci + i) * kh + y) * kw + x];
                        let k = (y * kw + x) * ci_pitch + i;
                        let group = o / COLUMNS * window;
                        self.forward[(group + k) * COLUMNS + o % COLUMNS] = value;
                        let at = match backward {
                            None => continue,
                            Some(Backward::Flipped) => {
                                let k = ((kh - 1 - y) * kw + kw - 1 - x) * co_pitch + o;
                                let group = i / COLUMNS * (kh * kw * co_pitch);
                                (group + k) * COLUMNS + i % COLUMNS
                            }
                            Some(Backward::Patches) => {
                                (k / COLUMNS * co_pitch + o) * COLUMNS + k % COLUMNS
                            }
                        };
                        self.backward[at] = value;
                    }
                }
            }
        }
    }
}

/// Writes a packed gradient in PyTorch's order to those of weights and bias.
pub(crate) fn unpack(geometry: &Geometry, packed: &[f64], weight: &mut [f64], bias: &mut [f64]) {
    let (input, output) = (geometry.planes.input, geometry.planes.output);
    let (ci, co, area) = (input.channels, output.channels, geometry.kernel.area());
    let (weights, biases) = packed.split_at(geometry.window() * output.pitch);
    for k in 0..area {
        for i in 0..ci {
            let row = &weights[(k * input.pitch + i) * output.pitch..][..co];
            for (o, value) in row.iter().enumerate() {
                weight[(o * ci + i) * area + k] = *value;
            }
        }
    }
    bias.copy_from_slice(&biases[..co]);
}
