//! The kernels of a pass, in order. Nothing here waits for the device.

use cubecl::client::Client;
use cubecl::prelude::{CubeCount, CubeDim};

use super::buffers::{Buffer, Buffers, cubes};
use super::kernels::convolution::convolve;
use super::kernels::geometry::{Geometry, tall};
use super::kernels::lanes::{self, Form, PLANES};
use super::kernels::ledger::begin;
use super::kernels::loss::cross_entropy;
use super::kernels::normalization::normalize;
use super::kernels::pool::pool;
use super::kernels::product::{Kind, Place, Way};
use super::kernels::{SIDE, SPAN, UNITS, elementwise};
use super::ledger::Ledger;
use super::network::{Clipping, HeldRange, Network, Op};
use crate::parting::BLOCK;

/// Examples whose gradients are added up in f32: the noise allows for the rounding of so many
/// ([`SUM_ROUNDING`](crate::gradient::SUM_ROUNDING)). Sums of parts are added exactly.
pub(super) const PART: usize = BLOCK;

/// A network with its parameters, memory and some images.
#[derive(Clone, Copy)]
pub(super) struct Pass<'a> {
    pub(super) client: &'a Client,
    pub(super) network: &'a Network,
    pub(super) buffers: &'a Buffers,
    pub(super) parameters: &'a Buffer,
    /// The images.
    pub(super) input: &'a Buffer,
    /// Where sums of parts go, and which is the first of them.
    pub(super) parts: (&'a Buffer, usize),
    /// What kernels enter themselves in, and the stamp of this pass.
    pub(super) ledger: (&'a Ledger, u32),
    /// Images, every view counted.
    pub(super) images: usize,
}

impl Pass<'_> {
    /// From the images to the logits.
    pub(super) fn forward(&self) {
        let Self { client, network, buffers, parameters, images, .. } = *self;
        for (i, op) in network.ops.iter().enumerate() {
            let (from, to) = (self.value(i).argument(), buffers.values[i + 1].argument());
            let activation = network.activations[i + 1];
            let length = images * network.lengths[i + 1];
            match *op {
                Op::Convolution { g, at, pooled, .. } => self.ledger.0.start(|ledger| {
                    convolve::launch(
                        client,
                        self.product(&g, Way::Forward),
                        units(),
                        ledger,
                        from,
                        parameters.argument(),
                        parameters.argument(),
                        if pooled { buffers.values[i + 2].argument() } else { to },
                        buffers.places[i].argument(),
                        images as u32,
                        g,
                        Way::Forward,
                        at,
                        tall(g.outer),
                        activation,
                        pooled,
                        network.form.of(&g),
                    );
                }),
                Op::Normalization { g, at, .. } => self.ledger.0.start(|ledger| {
                    normalize::launch(
                        client,
                        spread(images * g.groups),
                        units(),
                        ledger,
                        from,
                        parameters.argument(),
                        to,
                        self.statistics(i),
                        images as u32,
                        g,
                        at,
                        activation,
                    );
                }),
                Op::Pool { done: true, .. } => {}
                Op::Pool { g, pooling, .. } => self.ledger.0.start(|ledger| {
                    pool::launch(
                        client,
                        spread(cubes(length)),
                        units(),
                        ledger,
                        from,
                        to,
                        length as u32,
                        g,
                        pooling,
                        activation,
                    );
                }),
                Op::Activation => self.ledger.0.start(|ledger| {
                    elementwise::activate_all::launch(
                        client,
                        spread(cubes(length)),
                        units(),
                        ledger,
                        from,
                        to,
                        length as u32,
                        activation,
                    );
                }),
            }
        }
    }

    /// The logits' losses and gradients.
    pub(super) fn losses(&self, labels: &Buffer) {
        let Self { client, network, buffers, images, .. } = *self;
        let last = network.ops.len();
        self.ledger.0.start(|ledger| {
            cross_entropy::launch(
                client,
                spread(cubes(images)),
                units(),
                ledger,
                buffers.values[last].argument(),
                labels.argument(),
                buffers.gradient(last).argument(),
                buffers.measures.argument(),
                images as u32,
                network.classes,
                network.views,
                network.activations[last],
            );
        });
    }

    /// Blanks what the pass is to fill, so that nothing old is taken for new.
    fn begin(&self) {
        let Self { client, network, buffers, .. } = *self;
        let (factors, squares) = (self.examples(), self.examples() * network.slots);
        let parts = self.examples().div_ceil(PART) * network.parameters;
        self.ledger.0.start(|ledger| {
            begin::launch(
                client,
                spread(cubes(squares.max(factors).max(parts))),
                units(),
                ledger,
                buffers.squares.argument(),
                buffers.factors.argument(),
                self.parts.0.argument(),
                squares as u32,
                factors as u32,
                (self.parts.1 * network.parameters) as u32,
                parts as u32,
                self.ledger.1,
            );
        });
    }

    /// Back from the logits: sums of parts of clipped gradients.
    pub(super) fn clipped(&self, clip_norm: f64) {
        let network = self.network;
        self.begin();
        for i in (network.first..network.ops.len()).rev() {
            match network.ops[i] {
                Op::Convolution { g, clipping: Clipping::Held { held, slot }, .. } => {
                    let kind = Kind::Held { slot, slots: network.slots };
                    let place = Place { row: network.held_row, at: held };
                    self.weight_gradient(i, g, kind, place);
                }
                Op::Convolution { g, clipping: Clipping::Ghost { slot }, .. } => {
                    self.gram(i, g, slot);
                }
                _ => {}
            }
            self.input_gradient(i);
        }
        self.scale(clip_norm);
        for (i, op) in network.ops.iter().enumerate() {
            if let Op::Convolution { g, at, clipping: Clipping::Ghost { .. }, .. } = *op {
                let place = Place { row: network.parameters, at };
                self.weight_gradient(i, g, Kind::Clipped, place);
            }
        }
        for &range in &network.held {
            self.held_sum(range, false);
        }
    }

    /// Back from the logits: sums of parts of gradients as they are.
    pub(super) fn plain(&self) {
        let network = self.network;
        self.begin();
        for i in (network.first..network.ops.len()).rev() {
            if let Op::Convolution { g, at, .. } = network.ops[i] {
                let place = Place { row: network.parameters, at };
                self.weight_gradient(i, g, Kind::Plain, place);
            }
            self.input_gradient(i);
            if let Op::Normalization { g, at, held, .. } = network.ops[i] {
                let length = 2 * g.groups * g.inner;
                self.held_sum(HeldRange { held, at, length }, true);
            }
        }
    }

    pub(super) fn value(&self, value: usize) -> &Buffer {
        if value == 0 { self.input } else { &self.buffers.values[value] }
    }

    pub(super) fn examples(&self) -> usize {
        self.images / self.network.views
    }

    pub(super) fn statistics(&self, op: usize) -> cubecl::prelude::BufferArg {
        let buffer = self.buffers.statistics[op].as_ref();
        buffer.unwrap_or(&self.buffers.factors).argument()
    }

    /// The grid of a convolution.
    pub(super) fn product(&self, g: &Geometry, way: Way) -> CubeCount {
        if self.network.form.of(g) == Form::Lanes {
            return spread(lanes::convolution_planes(g, way, self.images).div_ceil(PLANES));
        }
        match way {
            Way::Forward => tiled(self.images * g.area(), g.groups, g.outer),
            Way::Turned => tiled(self.images * g.plane(), g.groups, g.inner),
        }
    }
}

pub(super) fn units() -> CubeDim {
    CubeDim::new_1d(UNITS as u32)
}

/// A grid of so many cubes.
pub(super) fn spread(cubes: usize) -> CubeCount {
    CubeCount::Static(cubes.min(SPAN) as u32, 1, cubes.div_ceil(SPAN) as u32)
}

/// A grid of tiles for a product of so many columns, and rows in each group.
fn tiled(columns: usize, groups: usize, rows: usize) -> CubeCount {
    let tiles = cubes(columns);
    let down = groups * rows.div_ceil(SIDE * tall(rows));
    CubeCount::Static(tiles.min(SPAN) as u32, down as u32, tiles.div_ceil(SPAN) as u32)
}
