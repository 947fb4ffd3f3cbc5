//! Parameters in the order in which the products read them, and gradients back in PyTorch's order.

use super::{Backward, Convolution};
use crate::engine::cpu::kernels::tile::COLUMNS;
use crate::engine::cpu::kernels::vector::Isa;

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

impl Convolution {
    /// Brings weights and bias into the order of the products. O(weights).
    pub(crate) fn pack(&self, isa: Isa, (source, bias): (&[f32], &[f32]), weights: &mut Weights) {
        let (kh, kw) = self.kernel;
        let (ci, co) = (self.input.channels, self.output.channels);
        let (ci_pitch, co_pitch) = (self.input.pitch, self.output.pitch);
        weights.bias.resize(co_pitch, 0.0);
        weights.bias[..co].copy_from_slice(bias);
        if let Some(winograd) = &self.winograd {
            winograd.pack(isa, self, source, weights);
            return;
        }
        let window = self.window();
        weights.forward.resize(window * co_pitch, 0.0);
        let backward = self.input_gradient.is_some().then(|| self.backward_kind());
        if backward.is_some() {
            weights.backward.resize(window * co_pitch, 0.0);
        }
        for o in 0..co {
            for i in 0..ci {
                for y in 0..kh {
                    for x in 0..kw {
                        let value = source[((o * ci + i) * kh + y) * kw + x];
                        let k = (y * kw + x) * ci_pitch + i;
                        let group = o / COLUMNS * window;
                        weights.forward[(group + k) * COLUMNS + o % COLUMNS] = value;
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
                        weights.backward[at] = value;
                    }
                }
            }
        }
    }

    /// Writes a packed gradient in PyTorch's order to those of weights and bias.
    pub(crate) fn unpack(&self, packed: &[f64], (target, to): (&mut [f64], &mut [f64])) {
        let (kh, kw) = self.kernel;
        let (ci, co) = (self.input.channels, self.output.channels);
        let co_pitch = self.output.pitch;
        let (weights, bias) = packed.split_at(self.window() * co_pitch);
        let area = kh * kw;
        for k in 0..area {
            for i in 0..ci {
                let row = &weights[(k * self.input.pitch + i) * co_pitch..][..co];
                for (o, value) in row.iter().enumerate() {
                    target[(o * ci + i) * area + k] = *value;
                }
            }
        }
        to.copy_from_slice(&bias[..co]);
    }
}
