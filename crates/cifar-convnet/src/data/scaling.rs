//! Scaling of `f32` inputs by constants that stand in the config.
//!
//! They are public: a mean that was computed from the training examples would be a release of its own,
//! which no guarantee of the training covers.

use anyhow::ensure;

/// What a model sees of a number `x` of channel `c`: `(x - offset[c]) / scale[c]`. The columns of a table
/// are channels.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaling {
    /// Offset and scale of every channel.
    channels: Vec<[f32; 2]>,
}

impl Scaling {
    /// One constant for all channels, or one for each.
    ///
    /// # Errors
    /// The constant that has no use as an `f32`, or that there are too few or too many of them.
    pub fn new(offset: &[f64], scale: &[f64], channels: usize) -> anyhow::Result<Self> {
        for (key, constants) in [("offset", offset), ("scale", scale)] {
            let count = constants.len();
            ensure!(
                count == 1 || count == channels,
                "data.{key} must be one number or {channels}, one per channel or column, but it has {count}"
            );
            for &constant in constants {
                // As it is used.
                let number = constant as f32;
                let usable = number.is_finite() && (key == "offset" || number != 0.0);
                ensure!(usable, "data.{key} cannot be {constant}");
            }
        }
        let of = |constants: &[f64], channel: usize| {
            let only = constants.len() == 1;
            constants[if only { 0 } else { channel }] as f32
        };
        let pair = |channel: usize| [of(offset, channel), of(scale, channel)];
        Ok(Self { channels: (0..channels).map(pair).collect() })
    }

    /// `(x - offset) / scale` of a channel.
    ///
    /// # Panics
    /// If there is no such channel.
    pub(super) fn apply(&self, channel: usize, x: f32) -> f32 {
        let [offset, scale] = self.channels[channel];
        (x - offset) / scale
    }

    /// How many channels it was made for.
    pub(super) fn channels(&self) -> usize {
        self.channels.len()
    }

    /// The first number of an example that is not finite, or not any more once it is scaled.
    pub(super) fn first_not_finite(&self, example: &[f32]) -> Option<usize> {
        let plane = example.len() / self.channels.len().max(1);
        let is_finite = |(at, &x): (usize, &f32)| self.apply(at / plane, x).is_finite();
        example.iter().enumerate().position(|number| !is_finite(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_constant_stands_for_all_channels_and_useless_ones_are_refused() {
        let scaling = Scaling::new(&[1.0], &[2.0, 4.0], 2).unwrap();
        assert_eq!((scaling.apply(0, 5.0), scaling.apply(1, 5.0)), (2.0, 1.0));
        assert_eq!(Scaling::new(&[0.0], &[1.0], 1).unwrap().apply(0, 0.1), 0.1);
        for (offset, scale) in [
            (&[0.0][..], &[0.0][..]),
            (&[f64::NAN], &[1.0]),
            (&[0.0], &[1e-60]),
            (&[1e60], &[1.0]),
            (&[0.0; 3], &[1.0]),
            (&[], &[1.0]),
        ] {
            assert!(Scaling::new(offset, scale, 2).is_err(), "{offset:?} {scale:?}");
        }
    }

    #[test]
    fn what_is_not_finite_is_found_before_and_after_scaling() {
        let scaling = Scaling::new(&[0.0], &[1.0, 1e-30], 2).unwrap();
        assert_eq!(scaling.first_not_finite(&[1.0, 2.0, 3.0, 4.0]), None);
        assert_eq!(scaling.first_not_finite(&[1e20, 2.0, 3.0, 1e20]), Some(3));
        assert_eq!(scaling.first_not_finite(&[1.0, f32::NAN, 3.0, 1e20]), Some(1));
    }
}
