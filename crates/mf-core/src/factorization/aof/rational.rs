//! Poles and weights of a rational approximation to the inverse square root.

/// `x^{-1/2} ~ sum_p weights[p] / (x + shifts[p])` on an interval.
#[derive(Clone, Debug)]
pub(super) struct InverseSquareRoot {
    pub(super) shifts: Vec<f64>,
    pub(super) weights: Vec<f64>,
}

impl InverseSquareRoot {
    /// The trapezoidal rule of Hale, Higham & Trefethen (2008, SIAM J. Numer. Anal. 46, method 3)
    /// on `[low, high]`.
    ///
    /// The relative error falls as `exp(-2 pi^2 P / (ln(high/low) + 6))` in the number of poles `P`,
    /// which is chosen for the `accuracy` asked for.
    pub(super) fn new(low: f64, high: f64, accuracy: f64) -> Self {
        let modulus = (low / high).sqrt();
        let quarter = std::f64::consts::FRAC_PI_2 / arithmetic_geometric_mean(1.0, modulus);
        let span = (high / low).ln() + 6.0;
        let poles =
            (span * -accuracy.ln() / (2.0 * std::f64::consts::PI.powi(2))).ceil().max(4.0) as usize;
        let mut shifts = Vec::with_capacity(poles);
        let mut weights = Vec::with_capacity(poles);
        for p in 0..poles {
            let (sn, cn, dn) = jacobi((p as f64 + 0.5) * quarter / poles as f64, modulus);
            shifts.push(low * (sn / cn).powi(2));
            weights.push(
                2.0 * quarter * low.sqrt() / (std::f64::consts::PI * poles as f64) * dn / (cn * cn),
            );
        }
        Self { shifts, weights }
    }
}

fn arithmetic_geometric_mean(mut a: f64, mut b: f64) -> f64 {
    while (a - b).abs() > 1e-15 * a {
        (a, b) = (0.5 * (a + b), (a * b).sqrt());
    }
    a
}

/// `sn`, `cn`, `dn` at `u` for the modulus whose complement is `complement`, by Gauss's
/// transformation of the arithmetic-geometric mean (Abramowitz & Stegun 16.4). Accurate for a
/// complement near zero, the case at hand.
fn jacobi(u: f64, complement: f64) -> (f64, f64, f64) {
    let mut a = 1.0;
    let mut scales = Vec::new();
    let mut c = complement;
    loop {
        scales.push((a, c));
        let done = (a - c).abs() <= 1e-15 * a;
        let next = 0.5 * (a + c);
        if done {
            a = next;
            break;
        }
        c = (a * c).sqrt();
        a = next;
    }
    // Work with the cotangent of the amplitude, which stays accurate where `cn` is small.
    let (mut sn, mut cn) = (a * u).sin_cos();
    let mut dn = 1.0;
    if sn != 0.0 {
        let mut ratio = cn / sn;
        let mut scaled = ratio * a;
        for &(a, c) in scales.iter().rev() {
            ratio *= scaled;
            scaled *= dn;
            dn = (c + ratio) / (a + ratio);
            ratio = scaled / a;
        }
        let size = 1.0 / (scaled * scaled + 1.0).sqrt();
        sn = size.copysign(sn);
        cn = scaled * sn;
    }
    (sn, cn, dn)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The defining property over the whole interval, for the narrowest and widest spectra met in
    /// practice.
    #[test]
    fn approximates_the_inverse_square_root() {
        for (low, high) in [(0.5f64, 2.0f64), (1e-6, 10.0), (1e-20, 1e3)] {
            let rule = InverseSquareRoot::new(low, high, 1e-11);
            for step in 0..=200 {
                let x = low * (high / low).powf(f64::from(step) / 200.0);
                let sum: f64 =
                    rule.shifts.iter().zip(&rule.weights).map(|(s, w)| w / (x + s)).sum();
                assert!(
                    (sum * x.sqrt() - 1.0).abs() < 1e-10,
                    "{low} {high} {x}: {}",
                    sum * x.sqrt() - 1.0
                );
            }
        }
    }

    /// `sn^2 + cn^2 = 1`, `dn^2 = cn^2 + k'^2 sn^2`, and the circular limit.
    #[test]
    fn jacobi_functions_satisfy_their_identities() {
        for complement in [1e-9, 1e-3, 0.5, 0.99] {
            for u in [0.1, 0.7, 1.3] {
                let (sn, cn, dn) = jacobi(u, complement);
                assert!((sn * sn + cn * cn - 1.0).abs() < 1e-13);
                assert!((dn * dn - cn * cn - complement * complement * sn * sn).abs() < 1e-13);
            }
        }
        let (sn, _, _) = jacobi(0.7, 1.0 - 1e-14);
        assert!((sn - 0.7f64.sin()).abs() < 1e-12);
    }
}
