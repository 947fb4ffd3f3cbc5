//! The parameters before the first step.

use chacha20::rand_core::Rng;

use crate::model::architecture::Architecture;
use crate::seeds::{Purpose, RunSeed};

/// PyTorch's default initialization, drawn from the run's stream for it.
///
/// Weights and biases of convolutions and linear layers are uniform on `[-1/sqrt(fan_in),
/// 1/sqrt(fan_in))`, which is Kaiming's uniform with `a = sqrt(5)`; the scale of a normalization is
/// 1, its shift 0. The bits do not depend on the machine. O(parameters).
pub fn initial_parameters(architecture: &Architecture, seed: RunSeed) -> Vec<f32> {
    let mut rng = seed.stream(Purpose::Initialization);
    let mut values = vec![0.0; architecture.parameter_count()];
    for parameter in architecture.parameters() {
        let slice = &mut values[parameter.range.clone()];
        match parameter.fan_in {
            Some(fan_in) => {
                let bound = 1.0 / (fan_in as f64).sqrt();
                for value in slice {
                    // 32 random bits in the middle of their cells: symmetric about zero.
                    let unit = (f64::from(rng.next_u32()) + 0.5) / f64::from(1_u32 << 31) - 1.0;
                    *value = (bound * unit) as f32;
                }
            }
            None if parameter.name.ends_with("weight") => slice.fill(1.0),
            None => slice.fill(0.0),
        }
    }
    values
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
    fn normalization_starts_as_the_identity() {
        let input = Shape::Image { channels: 4, height: 2, width: 2 };
        let layers = vec![Layer::GroupNorm { groups: 2 }];
        let architecture = Architecture::new(input, layers).unwrap();
        let values = initial_parameters(&architecture, RunSeed(0));
        assert_eq!(values, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
