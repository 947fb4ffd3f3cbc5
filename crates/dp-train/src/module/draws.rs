//! What layers draw at random in a step (dropout), from seeds that the run decides.
//!
//! What is bounded for one example is bounded for given masks: so nobody may know them, and a step that is taken again after a crash, under
//! the same noise, must have the same. burn has one generator for a device, or for all of them; a step sets it before every pass.
//!
//! In a fixed order an example that is zeroed keeps its place, and with it the masks of all others stay. Where batches are secret it is missing:
//! those behind it move up and have other masks. Masks of different places are independent and of one law, whoever stands there, so the masks
//! with and without the example can be taken for the same ones of every other example: the released steps with it are a mixture, over these
//! masks, of what is bounded for given ones, and so are those without it, with the same weights; delta is jointly convex. That takes the
//! masks for ideal and unknown, which [`LIMITS_OF_MODULE`](crate::certificate) says: they come from a generator with a secret seed.

use std::cell::Cell;

use burn::module::Module;

use crate::seeds::Draws;

/// The seeds of the passes of a step: each by the part of the batch, as they come, and its number in it.
pub(super) struct Seeds {
    draws: Draws,
    part: Cell<u64>,
    pass: Cell<u64>,
}

impl Seeds {
    pub(super) fn of(draws: Draws) -> Self {
        Self { draws, part: Cell::new(0), pass: Cell::new(0) }
    }

    /// Goes on to the next part.
    pub(super) fn next_part(&self) {
        self.part.set(self.part.get() + 1);
        self.pass.set(0);
    }

    /// That of the next pass.
    pub(super) fn next(&self) -> u64 {
        let pass = self.pass.get();
        self.pass.set(pass + 1);
        self.draws.seed(self.part.get() << 32 | pass)
    }
}

/// Sets what the layers of a module draw next.
pub(super) fn draw_from<M: Module>(module: &M, seed: u64) {
    module.devices().iter().for_each(|device| device.seed(seed));
}
