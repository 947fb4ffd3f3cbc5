//! Memory of the device.

use cubecl::client::Client;
use cubecl::prelude::{BufferArg, CubeElement};
use cubecl::server::Handle;

use super::kernels::UNITS;
use super::kernels::pool::words;
use super::network::{Clipping, Network, Op};

/// Numbers that are found room for in pools of memory: fewer than these.
const POOLED: usize = 1 << 18;

/// So many numbers of four bytes on the device.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    pub(super) handle: Handle,
    pub(super) length: usize,
}

impl Buffer {
    /// Room for so many numbers, and for one at least: nothing empty can be bound. What is large is asked of the driver as it
    /// is, for pools of memory would round it up.
    pub(super) fn new(client: &Client, length: usize) -> Self {
        let length = length.max(1);
        let handle = if length < POOLED {
            client.empty(4 * length)
        } else {
            client.memory_dedicated_allocation((), |()| client.empty(4 * length))
        };
        Self { handle, length }
    }

    /// A copy of many numbers that is kept for long.
    pub(super) fn kept<T: CubeElement>(client: &Client, numbers: &[T]) -> Self {
        client.memory_dedicated_allocation((), |()| Self::of(client, numbers))
    }

    /// A copy of some numbers.
    pub(super) fn of<T: CubeElement>(client: &Client, numbers: &[T]) -> Self {
        assert_eq!(size_of::<T>(), 4, "numbers of four bytes");
        match numbers.len() {
            0 => Self::new(client, 1),
            length => Self { handle: client.create_from_slice(T::as_bytes(numbers)), length },
        }
    }

    /// As an argument of a kernel.
    pub(super) fn argument(&self) -> BufferArg {
        // SAFETY: the handle was made for so many numbers of four bytes.
        unsafe { BufferArg::from_raw_parts(self.handle.clone(), self.length) }
    }
}

/// Which buffer holds the gradient of a value.
#[derive(Debug, Clone, Copy)]
enum Gradient {
    /// One of two that are used in turns.
    Turn(usize),
    /// One of its own, for it is read again when the factors are known.
    Own(usize),
}

/// What a pass over so many images needs.
#[derive(Debug)]
pub(super) struct Buffers {
    pub(super) images: usize,
    pub(super) values: Vec<Buffer>,
    turns: [Buffer; 2],
    own: Vec<Buffer>,
    gradients: Vec<Gradient>,
    /// Places of the maxima that convolutions take, by op.
    pub(super) places: Vec<Buffer>,
    /// Means and deviations of normalizations, by op.
    pub(super) statistics: Vec<Option<Buffer>>,
    /// Where nothing goes: a kernel wants a buffer for what it can write.
    pub(super) nowhere: Buffer,
    pub(super) held: Buffer,
    pub(super) squares: Buffer,
    pub(super) factors: Buffer,
    pub(super) marks: Buffer,
    /// Loss and correctness of every image.
    pub(super) measures: Buffer,
}

impl Buffers {
    pub(super) fn new(client: &Client, network: &Network, images: usize) -> Self {
        let buffer = |length: usize| Buffer::new(client, length * images);
        let examples = images.div_ceil(network.views);
        let per_example = |length: usize| Buffer::new(client, length * examples);
        let (mut own, mut gradients, mut turn, mut longest) = (Vec::new(), Vec::new(), 0, [1, 1]);
        for (value, &length) in network.lengths.iter().enumerate() {
            let ghost =
                |op: &Op| matches!(op, Op::Convolution { clipping: Clipping::Ghost { .. }, .. });
            // The gradient of a value is read by the op that made it.
            if value > 0 && ghost(&network.ops[value - 1]) {
                gradients.push(Gradient::Own(own.len()));
                own.push(buffer(length));
            } else {
                turn = 1 - turn;
                // That of the images is never made.
                if value > network.first {
                    longest[turn] = longest[turn].max(length);
                }
                gradients.push(Gradient::Turn(turn));
            }
        }
        let statistics = network.ops.iter().map(|op| match op {
            Op::Normalization { g, .. } => Some(buffer(2 * g.groups)),
            _ => None,
        });
        let pooled = |value: usize| match network.ops.get(value.wrapping_sub(1)) {
            Some(Op::Convolution { g, pooled: true, .. }) => Some(g),
            _ => None,
        };
        // What is pooled at once is nowhere.
        let lengths = network.lengths.iter().enumerate();
        let values =
            lengths.map(|(i, &length)| buffer(if pooled(i).is_some() { 0 } else { length }));
        let places = (1..network.lengths.len()).map(|value| {
            let words = pooled(value).map_or(0, |g| words(g, images, network.form.of(g)));
            Buffer::new(client, words)
        });
        Self {
            images,
            values: values.collect(),
            places: places.collect(),
            turns: longest.map(buffer),
            own,
            gradients,
            statistics: statistics.collect(),
            nowhere: Buffer::new(client, 1),
            held: per_example(network.held_row),
            squares: per_example(network.slots),
            factors: per_example(1),
            marks: per_example(1),
            measures: buffer(2),
        }
    }

    /// The gradient of a value.
    pub(super) fn gradient(&self, value: usize) -> &Buffer {
        match self.gradients[value] {
            Gradient::Turn(turn) => &self.turns[turn],
            Gradient::Own(own) => &self.own[own],
        }
    }
}

/// Cubes for so many units.
pub(super) fn cubes(units: usize) -> usize {
    units.div_ceil(UNITS)
}
