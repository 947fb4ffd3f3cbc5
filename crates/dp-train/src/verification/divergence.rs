//! The divergence of two Gaussians by its definition.

/// `delta(epsilon)` of a Gaussian release as the integral of `(p - e^epsilon q)_+` with Simpson's
/// rule.
///
/// With `p = N(mu, 1)`, `q = N(0, 1)`, `mu = 1 / multiplier`, the integrand is positive from
/// `epsilon / mu + mu / 2` on; it is summed in the form `p (1 - e^{epsilon - mu x + mu^2 / 2})`,
/// which loses nothing to cancellation.
pub(super) fn integrated_delta(epsilon: f64, multiplier: f64) -> f64 {
    let mu = 1.0 / multiplier;
    let from = epsilon / mu + 0.5 * mu;
    let to = from.max(mu) + 12.0;
    let intervals = 2 * ((to - from) / 2e-3).clamp(1e3, 1e6) as u32;
    let h = (to - from) / f64::from(intervals);
    let integrand = |x: f64| {
        let density = (-0.5 * (x - mu) * (x - mu)).exp() / (2.0 * std::f64::consts::PI).sqrt();
        -density * (epsilon - mu * x + 0.5 * mu * mu).exp_m1()
    };
    let inner: f64 = (1..intervals)
        .map(|i| f64::from(2 + 2 * (i % 2)) * integrand(from + h * f64::from(i)))
        .sum();
    (integrand(from) + inner + integrand(to)) * h / 3.0
}

/// The `epsilon` at which the integral falls to `delta`; `None` if that is beyond 1e6.
pub(super) fn epsilon(multiplier: f64, delta: f64) -> Option<f64> {
    // Not a number is not enough.
    let enough = |epsilon: f64| integrated_delta(epsilon, multiplier) <= delta;
    let (mut low, mut high) = (0.0, 1.0);
    while !enough(high) {
        (low, high) = (high, 2.0 * high);
        if high > 1e6 {
            return None;
        }
    }
    while high - low > 1e-10 * high && high > 1e-12 {
        let middle = 0.5 * (low + high);
        if enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration;

    #[test]
    fn definition_and_closed_form_agree() {
        for (eps, delta) in [(0.01, 1e-12), (0.1, 1e-3), (1.0, 1e-5), (9.0, 1e-5), (100.0, 1e-12)] {
            let s = calibration::multiplier(eps, delta).unwrap();
            let found = epsilon(s, delta).unwrap();
            assert!((found / eps - 1.0).abs() < 1e-7, "({eps}, {delta}): {found}");
        }
    }
}
