//! An architecture as stages with fixed layouts.

use crate::engine::cpu::convolution::Convolution;
use crate::engine::cpu::kernels::activation::Activation;
use crate::engine::cpu::kernels::grouped::Grouped;
use crate::engine::cpu::kernels::normalization::GroupNorm;
use crate::engine::cpu::kernels::packing::Weights;
use crate::engine::cpu::kernels::plane::Plane;
use crate::engine::cpu::kernels::pool::Pool;
use crate::engine::cpu::kernels::vector::Isa;

/// What a stage does to value `i` to make value `i + 1`.
#[derive(Debug)]
pub(crate) enum Op {
    Convolution(Box<Convolution>),
    Grouped(Box<Grouped>),
    Pool(Box<Pool>),
    GroupNorm(Box<GroupNorm>),
    /// Nothing: an activation that follows no layer it could be joined with.
    Copy,
}

/// An operation and the activation that follows it.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) op: Op,
    pub(crate) activation: Option<Activation>,
}

/// A compiled architecture.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) stages: Vec<Stage>,
    /// Layout of the value that enters stage `i`; the last holds the logits.
    pub(crate) values: Vec<Plane>,
    /// Layouts of the gradients with respect to these values.
    pub(crate) gradients: Vec<Plane>,
    /// Floats of a packed gradient, and how many at its beginning are held per example.
    pub(crate) packed: usize,
    pub(crate) instantiated: usize,
}

impl Stage {
    /// Whether the operation itself ends with the activation.
    pub(crate) fn is_fused(&self) -> bool {
        matches!(self.op, Op::Convolution(_)) && self.activation == Some(Activation::Relu)
    }

    /// Whether its input gradient is already one with respect to what ReLU made its input from.
    pub(crate) fn through_relu(&self) -> bool {
        match &self.op {
            Op::Convolution(convolution) => convolution.through_relu,
            Op::Pool(pool) => pool.through_relu,
            Op::GroupNorm(norm) => norm.through_relu,
            Op::Grouped(_) | Op::Copy => false,
        }
    }
}

impl Network {
    /// Gives every stage its place in the packed gradient: those whose gradients are held per example
    /// come first.
    pub(crate) fn new(stages: Vec<Stage>, values: Vec<Plane>, gradients: Vec<Plane>) -> Self {
        let mut network = Self { stages, values, gradients, packed: 0, instantiated: 0 };
        network.instantiated = network.place(0, false);
        network.packed = network.place(network.instantiated, true);
        network
    }

    /// Places the stages with or without ghost norms from `at` on; returns where they end.
    fn place(&mut self, mut at: usize, ghost: bool) -> usize {
        for stage in &mut self.stages {
            let (packed, len) = match &mut stage.op {
                Op::Convolution(c) if c.ghost == ghost => (&mut c.packed, c.geometry.packed()),
                Op::Grouped(grouped) if !ghost => {
                    let len = grouped.packed_len();
                    (&mut grouped.packed, len)
                }
                Op::GroupNorm(norm) if !ghost => (&mut norm.packed, 2 * norm.planes.input.pitch),
                _ => continue,
            };
            *packed = at..at + len;
            at += len;
        }
        at
    }

    /// Brings the parameters of one stage into the order of its kernels.
    pub(crate) fn pack(&self, stage: usize, isa: Isa, parameters: &[f32], weights: &mut Weights) {
        match &self.stages[stage].op {
            Op::Convolution(convolution) => convolution.pack(isa, parameters, weights),
            Op::Grouped(grouped) => grouped.pack(parameters, weights),
            Op::Pool(_) | Op::GroupNorm(_) | Op::Copy => {}
        }
    }

    /// Brings a packed gradient into PyTorch's order. O(parameters).
    pub(crate) fn unpack(&self, packed: &[f64], flat: &mut [f64]) {
        for stage in &self.stages {
            match &stage.op {
                Op::Convolution(c) => c.unpack(&packed[c.packed.clone()], flat),
                Op::Grouped(grouped) => grouped.unpack(&packed[grouped.packed.clone()], flat),
                Op::GroupNorm(norm) => norm.unpack(&packed[norm.packed.clone()], flat),
                Op::Pool(_) | Op::Copy => {}
            }
        }
    }
}
