//! One use of a layer in a pass, and the gradients of single examples that follow from it.

use std::ops::Range;

use burn::module::ParamId;
use burn::tensor::{Device, Gradients, IndexingUpdateOp, Int, Tensor};

use super::window::Window;
use crate::engine::{
    Scales, add_outer_products, ghost_pays, rounded_up, squared_norms, sum_of_squares,
};

/// A layer's input and parameters, and the tap on its output `[n, a, b]`.
#[derive(Debug)]
pub(super) struct LayerUse {
    pub(super) layer: LayerInput,
    pub(super) tap: Tensor<3>,
}

/// What a kind of layer saw. Parameters that are not trained are none.
#[derive(Debug, Clone)]
pub(super) enum LayerInput {
    /// `y_p = x_p W + b` at every position: `x: [n, positions, in]`, the output `[n, positions, out]`.
    Linear { weight: Option<ParamId>, bias: Option<ParamId>, x: Tensor<3> },
    /// The same over windows of an image: the output is `[n, out, positions]`.
    Convolution { weight: Option<ParamId>, bias: Option<ParamId>, x: Tensor<4>, window: Window },
    /// Rows of a table: `indices: [n, positions]`, the output `[n, positions, width]`.
    Lookup { weight: ParamId, rows: usize, indices: Tensor<2, Int> },
    /// `y = scale * x + shift` along the last axis, or along the one before it.
    Scale { scale: Option<ParamId>, shift: Option<ParamId>, x: Tensor<3>, last: bool },
    /// A copy of the parameter for every example: the output is `[n, 1, weights]`.
    Whole { parameter: ParamId },
}

/// A use after the backward pass: the gradient of the losses' sum with respect to the output is known.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    layer: LayerInput,
    dy: Tensor<3>,
}

/// Gradients of parameters: rows of examples, or sums.
pub(super) type OfParameters<const D: usize> = Vec<(ParamId, Tensor<D>)>;

impl LayerUse {
    /// The use with the gradient of its output; none if the losses do not depend on it.
    pub(super) fn seen(self, gradients: &mut Gradients) -> Option<Seen> {
        let dy = self.tap.grad_remove(gradients)?;
        Some(Seen { layer: self.layer, dy })
    }

    /// Examples that went through.
    pub(super) fn examples(&self) -> usize {
        self.tap.dims()[0]
    }

    /// Numbers that it puts out for an example.
    pub(super) fn outputs(&self) -> usize {
        let [_, a, b] = self.tap.dims();
        a * b
    }

    /// Parameters that it trains.
    pub(super) fn parameters(&self) -> Vec<ParamId> {
        self.layer.parameters()
    }
}

impl LayerInput {
    fn parameters(&self) -> Vec<ParamId> {
        match self {
            Self::Linear { weight, bias, .. } | Self::Convolution { weight, bias, .. } => {
                weight.iter().chain(bias).copied().collect()
            }
            Self::Lookup { weight, .. } => vec![*weight],
            Self::Scale { scale, shift, .. } => scale.iter().chain(shift).copied().collect(),
            Self::Whole { parameter } => vec![*parameter],
        }
    }
}

impl Seen {
    pub(super) fn parameters(&self) -> Vec<ParamId> {
        self.layer.parameters()
    }

    /// The examples whose outputs the losses depend on. What is not finite tells nothing.
    pub(super) fn reached(&self) -> impl Iterator<Item = usize> {
        let numbers: Vec<f32> = self.dy.clone().into_data().try_to_vec().expect("it is f32");
        let length = (numbers.len() / self.dy.dims()[0]).max(1);
        let reached: Vec<bool> = numbers
            .chunks(length)
            .map(|row| row.iter().any(|&number| number != 0.0 && number.is_finite()))
            .collect();
        (0..reached.len()).filter(move |&example| reached[example])
    }

    /// The same of some of the examples.
    pub(super) fn of(&self, examples: Range<usize>) -> Self {
        let some = || [examples.clone()];
        let mut layer = self.layer.clone();
        match &mut layer {
            LayerInput::Linear { x, .. } | LayerInput::Scale { x, .. } => {
                *x = x.clone().slice(some());
            }
            LayerInput::Convolution { x, .. } => *x = x.clone().slice(some()),
            LayerInput::Lookup { indices, .. } => *indices = indices.clone().slice(some()),
            LayerInput::Whole { .. } => {}
        }
        Self { layer, dy: self.dy.clone().slice(some()) }
    }

    /// Uses of one layer as one, with the positions of all; none if they are of other kinds or parameters.
    pub(super) fn joined(uses: &[Self]) -> Option<Self> {
        let (first, rest) = uses.split_first()?;
        if rest.iter().any(|other| other.parameters() != first.parameters()) {
            return None;
        }
        let layer = match &first.layer {
            LayerInput::Linear { weight, bias, .. } => {
                let vectors = uses.iter().map(|seen| match &seen.layer {
                    LayerInput::Linear { x, .. } => Some(x.clone()),
                    _ => None,
                });
                let x = Tensor::cat(vectors.collect::<Option<_>>()?, 1);
                LayerInput::Linear { weight: *weight, bias: *bias, x }
            }
            LayerInput::Lookup { weight, rows, .. } => {
                let indices = uses.iter().map(|seen| match &seen.layer {
                    LayerInput::Lookup { indices, .. } => Some(indices.clone()),
                    _ => None,
                });
                let indices = Tensor::cat(indices.collect::<Option<_>>()?, 1);
                LayerInput::Lookup { weight: *weight, rows: *rows, indices }
            }
            _ => return None,
        };
        let dy = uses.iter().map(|seen| seen.dy.clone()).collect();
        Some(Self { layer, dy: Tensor::cat(dy, 1) })
    }

    /// The gradient of every example: `[n, weights]` for each parameter.
    pub(super) fn rows(&self) -> OfParameters<2> {
        let dy = self.dy.clone();
        let n = dy.dims()[0];
        let flat = |rows: Tensor<3>| {
            let [n, a, b] = rows.dims();
            rows.reshape([n, a * b])
        };
        match &self.layer {
            LayerInput::Linear { weight, bias, x } => both(
                weight.map(|id| (id, flat(x.clone().swap_dims(1, 2).matmul(dy.clone())))),
                bias.map(|id| (id, flat(dy.clone().sum_dim(1)))),
            ),
            LayerInput::Convolution { weight, bias, x, window } => both(
                weight.map(|id| {
                    let windows = window.columns(x.clone());
                    let rows = window.grouped(dy.clone()).matmul(windows.swap_dims(2, 3));
                    let [n, groups, outer, inner] = rows.dims();
                    (id, rows.reshape([n, groups * outer * inner]))
                }),
                bias.map(|id| (id, flat(dy.clone().sum_dim(2)))),
            ),
            LayerInput::Lookup { weight, rows, indices } => {
                let hot: Tensor<3, Int> = indices.clone().one_hot(*rows);
                vec![(*weight, flat(hot.float().swap_dims(1, 2).matmul(dy)))]
            }
            LayerInput::Scale { scale, shift, x, last } => {
                let axis = if *last { 1 } else { 2 };
                both(
                    scale.map(|id| (id, flat((x.clone() * dy.clone()).sum_dim(axis)))),
                    shift.map(|id| (id, flat(dy.clone().sum_dim(axis)))),
                )
            }
            LayerInput::Whole { parameter } => {
                let weights = dy.dims()[2];
                vec![(*parameter, dy.reshape([n, weights]))]
            }
        }
    }

    /// Whether every example's gradient of the weights is one outer product: a linear layer at one position.
    pub(super) fn is_outer_product(&self) -> bool {
        matches!(self.layer, LayerInput::Linear { weight: Some(_), .. }) && self.dy.dims()[1] == 1
    }

    /// Whether its tensors lie in the host's memory.
    pub(super) fn is_on_host(&self) -> bool {
        let device = self.dy.device().inner();
        #[cfg(feature = "flex")]
        let is_flex = device == Device::flex();
        #[cfg(not(feature = "flex"))]
        let is_flex = false;
        #[cfg(feature = "ndarray")]
        #[allow(deprecated)] // It is offered as long as burn does.
        let is_ndarray = device == Device::ndarray();
        #[cfg(not(feature = "ndarray"))]
        let is_ndarray = false;
        is_flex || is_ndarray
    }

    /// Adds `sum_j s_j g_j` of such a layer, where tensors lie in the host's memory, to the numbers of each parameter in `all`. An
    /// example of scale zero adds nothing.
    pub(super) fn add_outer_products(
        self,
        scales: &[f32],
        range: impl Fn(ParamId) -> Range<usize>,
        all: &mut [f64],
    ) {
        let LayerInput::Linear { weight, bias, x } = self.layer else { return };
        let (x, dy) = (x.into_data(), self.dy.into_data());
        let x: &[f32] = x.as_slice().expect("it is f32");
        let dy: &[f32] = dy.as_slice().expect("it is f32");
        if let Some(id) = weight {
            add_outer_products(x, dy, scales, &mut all[range(id)]);
        }
        if let Some(id) = bias {
            let sum = &mut all[range(id)];
            for (row, &scale) in dy.chunks_exact(sum.len()).zip(scales).filter(|(_, s)| **s != 0.0)
            {
                let terms = row.iter().map(|dy| f64::from(scale) * f64::from(*dy));
                sum.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
            }
        }
    }

    /// Whether norms without [`rows`](Self::rows) are cheaper.
    fn has_ghosts(&self) -> bool {
        let [_, a, b] = self.dy.dims();
        match &self.layer {
            LayerInput::Linear { weight: Some(_), x, .. } => {
                a == 1 || ghost_pays(a, x.dims()[2], b)
            }
            LayerInput::Convolution { weight: Some(_), window, .. } => {
                ghost_pays(b, window.inputs(), a / window.groups)
            }
            LayerInput::Lookup { rows, .. } => a * a < rows * b,
            _ => false,
        }
    }

    /// Whether an example's part of [`sum`](Self::sum) is added up from products that may be larger than itself: its
    /// rows are never made, and it has several positions.
    pub(super) fn cancels(&self) -> bool {
        self.has_ghosts() && !self.is_outer_product()
    }

    /// The squared norm of every example's gradient, rounded up, where that is cheaper than the [`rows`](Self::rows).
    pub(super) fn squared_norms(&self) -> Option<Tensor<1>> {
        if !self.has_ghosts() {
            return None;
        }
        let [n, ..] = self.dy.dims();
        match &self.layer {
            LayerInput::Linear { weight: Some(_), bias, x } => {
                let ([_, positions, inner], outer) = (x.dims(), self.dy.dims()[2]);
                if positions == 1 {
                    let x = sum_of_squares(x.clone().reshape([n, inner]));
                    let one = if bias.is_some() { 1.0 } else { 0.0 };
                    // Squares that vanish in f32 may stand beside huge numbers in the other factor.
                    let vanished = |numbers: usize| numbers as f32 * f32::MIN_POSITIVE;
                    let dy = sum_of_squares(self.dy.clone().reshape([n, outer]));
                    let (x, dy) =
                        (x.add_scalar(one + vanished(inner)), dy.add_scalar(vanished(outer)));
                    return Some(rounded_up(x * dy, 4));
                }
                let by_column = |t: &Tensor<3>| {
                    let [n, positions, width] = t.dims();
                    t.clone().swap_dims(1, 2).reshape([n, 1, width, positions])
                };
                Some(squared_norms(by_column(x), by_column(&self.dy), bias.is_some()))
            }
            LayerInput::Convolution { weight: Some(_), bias, x, window } => {
                let windows = window.columns(x.clone());
                Some(squared_norms(windows, window.grouped(self.dy.clone()), bias.is_some()))
            }
            LayerInput::Lookup { indices, .. } => Some(lookup_norms(indices, &self.dy)),
            _ => None,
        }
    }

    /// `sum_j s_j g_j` of the examples' gradients for each parameter, flat.
    pub(super) fn sum(self, scales: &Scales) -> OfParameters<1> {
        let dy = scales.scaled(self.dy);
        let [n, a, b] = dy.dims();
        match self.layer {
            LayerInput::Linear { weight, bias, x } => {
                let inner = x.dims()[2];
                let (x, dy) =
                    (scales.without_bad(x).reshape([n * a, inner]), dy.reshape([n * a, b]));
                both(
                    weight.map(|id| (id, x.transpose().matmul(dy.clone()).reshape([inner * b]))),
                    bias.map(|id| (id, dy.sum_dim(0).reshape([b]))),
                )
            }
            LayerInput::Convolution { weight, bias, x, window } => {
                let of_bias = bias.map(|id| (id, dy.clone().sum_dim(2).sum_dim(0).reshape([a])));
                let of_weight = weight.map(|id| {
                    let windows = window.columns(scales.without_bad(x));
                    let [_, groups, inner, positions] = windows.dims();
                    // One product over the positions of all examples.
                    let windows =
                        windows.permute([1, 2, 0, 3]).reshape([groups, inner, n * positions]);
                    let dy = window.grouped(dy).permute([1, 2, 0, 3]);
                    let dy = dy.reshape([groups, a / groups, n * positions]);
                    (id, dy.matmul(windows.swap_dims(1, 2)).reshape([a * inner]))
                });
                both(of_weight, of_bias)
            }
            LayerInput::Lookup { weight, rows, indices } => {
                let table = Tensor::zeros([rows, b], &dy.device());
                let (indices, dy) = (indices.reshape([n * a]), dy.reshape([n * a, b]));
                let sum = table.select_assign(0, indices, dy, IndexingUpdateOp::Add);
                vec![(weight, sum.reshape([rows * b]))]
            }
            layer => {
                let layer = match layer {
                    LayerInput::Scale { scale, shift, x, last } => {
                        LayerInput::Scale { scale, shift, x: scales.without_bad(x), last }
                    }
                    layer => layer,
                };
                let rows = Self { layer, dy }.rows().into_iter();
                rows.map(|(id, rows)| {
                    let weights = rows.dims()[1];
                    (id, rows.sum_dim(0).reshape([weights]))
                })
                .collect()
            }
        }
    }
}

/// Those of two that are there.
fn both<T>(first: Option<T>, second: Option<T>) -> Vec<T> {
    first.into_iter().chain(second).collect()
}

/// `sum_{p,q} [i_p = i_q] <g_p, g_q>` per example, rounded up: the squared norm of the sums of output gradients that fall on
/// the same row of a table. The error is relative to `(sum_p |g_p|)^2`, as terms cancel.
fn lookup_norms(indices: &Tensor<2, Int>, dy: &Tensor<3>) -> Tensor<1> {
    let [n, positions, width] = dy.dims();
    let vanished = (positions * positions * width) as f32 * f32::MIN_POSITIVE;
    let lengths = dy.clone().square().sum_dim(2).sqrt();
    let bound = lengths.sum_dim(1).square().reshape([n]);
    let column = indices.clone().reshape([n, positions, 1]).expand([n, positions, positions]);
    let row = indices.clone().reshape([n, 1, positions]).expand([n, positions, positions]);
    let same = column.equal(row).float();
    let products = dy.clone().matmul(dy.clone().swap_dims(1, 2));
    let sum = (same * products).sum_dim(2).sum_dim(1).reshape([n]);
    let terms = width + 2 * positions;
    let lost = rounded_up(bound, terms).mul_scalar(2.0 * crate::engine::rounding_error(terms));
    rounded_up(sum.abs() + lost.add_scalar(vanished), 4)
}
