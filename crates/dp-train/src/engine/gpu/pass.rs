//! The kernels of a pass, in order. Nothing here waits for the device.

use cubecl::client::Client;
use cubecl::prelude::{CubeCount, CubeDim};

use super::buffers::{Buffer, Buffers, cubes};
use super::kernels::convolution::{Way, convolve};
use super::kernels::geometry::{Geometry, tall};
use super::kernels::ledger::begin;
use super::kernels::loss::cross_entropy;
use super::kernels::normalization::{normalize, normalize_back};
use super::kernels::pool::{pool, unpool};
use super::kernels::scale::scale;
use super::kernels::sum::held_sum;
use super::kernels::weight_gradient::{Kind, Place, weight_gradient};
use super::kernels::{SIDE, SPAN, UNITS, elementwise, gram};
use super::network::{Clipping, HeldRange, Network, Op, weight_tiles};
use crate::engine::rounding::round_down;
use crate::parting::BLOCK;

/// Examples whose gradients are added up in f32: the noise allows for the rounding of so many
/// ([`SUM_ROUNDING`](crate::gradient::SUM_ROUNDING)). Sums of parts are added exactly.
pub(super) const PART: usize = BLOCK;

/// Half the distance from 1 to the next f32.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// A bound on the relative error of a sum of `terms` rounded terms, with as much again for the rounding of the bound itself.
fn rounding_error(terms: usize) -> f32 {
    (2.0 * (terms + 4) as f64 * UNIT) as f32
}

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
    /// What a kernel that was lost shows in, and the stamp of this pass.
    pub(super) ledger: (&'a Buffer, u32),
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
                Op::Convolution { g, at, .. } => convolve::launch(
                    client,
                    product(images * g.area(), g.groups, g.outer),
                    units(),
                    from,
                    parameters.argument(),
                    parameters.argument(),
                    to,
                    images as u32,
                    g,
                    Way::Forward,
                    at,
                    tall(g.outer),
                    activation,
                ),
                Op::Normalization { g, at, .. } => normalize::launch(
                    client,
                    spread(images * g.groups),
                    units(),
                    from,
                    parameters.argument(),
                    to,
                    self.statistics(i),
                    images as u32,
                    g,
                    at,
                    activation,
                ),
                Op::Pool { g, pooling } => pool::launch(
                    client,
                    spread(cubes(length)),
                    units(),
                    from,
                    to,
                    length as u32,
                    g,
                    pooling,
                    activation,
                ),
                Op::Activation => elementwise::activate_all::launch(
                    client,
                    spread(cubes(length)),
                    units(),
                    from,
                    to,
                    length as u32,
                    activation,
                ),
            }
        }
    }

    /// The logits' losses and gradients.
    pub(super) fn losses(&self, labels: &Buffer) {
        let Self { client, network, buffers, images, .. } = *self;
        let last = network.ops.len();
        cross_entropy::launch(
            client,
            spread(cubes(images)),
            units(),
            buffers.values[last].argument(),
            labels.argument(),
            buffers.gradient(last).argument(),
            buffers.measures.argument(),
            images as u32,
            network.classes,
            network.views,
            network.activations[last],
        );
    }

    /// Blanks what the pass is to fill, so that nothing old is taken for new.
    fn begin(&self) {
        let Self { client, network, buffers, .. } = *self;
        let squares = self.examples() * network.slots;
        let parts = self.examples().div_ceil(PART) * network.parameters;
        begin::launch(
            client,
            spread(cubes(squares.max(parts))),
            units(),
            buffers.squares.argument(),
            self.parts.0.argument(),
            self.ledger.0.argument(),
            squares as u32,
            (self.parts.1 * network.parameters) as u32,
            parts as u32,
            self.ledger.1,
        );
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
            if let Op::Convolution { g, at, clipping: Clipping::Ghost { .. } } = *op {
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

    fn value(&self, value: usize) -> &Buffer {
        if value == 0 { self.input } else { &self.buffers.values[value] }
    }

    fn examples(&self) -> usize {
        self.images / self.network.views
    }

    fn statistics(&self, op: usize) -> cubecl::prelude::BufferArg {
        let buffer = self.buffers.statistics[op].as_ref();
        buffer.unwrap_or(&self.buffers.norms).argument()
    }

    fn weight_gradient(&self, op: usize, g: Geometry, kind: Kind, place: Place) {
        let Self { client, network, buffers, images, .. } = *self;
        let together = match kind {
            Kind::Held { .. } => network.views,
            Kind::Clipped | Kind::Plain => PART * network.views,
        };
        let (columns, rows) = weight_tiles(&g);
        let rows_of_images = images.div_ceil(together);
        let (to, first) = match kind {
            Kind::Held { .. } => (&buffers.held, 0),
            Kind::Clipped | Kind::Plain => self.parts,
        };
        weight_gradient::launch(
            client,
            CubeCount::Static(columns as u32, rows as u32, rows_of_images as u32),
            units(),
            self.value(op).argument(),
            buffers.gradient(op + 1).argument(),
            buffers.factors.argument(),
            to.argument(),
            buffers.squares.argument(),
            images as u32,
            together as u32,
            first as u32,
            g,
            kind,
            place,
            network.views,
            tall(g.outer),
        );
    }

    fn gram(&self, op: usize, g: Geometry, slot: usize) {
        let Self { client, network, buffers, .. } = *self;
        let positions = network.views * g.area();
        // What the sum over pairs loses, relative to what it is without signs; and what the gradient itself loses, which is
        // summed over positions: by how much that moves its squared norm, at most. The bound they are relative to has
        // lost at most as much as the sum.
        let error =
            1.01 * (rounding_error(gram::terms(&g, positions)) + 2.0 * rounding_error(positions));
        gram::gram::launch(
            client,
            CubeCount::Static(
                gram::slots(positions) as u32,
                g.groups as u32,
                self.examples() as u32,
            ),
            units(),
            self.value(op).argument(),
            buffers.gradient(op + 1).argument(),
            buffers.squares.argument(),
            error,
            f32::MIN_POSITIVE,
            g,
            network.views,
            slot,
            network.slots,
        );
    }

    /// The gradient of what enters an op, unless nothing needs it; for normalizations also those of its parameters.
    fn input_gradient(&self, op: usize) {
        let Self { client, network, buffers, parameters, images, .. } = *self;
        let seen = self.value(op).argument();
        let dy = buffers.gradient(op + 1).argument();
        let activation = network.activations[op];
        let length = images * network.lengths[op];
        let to = buffers.gradient(op).argument();
        match network.ops[op] {
            Op::Normalization { g, at, held, slot } => normalize_back::launch(
                client,
                spread(self.examples() * g.groups),
                units(),
                seen,
                dy,
                parameters.argument(),
                self.statistics(op),
                to,
                buffers.held.argument(),
                buffers.squares.argument(),
                self.examples() as u32,
                g,
                at,
                network.views,
                Place { row: network.held_row, at: held },
                slot,
                network.slots,
                activation,
                op == network.first,
            ),
            _ if op == network.first => {}
            Op::Convolution { g, at, .. } => convolve::launch(
                client,
                product(images * g.plane(), g.groups, g.inner),
                units(),
                dy,
                parameters.argument(),
                seen,
                to,
                images as u32,
                g,
                Way::Turned,
                at,
                tall(g.inner),
                activation,
            ),
            Op::Pool { g, pooling } => unpool::launch(
                client,
                spread(cubes(length)),
                units(),
                seen,
                dy,
                to,
                length as u32,
                g,
                pooling,
                activation,
            ),
            Op::Activation => elementwise::derive_all::launch(
                client,
                spread(cubes(length)),
                units(),
                dy,
                seen,
                to,
                length as u32,
                activation,
            ),
        }
    }

    fn scale(&self, clip_norm: f64) {
        let Self { client, network, buffers, .. } = *self;
        let examples = self.examples();
        scale::launch(
            client,
            spread(cubes(examples)),
            units(),
            buffers.squares.argument(),
            buffers.factors.argument(),
            buffers.marks.argument(),
            buffers.norms.argument(),
            self.ledger.0.argument(),
            examples as u32,
            self.ledger.1,
            round_down(clip_norm),
            rounding_error(network.slots + network.slot_terms),
            network.parameters as f32 * f32::MIN_POSITIVE,
            // A GPU's root and quotient are off by a few units.
            rounding_error(8),
            network.slots,
        );
    }

    fn held_sum(&self, range: HeldRange, plain: bool) {
        let Self { client, network, buffers, .. } = *self;
        let tiles = cubes(range.length);
        let parts = self.examples().div_ceil(PART);
        held_sum::launch(
            client,
            CubeCount::Static(tiles.min(SPAN) as u32, parts as u32, tiles.div_ceil(SPAN) as u32),
            units(),
            buffers.held.argument(),
            buffers.factors.argument(),
            self.parts.0.argument(),
            self.examples() as u32,
            PART as u32,
            self.parts.1 as u32,
            range.length as u32,
            Place { row: network.held_row, at: range.held },
            Place { row: network.parameters, at: range.at },
            plain,
        );
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
fn product(columns: usize, groups: usize, rows: usize) -> CubeCount {
    let tiles = cubes(columns);
    let down = groups * rows.div_ceil(SIDE * tall(rows));
    CubeCount::Static(tiles.min(SPAN) as u32, down as u32, tiles.div_ceil(SPAN) as u32)
}
