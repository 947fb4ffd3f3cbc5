//! An architecture as the device runs it: kernels with their sizes, and the places of all numbers.

use super::kernels::activation::Activation;
use super::kernels::geometry::{Geometry, tall};
use super::kernels::lanes::{self, Form};
use super::kernels::pool::Pooling;
use super::kernels::{SIDE, UNITS, gram};
use crate::engine::error::EngineError;
use crate::engine::sizes::Sizes;
use crate::model::{Architecture, Layer, Shape};

/// What holding one weight of one example is worth in multiplications: it is written once and read once, 8 bytes, and a GPU
/// does about 40 multiplications in the time of a byte.
const MULTIPLICATIONS_PER_WEIGHT: usize = 300;

/// What is done to a value to get the next one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    /// A convolution, or a linear layer as one over a single pixel.
    Convolution {
        g: Geometry,
        at: usize,
        clipping: Clipping,
        /// Whether it also does the maximum that follows it.
        pooled: bool,
    },
    /// Group normalization; `g.inner` channels in each group.
    Normalization { g: Geometry, at: usize, held: usize, slot: usize },
    Pool {
        g: Geometry,
        pooling: Pooling,
        /// Whether the convolution before it does it.
        done: bool,
    },
    /// An activation with nothing before it that could apply it.
    Activation,
}

/// Where the norms of a layer's gradients come from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Clipping {
    /// The gradient of every example is held, at this place of its row.
    Held { held: usize, slot: usize },
    /// From Gram matrices; the clipped sum is made at once.
    Ghost { slot: usize },
}

/// Some weights of held rows that lie together in the flat vector too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldRange {
    pub(super) held: usize,
    pub(super) at: usize,
    pub(super) length: usize,
}

/// The network. Value `i` enters op `i`; there is one more than ops.
#[derive(Debug, Clone)]
pub(super) struct Network {
    pub(super) ops: Vec<Op>,
    /// Numbers of every value, for one image.
    pub(super) lengths: Vec<usize>,
    /// What was applied to every value as it was written.
    pub(super) activations: Vec<Activation>,
    /// The first op with parameters: no gradient goes further down.
    pub(super) first: usize,
    /// Length of the flat vector of parameters.
    pub(super) parameters: usize,
    pub(super) classes: usize,
    /// Images of an example.
    pub(super) views: usize,
    /// How products are made.
    pub(super) form: Form,
    /// Numbers that are held for an example.
    pub(super) held_row: usize,
    pub(super) held: Vec<HeldRange>,
    /// Partial squared norms of an example.
    pub(super) slots: usize,
    /// The most numbers that were added up in one slot.
    pub(super) slot_terms: usize,
}

impl Network {
    /// For examples of so many views. Layers are held or not by the rule of [`ghost_pays`].
    ///
    /// # Errors
    /// [`EngineError::NoLogits`] unless the architecture ends with a vector.
    pub(super) fn new(
        architecture: &Architecture,
        views: usize,
        form: Form,
    ) -> Result<Self, EngineError> {
        Sizes::of(architecture)?;
        let mut network = Self {
            ops: Vec::new(),
            lengths: vec![architecture.input().len()],
            activations: vec![Activation::None],
            first: 0,
            parameters: architecture.parameter_count(),
            classes: architecture.output().len(),
            views,
            form,
            held_row: 0,
            held: Vec::new(),
            slots: 0,
            slot_terms: 1,
        };
        for (index, &layer) in architecture.layers().iter().enumerate() {
            let at = architecture.parameters_of(index).first().map_or(0, |p| p.range.start);
            let (input, output) = (architecture.shapes()[index], architecture.shapes()[index + 1]);
            network.push(layer, at, image(input), image(output));
        }
        network.pool_in_convolutions();
        let has_parameters =
            |op: &Op| matches!(op, Op::Convolution { .. } | Op::Normalization { .. });
        network.first = network.ops.iter().position(has_parameters).unwrap_or(network.ops.len());
        Ok(network)
    }

    fn push(&mut self, layer: Layer, at: usize, input: [usize; 3], output: [usize; 3]) {
        let whole = |kernel, stride, padding, groups| Geometry {
            groups,
            inner: input[0] / groups,
            outer: output[0] / groups,
            height: input[1],
            width: input[2],
            rows: output[1],
            columns: output[2],
            kernel,
            stride,
            padding,
        };
        let op = match layer {
            Layer::Flatten => return,
            Layer::Relu | Layer::Tanh => {
                let activation =
                    if layer == Layer::Relu { Activation::Relu } else { Activation::Tanh };
                let last = self.ops.len();
                if last > 0 && self.activations[last] == Activation::None {
                    self.activations[last] = activation;
                    return;
                }
                self.ops.push(Op::Activation);
                self.lengths.push(self.lengths[last]);
                self.activations.push(activation);
                return;
            }
            Layer::Conv2d { kernel, stride, padding, groups, .. } => {
                self.convolution(whole(kernel, stride, padding, groups), at)
            }
            Layer::Linear { .. } => self.convolution(whole(1, 1, 0, 1), at),
            Layer::MaxPool2d { kernel, stride } => {
                Op::Pool { g: whole(kernel, stride, 0, 1), pooling: Pooling::Max, done: false }
            }
            Layer::AvgPool2d { kernel, stride } => {
                Op::Pool { g: whole(kernel, stride, 0, 1), pooling: Pooling::Mean, done: false }
            }
            Layer::GroupNorm { groups } => {
                let g = whole(1, 1, 0, groups);
                let slot = self.slots(groups, 2 * g.inner);
                Op::Normalization { g, at, held: self.hold(at, 2 * input[0]), slot }
            }
        };
        self.ops.push(op);
        self.lengths.push(output.iter().product());
        self.activations.push(Activation::None);
    }

    fn convolution(&mut self, g: Geometry, at: usize) -> Op {
        let clipping = if ghost_pays(&g, self.views) {
            let positions = self.views * g.area();
            // One position is a sum of squares; of several, what they lose is in a slot of its own.
            let terms = if positions == 1 {
                (g.window() + g.outer).div_ceil(UNITS) + 2 * UNITS + 4
            } else {
                1
            };
            let slots = g.groups * gram::slots(&g, positions, self.form);
            Clipping::Ghost { slot: self.slots(slots, terms) }
        } else {
            let slot = match self.form.of(&g) {
                Form::Tiles => {
                    let (columns, rows) = weight_tiles(&g);
                    self.slots(columns * rows, SIDE * tall(g.outer) + UNITS)
                }
                Form::Lanes => {
                    let planes = lanes::weight_gradient::planes(&g);
                    self.slots(planes, lanes::weight_gradient::terms(&g))
                }
            };
            Clipping::Held { held: self.hold(at, g.weights() + g.groups * g.outer), slot }
        };
        Op::Convolution { g, at, clipping, pooled: false }
    }

    /// Marks every maximum over windows of 2 x 2 that a convolution can take: right behind it, with nothing applied to the maximum itself, whose
    /// number is then that of the pixel it came from.
    fn pool_in_convolutions(&mut self) {
        for i in 1..self.ops.len() {
            let (before, behind) = self.ops.split_at_mut(i);
            let (
                Some(Op::Convolution { g: of, pooled, .. }),
                Some(Op::Pool { g, pooling: Pooling::Max, done }),
            ) = (before.last_mut(), behind.first_mut())
            else {
                continue;
            };
            let even = of.rows % 2 == 0 && of.columns % 2 == 0;
            if g.kernel == 2 && g.stride == 2 && even && self.activations[i + 1] == Activation::None
            {
                (*pooled, *done) = (true, true);
            }
        }
    }

    fn slots(&mut self, count: usize, terms: usize) -> usize {
        self.slots += count;
        self.slot_terms = self.slot_terms.max(terms);
        self.slots - count
    }

    /// A place for so many numbers of the flat vector in the held rows.
    fn hold(&mut self, at: usize, length: usize) -> usize {
        let held = self.held_row;
        self.held_row += length;
        match self.held.last_mut() {
            Some(last) if last.at + last.length == at => last.length += length,
            _ => self.held.push(HeldRange { held, at, length }),
        }
        held
    }
}

/// Channels, rows and columns; a vector is an image of one pixel.
fn image(shape: Shape) -> [usize; 3] {
    match shape {
        Shape::Image { channels, height, width } => [channels, height, width],
        Shape::Vector { features } => [features, 1, 1],
    }
}

/// Tiles of a weight gradient: along the columns, and along the rows of all groups.
pub(super) fn weight_tiles(g: &Geometry) -> (usize, usize) {
    let columns = (g.window() + 1).div_ceil(UNITS);
    (columns, g.groups * g.outer.div_ceil(SIDE * tall(g.outer)))
}

/// Whether Gram matrices are cheaper than holding every example's gradient: they cost `positions^2 (window + outer)`
/// multiplications per group. The product that makes the gradient does not count: the clipped sum needs it either way.
fn ghost_pays(g: &Geometry, views: usize) -> bool {
    let positions = views * g.area();
    positions * positions * (g.window() + g.outer)
        < MULTIPLICATIONS_PER_WEIGHT * g.window() * g.outer
}
