//! The parameters before the first step.

use chacha20::rand_core::Rng;

use crate::model::architecture::Architecture;
use crate::seeds::{Purpose, RunSeed};

/// How weights are drawn. The bits do not depend on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "config", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// PyTorch's: weights and biases uniform on `[-1/sqrt(fan_in), 1/sqrt(fan_in))`. Under ReLU, the signal
    /// shrinks by `sqrt(6)` in every layer.
    #[default]
    Default,
    /// He's for ReLU: weights uniform on `[-sqrt(6/fan_in), sqrt(6/fan_in))`, biases zero. The signal keeps its size
    /// from layer to layer, so the gradients of the first layers are not lost in the noise.
    He,
}

/// The parameters before the first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Initialization {
    /// Of convolutions and linear layers; a normalization has scale 1 and shift 0.
    pub distribution: Distribution,
    /// Whether the last layer with weights is zero instead, so that all classes are equally likely at first.
    pub zero_head: bool,
}

impl Initialization {
    /// Draws the parameters from the run's stream for it. O(parameters).
    pub fn draw(self, architecture: &Architecture, seed: RunSeed) -> Vec<f32> {
        let mut rng = seed.stream(Purpose::Initialization);
        let mut values = vec![0.0; architecture.parameter_count()];
        for parameter in architecture.parameters() {
            let slice = &mut values[parameter.range.clone()];
            let is_weight = parameter.name.ends_with("weight");
            let bound = match (parameter.fan_in, self.distribution) {
                (Some(fan_in), Distribution::Default) => 1.0 / (fan_in as f64).sqrt(),
                (Some(fan_in), Distribution::He) if is_weight => (6.0 / fan_in as f64).sqrt(),
                (Some(_), Distribution::He) => continue,
                (None, _) => {
                    slice.fill(if is_weight { 1.0 } else { 0.0 });
                    continue;
                }
            };
            for value in slice {
                // 32 random bits in the middle of their cells: symmetric about zero.
                let unit = (f64::from(rng.next_u32()) + 0.5) / f64::from(1_u32 << 31) - 1.0;
                *value = (bound * unit) as f32;
            }
        }
        if let Some(head) = architecture.head().filter(|_| self.zero_head) {
            for parameter in architecture.parameters_of(head) {
                values[parameter.range.clone()].fill(0.0);
            }
        }
        values
    }
}

/// PyTorch's default initialization: [`Initialization::draw`] of the default. O(parameters).
pub fn initial_parameters(architecture: &Architecture, seed: RunSeed) -> Vec<f32> {
    Initialization::default().draw(architecture, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::layer::Layer;
    use crate::model::shape::Shape;

    #[test]
    fn tensors_have_the_variance_of_their_bound_and_seeds_differ() {
        let input = Shape::Image { channels: 3, height: 8, width: 8 };
        let layers =
            vec![Layer::conv(3, 32, 3), Layer::Relu, Layer::Flatten, Layer::linear(2048, 10)];
        let architecture = Architecture::new(input, layers).unwrap();
        let values = initial_parameters(&architecture, RunSeed(7));
        assert_eq!(values, initial_parameters(&architecture, RunSeed(7)));
        assert_ne!(values, initial_parameters(&architecture, RunSeed(8)));
        for parameter in architecture.parameters() {
            let slice = &values[parameter.range.clone()];
            let bound = 1.0 / (parameter.fan_in.unwrap() as f64).sqrt();
            assert!(slice.iter().all(|&v| f64::from(v).abs() <= bound));
            // The mean of n squares of uniforms has standard error bound^2 sqrt(4/45 / n).
            let n = slice.len() as f64;
            let mean = slice.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n;
            let error = 5.0 * bound.powi(2) * (4.0 / 45.0 / n).sqrt();
            assert!((mean - bound.powi(2) / 3.0).abs() < error, "{}", parameter.name);
        }
    }

    #[test]
    fn he_keeps_the_signal_and_a_zero_head_says_nothing() {
        let input = Shape::Image { channels: 3, height: 8, width: 8 };
        let layers =
            vec![Layer::conv(3, 32, 3), Layer::Relu, Layer::Flatten, Layer::linear(2048, 10)];
        let architecture = Architecture::new(input, layers).unwrap();
        let he = Initialization { distribution: Distribution::He, zero_head: false };
        let (drawn, plain) =
            (he.draw(&architecture, RunSeed(7)), initial_parameters(&architecture, RunSeed(7)));
        let [weight, bias, head, head_bias] = architecture.parameters() else { panic!() };
        let bound = (6.0_f32 / 27.0).sqrt();
        let of = |values: &[f32], range: &std::ops::Range<usize>| values[range.clone()].to_vec();
        assert!(of(&drawn, &weight.range).iter().all(|value| value.abs() <= bound));
        assert!(of(&drawn, &weight.range).iter().any(|value| value.abs() > 0.9 * bound));
        // The same words, scaled: sqrt(6) times PyTorch's bound.
        let ratio = f64::from(drawn[0]) / f64::from(plain[0]);
        assert!((ratio - 6.0_f64.sqrt()).abs() < 1e-5, "{ratio}");
        assert!(
            of(&drawn, &bias.range).iter().chain(&of(&drawn, &head_bias.range)).all(|&b| b == 0.0)
        );
        let zero = Initialization { zero_head: true, ..he }.draw(&architecture, RunSeed(7));
        assert_eq!(architecture.head(), Some(3));
        let range = head.range.start..head_bias.range.end;
        assert!(zero[range].iter().all(|&value| value == 0.0));
        assert_eq!(zero[..head.range.start], drawn[..head.range.start]);
    }

    #[test]
    fn normalization_starts_as_the_identity() {
        let input = Shape::Image { channels: 4, height: 2, width: 2 };
        let layers = vec![Layer::GroupNorm { groups: 2 }];
        let architecture = Architecture::new(input, layers).unwrap();
        let values = initial_parameters(&architecture, RunSeed(0));
        assert_eq!(values, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
