//! The banded square root (BSR): the root of the SGD workload in closed form, cut to `p` diagonals.

use twofloat::TwoFloat;

use crate::error::{Error, Result};
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

/// The first column of `LDToep(a)^{1/2}`, as many coefficients as `a` has, for a workload without a closed
/// form: `c_j = (a_j - sum_{0<i<j} c_i c_{j-i}) / (2 c_0)`. O(len^2).
///
/// The sum is taken in twice the working precision; what is subtracted may cancel, so that a coefficient is
/// off by some `2^-53` of the largest ones before it and not of itself. Privacy does not depend on that:
/// the sensitivity is computed from the coefficients as they are.
///
/// # Errors
/// [`Error::NonPositiveDiagonal`] unless `a_0 > 0`, [`Error::NotFinite`] if a coefficient overflows.
pub fn root_of_column(a: &[f64]) -> Result<Vec<f64>> {
    let Some(&first) = a.first().filter(|first| **first > 0.0) else {
        let value = a.first().copied().unwrap_or(0.0);
        return Err(Error::NonPositiveDiagonal { index: 0, value });
    };
    let mut c = vec![first.sqrt()];
    for j in 1..a.len() {
        let mut rest = TwoFloat::from(a[j]);
        for i in 1..j {
            rest -= TwoFloat::new_mul(c[i], c[j - i]);
        }
        let next = rest.hi() / (2.0 * c[0]);
        if !next.is_finite() {
            return Err(Error::NotFinite { row: j, column: 0 });
        }
        c.push(next);
    }
    Ok(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_a_column_is_the_closed_form_where_there_is_one() {
        for (alpha, beta) in [(1.0, 0.0), (0.99, 0.9), (0.5, 0.25)] {
            let sgd = Sgd::new(alpha, beta).unwrap();
            let root = root_of_column(&sgd.coefficients(300)).unwrap();
            for (j, (x, y)) in root.iter().zip(coefficients(&sgd, 300)).enumerate() {
                assert!((x - y).abs() < 1e-14, "{alpha} {beta} {j}: {x} and {y}");
            }
        }
        assert_eq!(root_of_column(&[4.0, 4.0]), Ok(vec![2.0, 1.0]));
        let negative = Error::NonPositiveDiagonal { index: 0, value: -1.0 };
        assert_eq!(root_of_column(&[-1.0, 2.0]), Err(negative));
        assert!(matches!(root_of_column(&[1e-300, 1e300]), Err(Error::NotFinite { .. })));
    }

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
