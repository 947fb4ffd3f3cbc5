//! Attacks on the sums of an engine that the tests of all of them share.
//!
//! An example with a pixel that is not a number contributes exactly zero and keeps its place, so spoiling one is the
//! neighbouring batch. What the others add up to is the same numbers in both, but rounded differently where the
//! example's block is concerned. In a part of a secret batch the neighbour has one example less, and all behind it are
//! rounded in other places.

use chacha20::rand_core::Rng;

use crate::engine::cases::{batch, classifier, conv, distance, norm, wide};
use crate::engine::{Batch, GradientEngine};
use crate::gradient::SUM_ROUNDING;
use crate::model::{Architecture, Layer, initial_parameters};
use crate::seeds::{Purpose, RunSeed};

/// Examples of the largest part of a secret batch.
const PART: usize = 128;

/// How far zeroing one example moves the sum, or leaving it out if they are no more than a part, over the clip norm,
/// minus 1.
pub(crate) fn excess(
    engine: &mut dyn GradientEngine,
    parameters: &[f32],
    batch: Batch<'_>,
    clip: f64,
    which: usize,
) -> f64 {
    let mut sum = |images: &[f32], labels: &[u32]| {
        let batch = Batch { images, labels, ..batch };
        engine.clipped_sum(parameters, batch, clip).unwrap().0.into_values()
    };
    let pixels = batch.images.len() / batch.labels.len();
    let mut spoiled = batch.images.to_vec();
    spoiled[which * pixels] = f32::NAN;
    let whole = sum(batch.images, batch.labels);
    let zeroed = distance(&whole, &sum(&spoiled, batch.labels));
    if !(2..=PART).contains(&batch.labels.len()) {
        return zeroed / clip - 1.0;
    }
    let (mut images, mut labels) = (batch.images.to_vec(), batch.labels.to_vec());
    images.drain(which * pixels..(which + 1) * pixels);
    labels.remove(which);
    zeroed.max(distance(&whole, &sum(&images, &labels))) / clip - 1.0
}

/// An attack on ghost norms in f32: the squares of output gradients vanish, their products with the inputs do not. The
/// prediction is so sure of the label that it errs by e^-55, and weights undo the size of the activations, so that no
/// other layer's gradient gives the example away.
pub(crate) struct Vanishing {
    pub(crate) architecture: Architecture,
    parameters: Vec<f32>,
    images: Vec<f32>,
}

impl Vanishing {
    pub(crate) fn new() -> Self {
        const HUGE: f32 = 1e14;
        let layers = vec![conv(3, 16, 3, 1, 1), Layer::Relu, conv(16, 32, 3, 1, 1), Layer::Relu];
        let architecture = classifier((3, 4, 4), layers);
        let (images, _) = batch(&architecture, 1);
        let images: Vec<f32> = images.iter().map(|x| x * HUGE).collect();
        let mut parameters = initial_parameters(&architecture, RunSeed(2));
        let of =
            |layer: usize, which: usize| architecture.parameters_of(layer)[which].range.clone();
        parameters[of(2, 0)].iter_mut().for_each(|w| *w /= HUGE);
        parameters[of(5, 1)][0] = 55.0;
        Self { architecture, parameters, images }
    }

    pub(crate) fn run(&self, engine: &mut dyn GradientEngine) {
        let one = Batch::new(&self.images, &[0]);
        let clip = 1e-13;
        let (sum, _) = engine.clipped_sum(&self.parameters, one, clip).unwrap();
        let size = norm(&sum.into_values()) / clip;
        assert!(size <= 1.0 + SUM_ROUNDING, "{size:e} clip norms");
        let (plain, _) = engine.gradient_sum(&self.parameters, one).unwrap();
        assert!(norm(&wide(&plain)) > clip, "the attack has lost its point");
    }
}

const CHANNELS: usize = 64;
const PIXELS: usize = 64;
/// Two pixels whose gradients have opposite signs.
const TILES: [(usize, f32); 2] = [(3 * 8 + 3, 1.0), (3 * 8 + 7, -1.0)];

/// An attack on the sum of a block: examples whose products are large and cancel round a neighbour's contribution to the
/// last place of their partial sums. Random brightnesses, then ascent over those of the others.
pub(crate) struct Cancelling {
    pub(crate) architecture: Architecture,
    parameters: Vec<f32>,
}

impl Cancelling {
    pub(crate) fn new() -> Self {
        let layers =
            vec![Layer::MaxPool2d { kernel: 1, stride: 1 }, conv(CHANNELS, CHANNELS, 3, 1, 1)];
        let architecture = classifier((CHANNELS, 8, 8), layers);
        // The convolution is zero; the linear layer sends gradients of opposite signs to two tiles.
        let mut parameters = vec![0.0_f32; architecture.parameter_count()];
        let rows = architecture.parameters_of(3)[0].range.start;
        for (pixel, sign) in TILES {
            parameters[rows + pixel] = sign * 1500.0;
        }
        parameters[rows + CHANNELS * PIXELS + 27] = 1500.0;
        for pixel in 0..PIXELS {
            parameters[rows + 4 * CHANNELS * PIXELS + pixel] =
                -parameters[rows + pixel] - parameters[rows + CHANNELS * PIXELS + pixel];
        }
        Self { architecture, parameters }
    }

    /// The largest excess that so many attempts find.
    pub(crate) fn run(&self, engine: &mut dyn GradientEngine, attempts: usize) -> f64 {
        let mut random = RunSeed(9).stream(Purpose::Audit);
        let mut bright = move || 1e3 * (1.0 + random.next_u32() as f32 / u32::MAX as f32);
        let mut labels = [0_u32; 16];
        labels[0] = 1;
        let image = |brightness: &[f32; 16]| {
            let mut images = vec![0.0; 16 * CHANNELS * PIXELS];
            images[27] = brightness[0];
            for example in 1..16 {
                for (pixel, _) in TILES {
                    images[example * CHANNELS * PIXELS + pixel] = brightness[example];
                }
            }
            images
        };
        let mut found = |brightness: &[f32; 16]| {
            let images = image(brightness);
            let batch = Batch::new(&images, &labels);
            excess(engine, &self.parameters, batch, 1.0, 0)
        };
        let mut best = [0.0; 16].map(|_: f32| bright());
        let mut worst = found(&best);
        for attempt in 0..attempts {
            let mut other = best;
            other[attempt % 16] = bright();
            let excess = found(&other);
            if excess > worst {
                (worst, best) = (excess, other);
            }
        }
        worst
    }
}
