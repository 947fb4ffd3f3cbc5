//! The buffers of one thread, for blocks of a few examples.

use std::ops::AddAssign;

use crate::engine::cpu::convolution::Method;
use crate::engine::cpu::kernels::gram::Grams;
use crate::engine::cpu::kernels::grouped::Channels;
use crate::engine::cpu::kernels::normalization::Moments;
use crate::engine::cpu::kernels::packing::Weights;
use crate::engine::cpu::kernels::plane::Plane;
use crate::engine::cpu::kernels::scratch::Scratch;
use crate::engine::cpu::kernels::vector::Isa;
use crate::engine::cpu::network::{Network, Op};
use crate::engine::sizes::Sizes;

/// Counts of the examples that went into a sum.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) loss: f64,
    pub(crate) correct: usize,
    pub(crate) clipped: usize,
    pub(crate) non_finite: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.loss += other.loss;
        self.correct += other.correct;
        self.clipped += other.clipped;
        self.non_finite += other.non_finite;
    }
}

/// What all blocks share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model<'a> {
    pub(crate) isa: Isa,
    pub(crate) sizes: Sizes,
    pub(crate) network: &'a Network,
    pub(crate) weights: &'a [Weights],
    pub(crate) parameters: &'a [f32],
}

/// Scratch memory that all stages share.
#[derive(Debug)]
pub(super) struct Shared {
    left: Vec<f32>,
    right: Vec<f32>,
    patches: Vec<f32>,
}

impl Shared {
    /// Lends it to a stage with its transformed inputs.
    pub(super) fn lend<'a>(&'a mut self, transformed: &'a mut [f32]) -> Scratch<'a> {
        let Self { left, right, patches } = self;
        Scratch { transformed, left, right, patches }
    }
}

/// The buffers of one thread.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(super) values: Vec<Vec<f32>>,
    pub(super) gradients: Vec<Vec<f32>>,
    /// Winograd's transformed inputs, per stage.
    pub(super) transformed: Vec<Vec<f32>>,
    /// One group's channels, per stage.
    pub(super) groups: Vec<Channels>,
    /// What group normalizations keep of the block, per stage.
    pub(super) moments: Vec<Moments>,
    pub(super) shared: Shared,
    /// One example's gradient of the layers that are instantiated.
    pub(super) row: Vec<f32>,
    pub(super) squared_norms: Vec<f64>,
    pub(super) scales: Vec<f32>,
    pub(super) grams: Grams,
    /// The sum of the gradients of one example's views; empty until a batch has views.
    pub(super) views: Vec<f32>,
    /// The label of every view in the block.
    pub(super) labels: Vec<u32>,
}

impl Workspace {
    /// Buffers for blocks of `samples` examples.
    pub(crate) fn new(network: &Network, samples: usize) -> Self {
        let buffers = |planes: &[Plane]| {
            planes.iter().map(|plane| vec![0.0; samples * plane.len()]).collect::<Vec<_>>()
        };
        let (mut transformed, mut groups, mut moments) = (Vec::new(), Vec::new(), Vec::new());
        let (mut scratch, mut patches) = (0, 0);
        for stage in &network.stages {
            let mut floats = 0;
            if let Op::Convolution(c) = &stage.op {
                match &c.method {
                    Method::Direct(direct) => {
                        let count = if c.geometry.positions() == 1 { samples } else { 1 };
                        patches = patches.max(count * direct.scratch());
                    }
                    Method::Winograd(winograd) => {
                        floats = winograd.transformed();
                        scratch = scratch.max(winograd.scratch());
                    }
                }
            }
            transformed.push(vec![0.0; floats]);
            groups.push(match &stage.op {
                Op::Grouped(grouped) => grouped.channels(),
                _ => Channels::default(),
            });
            moments.push(match &stage.op {
                Op::GroupNorm(norm) => norm.moments(samples),
                _ => Moments::default(),
            });
        }
        Self {
            values: buffers(&network.values),
            gradients: buffers(&network.gradients),
            transformed,
            groups,
            moments,
            shared: Shared {
                left: vec![0.0; scratch],
                right: vec![0.0; scratch],
                patches: vec![0.0; patches],
            },
            row: vec![0.0; network.instantiated],
            squared_norms: vec![0.0; samples],
            scales: vec![0.0; samples],
            grams: Grams::default(),
            views: Vec::new(),
            labels: Vec::new(),
        }
    }
}
