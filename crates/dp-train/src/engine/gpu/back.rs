//! The kernels of the way back: gradients, their norms, factors, and sums.

use cubecl::prelude::CubeCount;

use super::buffers::cubes;
use super::kernels::convolution::convolve;
use super::kernels::geometry::{Geometry, tall};
use super::kernels::lanes::{self, Form, PLANES};
use super::kernels::normalization::normalize_back;
use super::kernels::pool::{unpool, unpool_places};
use super::kernels::product::{Kind, Place, Way};
use super::kernels::scale::scale;
use super::kernels::sum::held_sum;
use super::kernels::weight_gradient::weight_gradient;
use super::kernels::{SPAN, elementwise, gram};
use super::network::{HeldRange, Op, weight_tiles};
use super::pass::{PART, Pass, spread, units};
use crate::engine::rounding::{round_down, rounding_error};

impl Pass<'_> {
    pub(super) fn weight_gradient(&self, op: usize, g: Geometry, kind: Kind, place: Place) {
        let Self { client, network, buffers, images, .. } = *self;
        let together = match kind {
            Kind::Held { .. } => network.views,
            Kind::Clipped | Kind::Plain => PART * network.views,
        };
        let rows_of_images = images.div_ceil(together);
        let form = network.form.of(&g);
        let grid = match form {
            Form::Tiles => {
                let (columns, rows) = weight_tiles(&g);
                CubeCount::Static(columns as u32, rows as u32, rows_of_images as u32)
            }
            Form::Lanes => {
                spread((rows_of_images * lanes::weight_gradient::planes(&g)).div_ceil(PLANES))
            }
        };
        let (to, first) = match kind {
            Kind::Held { .. } => (&buffers.held, 0),
            Kind::Clipped | Kind::Plain => self.parts,
        };
        self.ledger.0.start(|ledger| {
            weight_gradient::launch(
                client,
                grid,
                units(),
                ledger,
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
                form,
            );
        });
    }

    pub(super) fn gram(&self, op: usize, g: Geometry, slot: usize) {
        let Self { client, network, buffers, .. } = *self;
        let positions = network.views * g.area();
        // What the sum over pairs loses, relative to what it is without signs; and what the gradient itself loses, which is
        // summed over positions: by how much that moves its squared norm, at most. The bound they are relative to has
        // lost at most as much as the sum.
        let error = 1.01
            * (rounding_error(gram::terms(&g, positions, network.form))
                + 2.0 * rounding_error(positions));
        self.ledger.0.start(|ledger| {
            gram::gram::launch(
                client,
                CubeCount::Static(
                    gram::slots(&g, positions, network.form) as u32,
                    g.groups as u32,
                    self.examples() as u32,
                ),
                units(),
                ledger,
                self.value(op).argument(),
                buffers.gradient(op + 1).argument(),
                buffers.squares.argument(),
                error as f32,
                f32::MIN_POSITIVE,
                g,
                network.views,
                slot,
                network.slots,
                network.form,
            );
        });
    }

    /// The gradient of what enters an op, unless nothing needs it; for normalizations also those of its parameters.
    pub(super) fn input_gradient(&self, op: usize) {
        let Self { client, network, buffers, parameters, images, .. } = *self;
        let seen = self.value(op).argument();
        let dy = buffers.gradient(op + 1).argument();
        let activation = network.activations[op];
        let length = images * network.lengths[op];
        let to = buffers.gradient(op).argument();
        match network.ops[op] {
            Op::Normalization { g, at, held, slot } => self.ledger.0.start(|ledger| {
                normalize_back::launch(
                    client,
                    spread(self.examples() * g.groups),
                    units(),
                    ledger,
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
                );
            }),
            _ if op == network.first => {}
            Op::Convolution { g, at, .. } => self.ledger.0.start(|ledger| {
                convolve::launch(
                    client,
                    self.product(&g, Way::Turned),
                    units(),
                    ledger,
                    dy,
                    parameters.argument(),
                    seen,
                    to,
                    // Nothing is pooled on the way back.
                    buffers.nowhere.argument(),
                    images as u32,
                    g,
                    Way::Turned,
                    at,
                    tall(g.inner),
                    activation,
                    false,
                    network.form.of(&g),
                );
            }),
            Op::Pool { done: true, .. } => {
                // The value before the maximum is nowhere, and what was applied to it is what it shows of itself.
                let Op::Convolution { g, .. } = network.ops[op - 1] else { return };
                let pooled = images * network.lengths[op + 1];
                self.ledger.0.start(|ledger| {
                    unpool_places::launch(
                        client,
                        spread(cubes(pooled)),
                        units(),
                        ledger,
                        self.value(op + 1).argument(),
                        buffers.places[op - 1].argument(),
                        dy,
                        to,
                        pooled as u32,
                        g,
                        activation,
                        network.form.of(&g),
                    );
                });
            }
            Op::Pool { g, pooling, .. } => self.ledger.0.start(|ledger| {
                unpool::launch(
                    client,
                    spread(cubes(length)),
                    units(),
                    ledger,
                    seen,
                    dy,
                    to,
                    length as u32,
                    g,
                    pooling,
                    activation,
                );
            }),
            Op::Activation => self.ledger.0.start(|ledger| {
                elementwise::derive_all::launch(
                    client,
                    spread(cubes(length)),
                    units(),
                    ledger,
                    dy,
                    seen,
                    to,
                    length as u32,
                    activation,
                );
            }),
        }
    }

    pub(super) fn scale(&self, clip_norm: f64) {
        let Self { client, network, buffers, .. } = *self;
        let examples = self.examples();
        self.ledger.0.start(|ledger| {
            scale::launch(
                client,
                spread(cubes(examples)),
                units(),
                ledger,
                buffers.squares.argument(),
                buffers.factors.argument(),
                buffers.marks.argument(),
                examples as u32,
                self.ledger.1,
                round_down(clip_norm),
                rounding_error(network.slots + network.slot_terms) as f32,
                network.parameters as f32 * f32::MIN_POSITIVE,
                // A GPU's root and quotient are off by a few units.
                rounding_error(8) as f32,
                network.slots,
            );
        });
    }

    pub(super) fn held_sum(&self, range: HeldRange, plain: bool) {
        let Self { client, network, buffers, .. } = *self;
        let tiles = cubes(range.length);
        let parts = self.examples().div_ceil(PART);
        self.ledger.0.start(|ledger| {
            held_sum::launch(
                client,
                CubeCount::Static(
                    tiles.min(SPAN) as u32,
                    parts as u32,
                    tiles.div_ceil(SPAN) as u32,
                ),
                units(),
                ledger,
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
        });
    }
}
