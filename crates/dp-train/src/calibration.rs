//! Calibration: how much noise makes one Gaussian release `(epsilon, delta)`-private.
//!
//! The whole of training is one release, of `C X`, with sensitivity `sens(C)`; so a single number
//! decides: the *noise multiplier*, the standard deviation of the noise over the sensitivity. A
//! Gaussian release with multiplier `s` is `(epsilon, delta)`-private exactly if
//!
//! ```text
//! delta >= Q(u) - e^epsilon Q(v),    u = epsilon s - 1/(2s),    v = epsilon s + 1/(2s)
//! ```
//!
//! with the normal tail `Q` (Balle & Wang 2018, Theorem 8, arXiv:1805.06530). Both terms share the
//! factor `e^{-u^2/2}`, since `v^2 / 2 = u^2 / 2 + epsilon`; with it taken out nothing overflows,
//! and what is left is a difference `R(u) - R(v)` of two numbers of moderate size, Mills' ratios
//! `R(a) = Q(a) / phi(a)`. Where the multiplier is large, `u` and `v` are close, and the difference is
//! expanded in `v - u` instead.
//!
//! All results are rounded towards more privacy: the multiplier up, epsilon up. How the Gaussian is drawn in
//! floating point is the matter of [`noise`](crate::noise).

use std::f64::consts::{FRAC_1_SQRT_2, PI};
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// By which relative amount the multiplier exceeds the root of the equation.
///
/// Covers the rounding of [`delta`] (below 1e-12) and of `sens(C)` (below 1e-15 sqrt(n)), and is
/// far below anything that shows in utility.
pub const MARGIN: f64 = 1e-9;

/// The least `epsilon` that noise is made for; a smaller one is a mistake.
pub const LEAST_EPSILON: f64 = 1e-6;

/// The least `delta`: below it the tails of the normal cannot be told from 0.
pub const LEAST_DELTA: f64 = 1e-300;

/// Which two data sets count as neighbours, and so what a sensitivity of 1 means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "config", derive(clap::ValueEnum, schemars::JsonSchema))]
#[cfg_attr(feature = "config", schemars(rename_all = "kebab-case"))]
pub enum Neighbouring {
    /// One example is there, or its gradients are zero. The number of examples is public, the others keep their
    /// places in the order, and batches keep their size. Files of the first version call it `add_remove`.
    #[default]
    #[serde(alias = "add_remove", alias = "add-remove", alias = "zero-out")]
    ZeroOut,
    /// One example is exchanged for another: its update can turn round, which doubles the distance.
    #[serde(alias = "replace-one")]
    ReplaceOne,
}

impl Neighbouring {
    /// The distance between neighbours when one clipped gradient has norm at most 1.
    pub fn factor(self) -> f64 {
        match self {
            Neighbouring::ZeroOut => 1.0,
            Neighbouring::ReplaceOne => 2.0,
        }
    }
}

impl fmt::Display for Neighbouring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Neighbouring::ZeroOut => "zero out one example",
            Neighbouring::ReplaceOne => "replace one example",
        })
    }
}

/// A privacy parameter outside the domain of the Gaussian mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum CalibrationError {
    /// `epsilon` is not a finite number from [`LEAST_EPSILON`] on.
    #[error("epsilon must be finite and at least 1e-6, but it is {epsilon}")]
    Epsilon {
        /// The value given.
        epsilon: f64,
    },
    /// `delta` is not from [`LEAST_DELTA`] on and below 1.
    #[error("delta must be at least 1e-300 and below 1, but it is {delta}")]
    Delta {
        /// The value given.
        delta: f64,
    },
    /// The noise multiplier is not a positive finite number.
    #[error("the noise multiplier must be positive and finite, but it is {multiplier}")]
    Multiplier {
        /// The value given.
        multiplier: f64,
    },
    /// No double is large or small enough to be the answer.
    #[error("no representable noise multiplier or epsilon gives this privacy")]
    OutOfRange,
}

/// The smallest `delta` for which a Gaussian release with this multiplier is
/// `(epsilon, delta)`-private, to about 12 digits. O(1).
///
/// `epsilon = 0` is allowed: the total variation distance.
///
/// # Errors
/// [`CalibrationError::Epsilon`] or [`CalibrationError::Multiplier`].
pub fn delta(epsilon: f64, multiplier: f64) -> Result<f64, CalibrationError> {
    if !(epsilon >= 0.0 && epsilon.is_finite()) {
        return Err(CalibrationError::Epsilon { epsilon });
    }
    check_multiplier(multiplier)?;
    Ok(tail_difference(epsilon, multiplier))
}

/// The noise multiplier of an `(epsilon, delta)`-private Gaussian release, rounded up:
/// `delta(epsilon, multiplier) <= delta` holds for the result, and it exceeds the smallest such
/// multiplier by a relative [`MARGIN`]. About 60 evaluations of [`delta`].
///
/// # Errors
/// [`CalibrationError::Epsilon`], [`CalibrationError::Delta`] or [`CalibrationError::OutOfRange`].
pub fn multiplier(epsilon: f64, delta: f64) -> Result<f64, CalibrationError> {
    if !(epsilon >= LEAST_EPSILON && epsilon.is_finite()) {
        return Err(CalibrationError::Epsilon { epsilon });
    }
    check_delta(delta)?;
    let enough = |s: f64| tail_difference(epsilon, s) <= delta;
    let root = least(1e-12, 1e12, enough).ok_or(CalibrationError::OutOfRange)?;
    let rounded = root * (1.0 + MARGIN);
    if enough(rounded) { Ok(rounded) } else { Err(CalibrationError::OutOfRange) }
}

/// The `epsilon` of a Gaussian release with this multiplier at `delta`, rounded up; 0 if the
/// release is private at `delta` alone. About 60 evaluations of [`delta`].
///
/// The multiplier is taken to be smaller by the [`MARGIN`] by which [`multiplier`] exceeds the smallest one, so each
/// is the inverse of the other and both allow for the same rounding.
///
/// # Errors
/// [`CalibrationError::Multiplier`], [`CalibrationError::Delta`] or
/// [`CalibrationError::OutOfRange`].
pub fn epsilon(multiplier: f64, delta: f64) -> Result<f64, CalibrationError> {
    exact_epsilon(multiplier / (1.0 + MARGIN), delta)
}

/// The same without the margin.
pub(crate) fn exact_epsilon(multiplier: f64, delta: f64) -> Result<f64, CalibrationError> {
    check_multiplier(multiplier)?;
    check_delta(delta)?;
    let enough = |epsilon: f64| tail_difference(epsilon, multiplier) <= delta;
    if enough(0.0) {
        return Ok(0.0);
    }
    least(1e-12, 1e12, enough).ok_or(CalibrationError::OutOfRange)
}

fn check_multiplier(multiplier: f64) -> Result<(), CalibrationError> {
    if multiplier > 0.0 && multiplier.is_finite() {
        Ok(())
    } else {
        Err(CalibrationError::Multiplier { multiplier })
    }
}

fn check_delta(delta: f64) -> Result<(), CalibrationError> {
    if (LEAST_DELTA..1.0).contains(&delta) {
        Ok(())
    } else {
        Err(CalibrationError::Delta { delta })
    }
}

/// The least `x` in `[low, high]` with `enough(x)`, from above and to the last bits; `enough` must
/// stay true once it is. Bisects the logarithm first, so that every magnitude costs the same.
fn least(mut low: f64, mut high: f64, enough: impl Fn(f64) -> bool) -> Option<f64> {
    if enough(low) {
        return Some(low);
    }
    if !enough(high) {
        return None;
    }
    loop {
        let middle = if high > 2.0 * low { (low * high).sqrt() } else { 0.5 * (low + high) };
        if middle <= low || middle >= high {
            return Some(high);
        }
        if enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
}

/// `Q(u) - e^epsilon Q(v)`, for `epsilon >= 0`.
pub(crate) fn tail_difference(epsilon: f64, multiplier: f64) -> f64 {
    let shift = 0.5 / multiplier;
    let (u, v) = (epsilon * multiplier - shift, epsilon * multiplier + shift);
    let common = 0.5 * (-0.5 * u * u).exp();
    if 2.0 * shift * (1.0 + u.abs()) < 0.01 {
        return (common * (2.0 / PI).sqrt() * close_mills_difference(u, 2.0 * shift))
            .clamp(0.0, 1.0);
    }
    let subtracted = common * scaled_erfc(v * FRAC_1_SQRT_2);
    let tail = if u >= 0.0 {
        common * scaled_erfc(u * FRAC_1_SQRT_2)
    } else {
        0.5 * libm::erfc(u * FRAC_1_SQRT_2)
    };
    (tail - subtracted).clamp(0.0, 1.0)
}

/// `R(u) - R(u + step)` of Mills' ratio for a small step and `u` no smaller than `-step`, to about 10 digits.
///
/// Taylor's series: `R' = a R - 1`, and by Leibniz' rule `R^(k) = a R^(k-1) + (k - 1) R^(k-2)`. The ninth term is
/// below 1e-16 of the first.
fn close_mills_difference(u: f64, step: f64) -> f64 {
    let x = u * FRAC_1_SQRT_2;
    let scaled = if x >= 0.0 { scaled_erfc(x) } else { (x * x).exp() * libm::erfc(x) };
    let (mut before, mut derivative) = ((0.5 * PI).sqrt() * scaled, 0.0);
    let (mut sum, mut power) = (0.0, 1.0);
    for k in 1..=8 {
        let next = match k {
            1 => u * before - 1.0,
            k => u * derivative + f64::from(k - 1) * before,
        };
        if k > 1 {
            before = derivative;
        }
        derivative = next;
        power *= step / f64::from(k);
        sum -= power * derivative;
    }
    sum
}

/// `e^{x^2} erfc(x)` for `x >= 0`, to about 13 digits.
///
/// From the library's `erfc` while that is far from underflow, then by the continued fraction
/// `1 / (x + (1/2) / (x + (2/2) / (x + ...))) / sqrt(pi)`, which at `x >= 8` has converged after 24
/// terms.
fn scaled_erfc(x: f64) -> f64 {
    if x < 8.0 {
        // x^2 with its rounding error: at x = 8 the error alone would cost two digits.
        let square = x * x;
        let rest = x.mul_add(x, -square);
        return square.exp() * (1.0 + rest) * libm::erfc(x);
    }
    let fraction = (1..=24).rev().fold(x, |below, k| x + 0.5 * f64::from(k) / below);
    1.0 / (fraction * PI.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_erfc_joins_smoothly_and_matches_known_values() {
        // Values of erfcx from scipy.special (Faddeeva).
        let known = [
            (0.0, 1.0),
            (0.5, 0.6156903441929258),
            (1.0, 0.427583576155807),
            (3.0, 0.17900115118138998),
            (8.0, 0.06998516620088094),
            (20.0, 0.028174348741051323),
        ];
        for (x, expected) in known {
            let relative = scaled_erfc(x) / expected - 1.0;
            assert!(relative.abs() < 1e-13, "erfcx({x}) off by {relative:e}");
        }
        let jump = scaled_erfc(8.0) / scaled_erfc(8.0_f64.next_down()) - 1.0;
        assert!(jump.abs() < 1e-13, "{jump:e}");
    }

    #[test]
    fn arguments_outside_the_domain_are_refused() {
        assert_eq!(multiplier(0.0, 1e-5), Err(CalibrationError::Epsilon { epsilon: 0.0 }));
        assert!(multiplier(f64::NAN, 1e-5).is_err() && multiplier(1.0, f64::NAN).is_err());
        assert_eq!(multiplier(1.0, 1.0), Err(CalibrationError::Delta { delta: 1.0 }));
        assert_eq!(delta(1.0, -1.0), Err(CalibrationError::Multiplier { multiplier: -1.0 }));
        assert_eq!(epsilon(1.0, 0.0), Err(CalibrationError::Delta { delta: 0.0 }));
        assert_eq!(multiplier(9e-7, 1e-5), Err(CalibrationError::Epsilon { epsilon: 9e-7 }));
        assert_eq!(multiplier(1.0, 1e-301), Err(CalibrationError::Delta { delta: 1e-301 }));
        assert!(multiplier(1e-6, 1e-300).is_ok());
    }

    #[test]
    fn epsilon_and_multiplier_are_inverse_to_each_other_with_one_margin() {
        for asked in [1e-6, 0.01, 1.0, 8.0, 300.0] {
            for delta in [1e-300, 1e-10, 1e-5, 0.1] {
                let Ok(s) = multiplier(asked, delta) else { continue };
                let found = epsilon(s, delta).unwrap();
                assert!((found / asked - 1.0).abs() < 1e-8, "{asked} {delta}: {found}");
                // Without the margin it would be below by about that much.
                let bare = super::delta(asked, s).unwrap();
                assert!(bare <= delta);
            }
        }
    }
}
