//! The banded inverse square root (BISR): `p` diagonals of `A^{-1/2}` in closed form.

use twofloat::TwoFloat;

use crate::workload::Sgd;

/// The first `len` coefficients of `A_{alpha,beta}^{-1/2}`, the series of `sqrt((1 - alpha x)(1 - beta x))`.
/// `C^-1` of the `p`-BISR is the first `p` of them (Kalinin, McKenna, Upadhyay & Lampert 2025,
/// arXiv:2505.12128); for the prefix sum they are 1, -1/2, -1/8, -1/16, -5/128.
///
/// From the differential equation of the series,
///
/// ```text
/// (j + 1) g_{j+1} = (alpha + beta) (j - 1/2) g_j - alpha beta (j - 2) g_{j-1},
/// g_0 = 1,  g_1 = -(alpha + beta)/2,  g_2 = -(alpha - beta)^2 / 8
/// ```
///
/// in twice the working precision. `g_2` is written so that `beta -> alpha`, where all coefficients from
/// there on vanish, loses nothing. O(len).
///
/// # Why the strategy is not negative
/// `A^{1/2}` has the coefficients `c_j = int t^j dmu(t)` for a probability `mu` on `[beta, alpha]`, so they
/// are log-convex, and the reciprocal of a log-convex series has no positive coefficient after the first
/// (Kaluza 1928). Hence `g_j <= 0` for `j >= 1`, and whatever the number of bands, `C = (C^-1)^-1` is a
/// sum of products of non-negative numbers. That it also falls is checked on its numbers.
pub fn coefficients(sgd: &Sgd, len: usize) -> Vec<f64> {
    let (alpha, beta) = (sgd.decay_factor(), sgd.momentum());
    let (sum, difference) = (TwoFloat::new_add(alpha, beta), TwoFloat::new_sub(alpha, beta));
    let product = TwoFloat::new_mul(alpha, beta);
    let mut g = vec![TwoFloat::from(1.0), sum * -0.5, difference * difference * -0.125];
    for j in 2..len.saturating_sub(1) {
        let next = sum * g[j] * (j as f64 - 0.5) - product * g[j - 1] * (j as f64 - 2.0);
        g.push(next / (j + 1) as f64);
    }
    // Rounding must not make a zero positive.
    let mut coefficients: Vec<f64> = g.iter().take(len).map(|g| g.hi()).collect();
    coefficients.iter_mut().skip(1).for_each(|g| *g = g.min(0.0));
    coefficients
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    #[test]
    fn those_of_the_prefix_sum_are_the_published_ones() {
        let g = coefficients(&Sgd::new(1.0, 0.0).unwrap(), 5);
        assert_eq!(g, [1.0, -0.5, -0.125, -0.0625, -5.0 / 128.0]);
        assert_eq!(coefficients(&Sgd::new(1.0, 0.0).unwrap(), 1), [1.0]);
        assert_eq!(coefficients(&Sgd::new(1.0, 0.5).unwrap(), 2), [1.0, -0.75]);
    }

    #[test]
    fn they_are_those_of_the_product_of_two_binomial_series() {
        for (alpha, beta) in [(1.0, 0.0), (1.0, 0.9), (0.999, 0.5), (0.9, 0.8999), (0.3, 0.1)] {
            let sgd = Sgd::new(alpha, beta).unwrap();
            let fast = coefficients(&sgd, 300);
            let slow = reference::inverse_square_root_coefficients(&sgd, 300);
            for (j, (x, y)) in fast.iter().zip(&slow).enumerate() {
                assert!((x - y).abs() < 1e-15, "{alpha} {beta} {j}: {x} and {y}");
            }
        }
    }

    #[test]
    fn none_after_the_first_is_positive_and_nearly_equal_parameters_lose_nothing() {
        for gamma in [0.0, 0.5, 0.99, 1.0 - 1e-9, 1.0 - f64::EPSILON] {
            let g = coefficients(&Sgd::new(0.75, 0.75 * gamma).unwrap(), 2000);
            assert!(g[1..].iter().all(|&g| g <= 0.0), "{gamma}");
        }
        // beta = alpha - d: g_j ~ -d^2/8 alpha^(j-2) to first order, the tail of 1 - alpha x + O(d^2).
        let (alpha, d) = (0.75, 1e-7);
        let g = coefficients(&Sgd::new(alpha, alpha - d).unwrap(), 10);
        for j in 2..10 {
            let limit = -d * d / 8.0 * alpha.powi(j - 2);
            assert!((g[j as usize] / limit - 1.0).abs() < 1e-5, "{j}: {} {limit}", g[j as usize]);
        }
    }
}
