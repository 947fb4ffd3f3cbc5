//! Every coefficient of the square root and of the workload against 300-bit arithmetic.

use dashu_float::FBig;
use mf_core::{Sgd, factorization::bsr};

type Big = FBig;

/// The largest relative error allowed: rounding to nearest makes 1.1e-16.
const LAST_PLACE: f64 = 2.3e-16;

const PARAMETERS: [(f64, f64); 9] = [
    (1.0, 0.0),
    (1.0, 0.9),
    (1.0, 0.999),
    (0.9999, 0.9),
    (0.999, 0.0),
    (0.99, 0.9),
    (0.9, 0.899_999_999),
    (0.5, 0.25),
    (1e-3, 5e-4),
];

fn big(x: f64) -> Big {
    Big::try_from(x).unwrap().with_precision(300).value()
}

fn relative_error(x: f64, exact: &Big) -> f64 {
    ((big(x) - exact) / exact).to_f64().value().abs()
}

/// `t^i r_i` for `i < len`.
fn root_terms(t: f64, len: usize) -> Vec<Big> {
    let t = big(t);
    let mut terms = vec![big(1.0)];
    for i in 1..len {
        let step = &t * big((2 * i - 1) as f64) / big((2 * i) as f64);
        terms.push(&terms[i - 1] * step);
    }
    terms
}

#[test]
fn every_root_coefficient_is_right_to_the_last_place() {
    for (alpha, beta) in PARAMETERS {
        let len = 600;
        let (x, y) = (root_terms(alpha, len), root_terms(beta, len));
        let c = bsr::coefficients(&Sgd::new(alpha, beta).unwrap(), len);
        for j in 0..len {
            let exact = (0..=j).fold(big(0.0), |sum, i| sum + &x[j - i] * &y[i]);
            if exact.to_f64().value() < f64::MIN_POSITIVE {
                assert!(c[j] <= f64::MIN_POSITIVE, "below the normal numbers: {}", c[j]);
                continue;
            }
            let error = relative_error(c[j], &exact);
            assert!(error < LAST_PLACE, "alpha {alpha}, beta {beta}, j = {j}: {error:e}");
        }
    }
}

#[test]
fn the_tail_at_a_million_is_right_to_the_last_place() {
    // Only terms with small i matter: beta^i vanishes. They need r and alpha^j near j = 10^6 - 1.
    let j = 999_999;
    let mut r_j = big(1.0);
    for i in 1..=j {
        r_j = r_j * big((2 * i - 1) as f64) / big((2 * i) as f64);
    }
    for (alpha, beta) in [(1.0, 0.0), (1.0, 0.9), (0.9999, 0.9)] {
        let y = root_terms(beta, 3000);
        let mut x = r_j.clone() * big(alpha).powi((j as i64).into());
        let mut exact = big(0.0);
        for (i, y) in y.iter().enumerate() {
            exact += &x * y;
            let index = j - i;
            x = x * big((2 * index) as f64) / (big((2 * index - 1) as f64) * big(alpha));
        }
        let c = bsr::coefficients(&Sgd::new(alpha, beta).unwrap(), j + 1);
        let error = relative_error(c[j], &exact);
        assert!(error < LAST_PLACE, "alpha {alpha}, beta {beta}: {error:e}");
    }
}

#[test]
fn every_workload_coefficient_is_right_to_the_last_place() {
    for (alpha, beta) in PARAMETERS {
        let a = Sgd::new(alpha, beta).unwrap().coefficients(5000);
        let (mut exact, mut power) = (big(0.0), big(1.0));
        for (j, a) in a.iter().enumerate() {
            exact = exact * big(alpha) + &power;
            power *= big(beta);
            if exact.to_f64().value() < 1e-290 {
                break;
            }
            let error = relative_error(*a, &exact);
            assert!(error < LAST_PLACE, "alpha {alpha}, beta {beta}, j = {j}: {error:e}");
        }
    }
}
