//! Confidence bounds for a probability, exactly from the binomial distribution.

use std::f64::consts::FRAC_1_SQRT_2;

/// The normal tail `Q(x) = P(Z > x)`.
pub(super) fn normal_tail(x: f64) -> f64 {
    0.5 * libm::erfc(x * FRAC_1_SQRT_2)
}

/// The `x` with `Q(x) = probability`, by bisection.
pub(super) fn normal_tail_inverse(probability: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    while high - low > 1e-12 {
        let middle = 0.5 * (low + high);
        if normal_tail(middle) > probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// Clopper and Pearson's upper bound: the largest `q` for which at most `successes` in `trials`
/// still have probability `alpha`. The true probability is above it in at most a fraction `alpha`
/// of all experiments.
pub(super) fn upper_bound(successes: u64, trials: u64, alpha: f64) -> f64 {
    if successes >= trials {
        return 1.0;
    }
    let (mut low, mut high) = (successes as f64 / trials as f64, 1.0);
    while high - low > 1e-12 * high {
        let middle = 0.5 * (low + high);
        if at_most(successes, trials, middle) > alpha {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Clopper and Pearson's lower bound, the counterpart of [`upper_bound`].
pub(super) fn lower_bound(successes: u64, trials: u64, alpha: f64) -> f64 {
    1.0 - upper_bound(trials - successes, trials, alpha)
}

/// `P(X <= successes)` for a binomial `X`, with `successes` at or below the mean: term by term from
/// the largest one down, until the terms no longer count.
fn at_most(successes: u64, trials: u64, q: f64) -> f64 {
    let (k, n) = (successes as f64, trials as f64);
    let log_choose = libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
    let mut term = (log_choose + k * q.ln() + (n - k) * (-q).ln_1p()).exp();
    let mut sum = 0.0;
    let mut left = k;
    while term > 1e-17 * sum {
        sum += term;
        if left < 1.0 {
            break;
        }
        term *= left * (1.0 - q) / ((n - left + 1.0) * q);
        left -= 1.0;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_match_scipy() {
        // scipy 1.17: beta.ppf(0.975, k + 1, n - k) and beta.ppf(0.025, k, n - k + 1).
        for (k, n, lower, upper) in SCIPY {
            let (l, u) = (lower_bound(k, n, 0.025), upper_bound(k, n, 0.025));
            assert!((u / upper - 1.0).abs() < 1e-6, "{k} of {n}: {u}, scipy {upper}");
            assert!((l - lower).abs() < 1e-6 * lower + 1e-11, "{k} of {n}: {l}, scipy {lower}");
        }
    }

    const SCIPY: [(u64, u64, f64, f64); 6] = [
        (0, 1000, 0.0, 0.003682083896865671),
        (1, 20, 0.0012650894979498038, 0.24873276277202777),
        (32, 1000000, 2.1888076034296292e-05, 4.517415450414004e-05),
        (500, 1000, 0.46854917297179194, 0.531450827028208),
        (990, 1000000, 0.0009293114754318557, 0.0010536080526214082),
        (999, 1000, 0.9944410757201734, 0.9999746825125088),
    ];

    #[test]
    fn the_tail_and_its_inverse_agree() {
        for x in [-3.0, -0.5, 0.0, 1.0, 4.0, 6.0] {
            assert!((normal_tail_inverse(normal_tail(x)) - x).abs() < 1e-9);
        }
    }
}
