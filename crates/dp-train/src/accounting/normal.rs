//! Masses of the normal law to full relative precision, however far out.

use std::f64::consts::FRAC_1_SQRT_2;

use crate::calibration::tail_difference;

/// A place on the line, with the mass of the standard normal on the far side of it as seen from 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    at: f64,
    tail: f64,
}

impl Edge {
    pub(super) fn new(at: f64) -> Self {
        Self { at, tail: 0.5 * libm::erfc(at.abs() * FRAC_1_SQRT_2) }
    }

    /// The mass above.
    pub(super) fn above(self) -> f64 {
        if self.at >= 0.0 { self.tail } else { 1.0 - self.tail }
    }

    /// The mass below.
    pub(super) fn below(self) -> f64 {
        if self.at >= 0.0 { 1.0 - self.tail } else { self.tail }
    }

    /// The mass from here to `upper`, taken in the smaller tail, and the size of what was subtracted from what: the
    /// rounding error is a few units in the last place of the latter.
    pub(super) fn mass_to(self, upper: Self) -> (f64, f64) {
        if self.at >= 0.0 {
            ((self.tail - upper.tail).max(0.0), self.tail)
        } else if upper.at <= 0.0 {
            ((upper.tail - self.tail).max(0.0), upper.tail)
        } else {
            ((1.0 - self.tail - upper.tail).max(0.0), 1.0)
        }
    }
}

/// `E (V - e^loss)_+` for `V = exp(mean z - mean^2 / 2)`, `z` standard normal: the divergence between normals `mean`
/// apart, in either direction, at any real `loss`.
///
/// For negative losses by `E (V - e^y)_+ = 1 - e^y + E (e^y - V)_+` and symmetry:
/// `E (e^y - V)_+ = e^y E (1 - e^{-y} V)_+ = e^y E (V - e^{-y})_+`.
pub(super) fn divergence(loss: f64, mean: f64) -> f64 {
    if loss < 0.0 {
        return -loss.exp_m1() + loss.exp() * divergence(-loss, mean);
    }
    // Below this V cannot be told from 1.
    if mean < 1e-12 {
        return 0.4 * mean * f64::from(u8::from(loss < 64.0 * mean));
    }
    tail_difference(loss, 1.0 / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masses_keep_their_digits_in_both_tails() {
        // scipy.stats.norm.sf: sf(8) = 6.220960574271785e-16, sf(9) = 1.1285884059538425e-19.
        let expected = 6.220960574271785e-16 - 1.1285884059538425e-19;
        let (right, _) = Edge::new(8.0).mass_to(Edge::new(9.0));
        let (left, _) = Edge::new(-9.0).mass_to(Edge::new(-8.0));
        assert!((right / expected - 1.0).abs() < 1e-13 && right == left);
        let (across, _) = Edge::new(-1.0).mass_to(Edge::new(1.0));
        assert!((across - 0.682_689_492_137_085_9).abs() < 1e-15);
        let all = Edge::new(f64::NEG_INFINITY).mass_to(Edge::new(f64::INFINITY)).0;
        assert_eq!((all, Edge::new(f64::NEG_INFINITY).above()), (1.0, 1.0));
    }

    #[test]
    fn the_divergence_agrees_with_quadrature_at_all_losses() {
        // The mean over midpoints of 40,000 cells of [-12, 12].
        let by_quadrature = |loss: f64, mean: f64| -> f64 {
            let width = 24.0 / 40_000.0;
            let cell = |i: i32| {
                let z = -12.0 + (f64::from(i) + 0.5) * width;
                let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
                ((mean * z - 0.5 * mean * mean).exp() - loss.exp()).max(0.0) * density * width
            };
            (0..40_000).map(cell).sum()
        };
        for mean in [0.01, 0.3, 1.0, 2.5] {
            for loss in [-5.0, -0.7, -0.01, 0.0, 0.02, 1.0, 4.0] {
                let (found, expected) = (divergence(loss, mean), by_quadrature(loss, mean));
                assert!(
                    (found - expected).abs() < 1e-7 * (1.0 + expected),
                    "{loss} {mean}: {found} {expected}"
                );
            }
        }
        assert!(divergence(0.0, 1e-13) >= 0.39e-13 && divergence(1.0, 0.0) == 0.0);
    }
}
