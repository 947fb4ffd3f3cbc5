//! Canaries that are examples: images whose gradients an engine computes and clips.
//!
//! The network has a layer whose gradients the CPU engine holds (the first convolution, on 8 x 8
//! pixels) and two whose norms it gets from Gram matrices (the second, on 4 x 4, and the linear
//! layer), so that a wrong norm of either kind makes a contribution too long.
//!
//! A canary must be clipped whatever the clip norm is, and its opposite must be an example too,
//! where neighbours exchange one. Both follow from two classes and images on their boundary: without
//! biases the logits grow with the image and are equal at any scale there, so the gradient grows as
//! far as one likes, and the other label turns it round.

use chacha20::rand_core::Rng;

use super::canary::{CANARIES, World};
use super::part::{Part, ReleasedRows, Target};
use super::report::AuditError;
use crate::engine::{Batch, Engine, EngineOptions, GradientEngine};
use crate::gradient::PerSampleGradients;
use crate::model::{Architecture, Layer, Shape, initial_parameters};
use crate::plan::DpPlan;
use crate::seeds::{NoiseKey, Purpose, RunSeed};

/// How much longer than the clip norm the gradients are, at least.
const TOO_LONG: f64 = 10.0;

/// Size of the pixels, at least: far above 1, so that the gradients of biases, which all canaries
/// share, are small beside those of the weights.
const PIXEL: f32 = 30.0;

/// The canaries are always the same; the seed of an audit decides the noise alone.
const SEED: RunSeed = RunSeed(0);

/// A small network and 64 examples of it.
#[derive(Debug, Clone)]
pub struct Examples {
    /// 3 x 8 x 8 images and two classes.
    pub architecture: Architecture,
    /// Of the network, biases zero.
    pub parameters: Vec<f32>,
    /// One after the other.
    pub images: Vec<f32>,
    labels: Vec<u32>,
}

impl Examples {
    /// Examples whose gradients are longer than a clip norm.
    ///
    /// # Errors
    /// Those of the engine, which it has no reason for.
    pub fn new(clip_norm: f64) -> Result<Self, AuditError> {
        let architecture = architecture();
        let mut parameters = initial_parameters(&architecture, SEED);
        for bias in architecture.parameters().iter().filter(|p| p.name.ends_with("bias")) {
            parameters[bias.range.clone()].fill(0.0);
        }
        // What a channel has in common over its four pixels does not count, so that both classes
        // are about equally frequent. Four times the weights make the gradients of the layers before
        // longer: the three layers then have parts of about 0.4, 0.85 and 0.35 in the norm, and 64
        // canaries are hardly dependent in 2898 dimensions.
        for weight in architecture.parameters().iter().filter(|p| p.shape == [2, 64]) {
            for pixels in parameters[weight.range.clone()].chunks_exact_mut(4) {
                let mean = pixels.iter().sum::<f32>() / 4.0;
                pixels.iter_mut().for_each(|w| *w = 4.0 * (*w - mean));
            }
        }
        let labels = (0..CANARIES as u32).map(|j| j % 2).collect();
        let mut engine = Engine::new(&architecture, EngineOptions::default())?;
        let images = boundary(&architecture, &parameters, &mut engine)?;
        let mut examples = Self { architecture, parameters, images, labels };
        let pixels = examples.pixels();
        for j in 0..CANARIES {
            let batch = Batch::new(examples.image(j), &examples.labels[j..=j]);
            let (gradient, _) = engine.gradient_sum(&examples.parameters, batch)?;
            let norm = gradient.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
            let scale = (TOO_LONG * clip_norm / norm).max(1.0) as f32;
            examples.images[j * pixels..][..pixels].iter_mut().for_each(|x| *x *= scale);
        }
        Ok(examples)
    }

    fn pixels(&self) -> usize {
        self.architecture.shapes()[0].len()
    }

    /// The image of canary `j`.
    pub fn image(&self, j: usize) -> &[f32] {
        &self.images[j * self.pixels()..][..self.pixels()]
    }

    /// The labels in the world with the canaries, and those that turn their gradients round.
    pub fn labels(&self, world: World) -> Vec<u32> {
        let turned = u32::from(world == World::Without);
        self.labels.iter().map(|label| label ^ turned).collect()
    }

    /// An engine of one thread: the runs of an audit are what is spread over threads.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn engine(&self) -> Result<Engine, AuditError> {
        let options = EngineOptions { threads: 1, ..EngineOptions::default() };
        Ok(Engine::new(&self.architecture, options)?)
    }

    /// The canaries as the CPU engine clips them, each alone.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn part(&self, plan: &DpPlan) -> Result<Part, AuditError> {
        let (mut engine, clip_norm) = (self.engine()?, plan.request().clip_norm);
        Part::new(Target::Engine, plan, self.parameters.len(), |j, world| {
            let labels = self.labels(world);
            let batch = Batch::new(self.image(j), &labels[j..=j]);
            let (sum, _) = engine.clipped_sum(&self.parameters, batch, clip_norm)?;
            Ok(sum.into_values())
        })
    }

    /// Runs the mechanism of the plan once, over sums that the CPU engine makes in every step.
    ///
    /// # Errors
    /// [`AuditError`] if engine or mechanism refuse a step, which they have no reason to.
    pub fn released(
        &self,
        part: &Part,
        world: World,
        key: NoiseKey,
    ) -> Result<ReleasedRows, AuditError> {
        let mut engine = self.engine()?;
        let (labels, clip_norm) = (self.labels(world), part.plan.request().clip_norm);
        let all = Batch::new(&self.images, &labels);
        part.released(key, |step| {
            if part.canary.takes_part[step] && part.canary.contribution(world) != 0.0 {
                return Ok(engine.clipped_sum(&self.parameters, all, clip_norm)?.0);
            }
            Ok(PerSampleGradients::new(self.parameters.len()).clip(clip_norm)?)
        })
    }
}

/// Two convolutions and a linear layer: 2898 parameters.
fn architecture() -> Architecture {
    let convolution = |in_channels, out_channels| Layer::Conv2d {
        in_channels,
        out_channels,
        kernel: 3,
        stride: 1,
        padding: 1,
        groups: 1,
    };
    let pool = Layer::MaxPool2d { kernel: 2, stride: 2 };
    let layers = vec![
        convolution(3, 16),
        Layer::Relu,
        pool,
        convolution(16, 16),
        Layer::Relu,
        pool,
        Layer::Flatten,
        Layer::Linear { in_features: 64, out_features: 2 },
    ];
    let input = Shape::Image { channels: 3, height: 8, width: 8 };
    Architecture::new(input, layers).expect("the layers fit")
}

/// One image per canary on which both logits are equal: between an image of each class, by
/// bisection.
fn boundary(
    architecture: &Architecture,
    parameters: &[f32],
    engine: &mut Engine,
) -> Result<Vec<f32>, AuditError> {
    let pixels = architecture.shapes()[0].len();
    let mut is_first = |images: &[f32]| -> Result<Vec<bool>, AuditError> {
        let mut logits = vec![0.0; 2 * images.len() / pixels];
        engine.forward(parameters, images, &mut logits)?;
        Ok(logits.chunks_exact(2).map(|z| z[0] > z[1]).collect())
    };
    let mut rng = SEED.stream(Purpose::Audit);
    let mut classes = [Vec::new(), Vec::new()];
    while classes.iter().any(|images| images.len() < CANARIES * pixels) {
        let pixel = |_| PIXEL * (rng.next_u32() as f32 / (1_u32 << 31) as f32 - 1.0);
        let image: Vec<f32> = (0..pixels).map(pixel).collect();
        let class = &mut classes[usize::from(is_first(&image)?[0])];
        if class.len() < CANARIES * pixels {
            class.extend(image);
        }
    }
    let [mut second, mut first] = classes;
    for _ in 0..30 {
        let middle: Vec<f32> = second.iter().zip(&first).map(|(a, b)| 0.5 * (a + b)).collect();
        for (j, is_first) in is_first(&middle)?.into_iter().enumerate() {
            let range = j * pixels..(j + 1) * pixels;
            let side = if is_first { &mut first } else { &mut second };
            side[range.clone()].copy_from_slice(&middle[range]);
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canaries_are_clipped_at_any_norm_and_the_other_label_turns_them_round() {
        for clip_norm in [1e-3, 1.0, 1e4] {
            let examples = Examples::new(clip_norm).unwrap();
            let mut engine = examples.engine().unwrap();
            assert_eq!(examples.parameters.len(), 2898);
            assert_eq!(engine.ghost_norms(), [false, true, true]);
            let ranges = [0, 3, 7].map(|layer| {
                let tensors = examples.architecture.parameters_of(layer);
                tensors[0].range.start..tensors[1].range.end
            });
            for j in 0..CANARIES {
                let mut clipped = |world| {
                    let labels = &examples.labels(world)[j..=j];
                    let batch = Batch::new(examples.image(j), labels);
                    let sum = engine.clipped_sum(&examples.parameters, batch, clip_norm).unwrap().0;
                    assert_eq!(sum.counts().clipped, 1, "{clip_norm}, canary {j}");
                    sum.into_values()
                };
                let (with, without) = (clipped(World::With), clipped(World::Without));
                let squares = |f: &dyn Fn(f64, f64) -> f64| {
                    let pairs = with.iter().zip(&without);
                    pairs.map(|(a, b)| f(*a, *b).powi(2)).sum::<f64>().sqrt()
                };
                let length = squares(&|with, _| with) / clip_norm;
                assert!((0.999..=1.0 + 1e-6).contains(&length), "{clip_norm}: {length}");
                for range in &ranges {
                    let part: f64 = with[range.clone()].iter().map(|v| v.powi(2)).sum();
                    assert!(part.sqrt() > 0.2 * clip_norm, "canary {j}, {range:?}: {part}");
                }
                let left = squares(&|with, without| with + without) / clip_norm;
                assert!(left < 1e-3, "{clip_norm}, canary {j}: {left}");
            }
        }
    }
}
