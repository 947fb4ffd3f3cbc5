//! The attack: a linear statistic of everything that was released, and a threshold on it.

use super::interval::normal_tail;

/// Largest `n` for which the covariance of the noise is estimated as well.
pub(super) const ESTIMATED_STEPS: usize = 128;

/// What a statistic looks like in the two worlds, as far as the first part of the trials tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fit {
    pub(super) mean: f64,
    pub(super) std: f64,
}

impl Fit {
    pub(super) fn new(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        Self { mean, std: variance.sqrt() }
    }

    /// `P(value > threshold)` of a normal with this mean and deviation.
    fn above(&self, threshold: f64) -> f64 {
        normal_tail((threshold - self.mean) / self.std.max(f64::MIN_POSITIVE))
    }
}

/// A test: call the world `With` if the statistic is above the threshold, or the other way round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Test {
    pub(super) threshold: f64,
    /// Whether the rare event is a statistic above the threshold (in the world `Without`) or below
    /// it (in the world `With`).
    pub(super) rare_above: bool,
    /// The bound on epsilon that it promises.
    pub(super) promise: f64,
}

impl Test {
    /// The test that promises the best bound with `trials` further trials. Only a choice: whether
    /// the bound holds depends on the trials to come.
    pub(super) fn best(with: Fit, without: Fit, delta: f64, trials: u64) -> Self {
        let reach = 8.0 * with.std.max(without.std);
        let low = with.mean.min(without.mean) - reach;
        let high = with.mean.max(without.mean) + reach;
        let middle = 0.5 * (with.mean + without.mean);
        let mut best = Test { threshold: middle, rare_above: true, promise: f64::NEG_INFINITY };
        let grid = (0..=400).map(|i| low + (high - low) * f64::from(i) / 400.0);
        for threshold in grid.chain([middle]) {
            let (hit, miss) = (with.above(threshold), without.above(threshold));
            for (rare_above, often, rare) in [(true, hit, miss), (false, 1.0 - miss, 1.0 - hit)] {
                let promise = promised_epsilon(often, rare, delta, trials as f64);
                if promise > best.promise {
                    best = Test { threshold, rare_above, promise };
                }
            }
        }
        best
    }

    /// Whether a statistic is the event that the test counts: likely in one world, rare in the
    /// other.
    pub(super) fn counts(&self, statistic: f64) -> bool {
        if self.rare_above { statistic > self.threshold } else { statistic < self.threshold }
    }
}

/// About the bound that expected counts would give, with normal instead of binomial quantiles.
pub(super) fn promised_epsilon(often: f64, rare: f64, delta: f64, trials: f64) -> f64 {
    let z = 2.24;
    let width = |q: f64| z * (q * (1.0 - q) / trials).sqrt() + 0.5 * z * z / trials;
    (((often - width(often)).max(0.0) - delta).max(0.0) / (rare + width(rare))).ln()
}

/// `S^-1 u` for a covariance `S`, by Cholesky. `None` if `S` is not positive even with a small
/// multiple of its mean diagonal added.
///
/// This is the best linear statistic for noise of covariance `S`, whatever the plan says the noise
/// is. A stream whose rows are not independent enough gives itself away here. O(n^3).
pub(super) fn discriminant(mut s: Vec<Vec<f64>>, u: &[f64]) -> Option<Vec<f64>> {
    let n = u.len();
    let ridge = 1e-9 * (0..n).map(|i| s[i][i]).sum::<f64>() / n as f64;
    for j in 0..n {
        let known: f64 = s[j][..j].iter().map(|x| x * x).sum();
        let pivot = s[j][j] + ridge - known;
        if pivot <= 0.0 || !pivot.is_finite() {
            return None;
        }
        let diagonal = pivot.sqrt();
        s[j][j] = diagonal;
        for i in j + 1..n {
            let known: f64 = (0..j).map(|k| s[i][k] * s[j][k]).sum();
            s[i][j] = (s[i][j] - known) / diagonal;
        }
    }
    let mut x = u.to_vec();
    for i in 0..n {
        let known: f64 = (0..i).map(|k| s[i][k] * x[k]).sum();
        x[i] = (x[i] - known) / s[i][i];
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| s[k][i] * x[k]).sum();
        x[i] = (x[i] - known) / s[i][i];
    }
    Some(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_discriminant_solves_the_system() {
        let s = vec![vec![4.0, 1.0, 0.5], vec![1.0, 3.0, 0.2], vec![0.5, 0.2, 2.0]];
        let u = [1.0, -2.0, 0.5];
        let h = discriminant(s.clone(), &u).unwrap();
        for i in 0..3 {
            let product: f64 = (0..3).map(|j| s[i][j] * h[j]).sum();
            assert!((product - u[i]).abs() < 1e-7, "{product}");
        }
    }
}
