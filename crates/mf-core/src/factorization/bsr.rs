//! The banded square root (BSR): the root of the SGD workload in closed form, cut to `p` diagonals.

use twofloat::TwoFloat;

use crate::workload::Sgd;

/// The first `len` coefficients of `A_{alpha,beta}^{1/2}`,
/// `c_j = sum_{i=0}^{j} alpha^{j-i} r_{j-i} r_i beta^i` with `r_i = |binom(-1/2, i)|`
/// (Kalinin & Lampert 2024, Theorem 1). The `p`-BSR is the first `p` of them.
///
/// Every coefficient is right to the last place or two, the tail included. The convolution that
/// Theorem 1 suggests, taken by FFT, is not: it is off by `1e-16` of the *largest* coefficient, and
/// for `alpha < 1` the tail is smaller than that. Instead: with `gamma = beta / alpha`,
/// `d_j = c_j / alpha^j` has the generating function `((1 - x)(1 - gamma x))^{-1/2}`, and from its
/// differential equation the steps down `e_j = d_j - d_{j+1}` satisfy
///
/// ```text
/// (j + 1) e_j = gamma j e_{j-1} + (1 - gamma)/2 d_j,    d_{j+1} = d_j - e_j.
/// ```
///
/// The first line has only non-negative terms; the second subtracts `e_j ~ d_j / 2j`. Run in twice
/// the working precision, the errors of `p` subtractions stay below `p 2^-104`. The same line shows
/// that the coefficients do not increase, in exact arithmetic and after rounding, which is what the
/// sensitivity needs. `gamma -> 1` gives `e = 0`: nothing is divided by `alpha - beta`. O(len).
pub fn coefficients(sgd: &Sgd, len: usize) -> Vec<f64> {
    let (alpha, beta) = (sgd.decay_factor(), sgd.momentum());
    let gamma = TwoFloat::new_div(beta, alpha);
    let half_step = TwoFloat::new_sub(alpha, beta) / alpha * 0.5;
    let mut d = TwoFloat::from(1.0);
    let mut e = TwoFloat::from(0.0);
    let mut alpha_power = TwoFloat::from(1.0);
    let mut coefficients = Vec::with_capacity(len);
    for j in 0..len {
        coefficients.push((d * alpha_power).hi());
        e = (gamma * e * j as f64 + half_step * d) / (j + 1) as f64;
        d -= e;
        alpha_power *= alpha;
    }
    coefficients
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_momentum_and_decay_they_are_the_central_binomials() {
        let c = coefficients(&Sgd::new(1.0, 0.0).unwrap(), 5);
        assert_eq!(c, [1.0, 0.5, 0.375, 0.3125, 0.2734375]);
    }

    #[test]
    fn they_never_increase_and_stay_positive() {
        for alpha in [1.0, 0.9999, 0.99, 0.5, 1e-3] {
            for gamma in [0.0, 0.1, 0.9, 0.999_999, 1.0 - f64::EPSILON] {
                let sgd = Sgd::new(alpha, alpha * gamma).unwrap();
                let c = coefficients(&sgd, 5000);
                assert!(c.windows(2).all(|w| w[0] >= w[1] && w[1] >= 0.0), "{alpha} {gamma}");
            }
        }
    }
}
