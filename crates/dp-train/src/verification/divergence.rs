//! The divergence of two Gaussians, in two ways that share nothing but its definition.
//!
//! With `mu = 1 / multiplier` and `u = epsilon / mu - mu / 2`,
//!
//! ```text
//! delta(epsilon) = integral_u^inf phi(t) (1 - e^{-mu (t - u)}) dt
//! ```
//!
//! One way is the closed form that plans are calibrated with. The other is this integral by Simpson's rule over the
//! place where its mass is, with a bound on its error that is computed along with it: the error on a panel of two
//! steps `h` is at most `h^5 / 90` times the largest fourth derivative there, and the derivatives of `phi` are
//! Hermite polynomials times `phi`. A grid that steps over the mass would have a bound to show for it.

use crate::calibration;

/// A number and how far it may be from the true one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    value: f64,
    error: f64,
}

impl Estimate {
    fn low(self) -> f64 {
        self.value - self.error
    }

    pub(super) fn high(self) -> f64 {
        self.value + self.error
    }
}

/// Panels of Simpson's rule.
const PANELS: usize = 8192;

/// Below it `phi` is zero in f64.
const FAR_LEFT: f64 = -39.0;

/// `delta(epsilon)` as the integral above. O(1), 16,000 exponentials.
pub(super) fn integrated_delta(epsilon: f64, multiplier: f64) -> Estimate {
    let mu = 1.0 / multiplier;
    let u = epsilon * multiplier - 0.5 * mu;
    // From here on less than e^-60 of the mass is left: (u + t)^2 / 2 = u^2 / 2 + 60.
    let end = (u.max(0.0).powi(2) + 120.0).sqrt();
    let tail = phi(end) * (mu * (end - u + 1.0 / end)).min(1.0) / end;
    if mu <= 1.0 {
        // One integral: with small mu the two below would cancel.
        let whole = simpson(u.max(FAR_LEFT), end, |a, b| {
            let value = |t: f64| -phi(t) * (-mu * (t - u)).exp_m1();
            // |h^(k)| <= mu^k for h = 1 - e^{-mu (t - u)}, and h itself is at most mu (b - u) and 1.
            let of_h = [(mu * (b - u)).min(1.0), mu, mu.powi(2), mu.powi(3), mu.powi(4)];
            let largest = phi_derivatives(a, b);
            let fourth = (0..5).map(|k| [1.0, 4.0, 6.0, 4.0, 1.0][k] * largest[4 - k] * of_h[k]);
            (value, fourth.sum())
        });
        return Estimate { value: whole.value, error: whole.error + tail };
    }
    let first = simpson(u.max(FAR_LEFT), end, |a, b| (phi, phi_derivatives(a, b)[4]));
    // phi(u + x) e^{-mu x} = phi(u) e^{-v x - x^2 / 2}, with v = u + mu.
    let v = epsilon * multiplier + 0.5 * mu;
    let decay = |x: f64| (-v * x - 0.5 * x * x).exp();
    let reach = 120.0 / (v + (v * v + 120.0).sqrt());
    let second = simpson(0.0, reach, |a, b| (decay, decay(a) * hermite(v + b)[4]));
    let rest = decay(reach) / (v + reach);
    let scale = phi(u);
    Estimate {
        value: first.value - scale * second.value,
        error: first.error + tail + scale * (second.error + rest),
    }
}

/// The integral over `[from, to]`. For every panel `of` gives the integrand and a bound on its fourth derivative.
fn simpson<F: Fn(f64) -> f64>(from: f64, to: f64, of: impl Fn(f64, f64) -> (F, f64)) -> Estimate {
    let h = 0.5 * (to - from) / PANELS as f64;
    let (mut value, mut error) = (0.0, 0.0);
    for panel in 0..PANELS {
        let a = from + 2.0 * h * panel as f64;
        let (f, fourth) = of(a, a + 2.0 * h);
        value += (f(a) + 4.0 * f(a + h) + f(a + 2.0 * h)) * h / 3.0;
        error += h.powi(5) / 90.0 * fourth;
    }
    // Every term and every addition is right to a few units.
    Estimate { value, error: error + 1e-13 * value.abs() }
}

fn phi(t: f64) -> f64 {
    (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// Bounds on `phi` and its first four derivatives over `[a, b]`.
fn phi_derivatives(a: f64, b: f64) -> [f64; 5] {
    let nearest = if a <= 0.0 && b >= 0.0 { 0.0 } else { a.abs().min(b.abs()) };
    hermite(a.abs().max(b.abs())).map(|polynomial| phi(nearest) * polynomial)
}

/// The Hermite polynomials up to the fourth with positive signs, which bound them for `|t| <= x`.
fn hermite(x: f64) -> [f64; 5] {
    let square = x * x;
    [1.0, x, square + 1.0, x * (square + 3.0), square * (square + 6.0) + 3.0]
}

/// The `epsilon` that this multiplier has at `delta`, if both ways say the same to `tolerance`.
///
/// `None` if they do not, or if there is none that a double can hold.
pub(super) fn epsilon(multiplier: f64, delta: f64, tolerance: f64) -> Option<f64> {
    let found = calibration::exact_epsilon(multiplier, delta).ok()?;
    let above = integrated_delta(found * (1.0 + tolerance) + 1e-12, multiplier);
    let below = integrated_delta(found * (1.0 - tolerance) - 1e-12, multiplier);
    let meets = above.low() <= delta && (found == 0.0 || below.high() >= delta);
    // An error that is not small against delta would let anything pass.
    let sharp = above.error <= 1e-9 * delta + 1e-300;
    (meets && sharp).then_some(found)
}

/// Whether a release with this multiplier is `(epsilon, delta)`-private by the integral alone.
pub(super) fn is_private(epsilon: f64, delta: f64, multiplier: f64) -> bool {
    integrated_delta(epsilon, multiplier).high() <= delta * (1.0 + 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multipliers from 1e-12 to 1e12, seven per power of ten.
    fn multipliers() -> impl Iterator<Item = f64> {
        (-84..=84).map(|i| 10_f64.powf(f64::from(i) / 7.0))
    }

    #[test]
    fn the_integral_is_the_closed_form_within_its_error_for_all_multipliers() {
        for s in multipliers() {
            for eps in [0.0, 1e-6, 1e-3, 0.1, 1.0, 8.0, 100.0, 1e4, 1e6] {
                let closed = calibration::delta(eps, s).unwrap();
                let integral = integrated_delta(eps, s);
                let slack = 1e-9 * closed + 1e-300;
                assert!(
                    (integral.value - closed).abs() <= integral.error + slack,
                    "multiplier {s:e}, epsilon {eps}: {integral:?}, closed form {closed:e}"
                );
                if closed > 1e-290 {
                    assert!(
                        integral.error <= 1e-9 * closed,
                        "{s:e} {eps}: {integral:?} {closed:e}"
                    );
                }
            }
        }
    }

    #[test]
    fn both_ways_agree_on_epsilon_or_there_is_none() {
        for s in multipliers() {
            for delta in [1e-300, 1e-12, 1e-5, 0.5] {
                match (calibration::exact_epsilon(s, delta), epsilon(s, delta, 1e-8)) {
                    (Ok(closed), Some(found)) => assert_eq!(closed, found),
                    // From about 1e10 on u is a difference of two large numbers; nothing is said then.
                    (Ok(closed), None) => assert!(closed > 1e9, "{s:e} {delta:e}: {closed}"),
                    (Err(_), found) => assert_eq!(found, None),
                }
            }
        }
    }

    /// The attack that passed a grid of fixed width: almost no noise, and a small epsilon.
    #[test]
    fn almost_no_noise_is_never_private() {
        for s in multipliers().filter(|s| *s < 1e-3) {
            assert!(!is_private(0.1, 1e-5, s), "{s:e}");
            assert!(epsilon(s, 1e-5, 1e-8).is_none_or(|found| found > 1e5), "{s:e}");
        }
    }
}
