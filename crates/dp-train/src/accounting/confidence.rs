//! Confidence: how far a mean of bounded terms can lie below what it estimates.

/// By which relative amount the result is raised: more than the rounding of the terms.
const RAISED: f64 = 1e-9;

/// What the samples say of one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean of the terms: unbiased.
    pub mean: f64,
    /// The standard error of the mean, estimated.
    pub standard_error: f64,
    /// `B`: what no term exceeds.
    pub largest_term: f64,
    /// The upper confidence bound.
    pub upper: f64,
}

/// Sums of terms and of their squares.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moments {
    sum: f64,
    squares: f64,
}

impl Moments {
    pub(super) fn push(&mut self, term: f64) {
        self.sum += term;
        self.squares += term * term;
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, squares: self.squares + other.squares }
    }

    /// The upper bound that fails with this probability: Theorem 4 of Maurer & Pontil (2009).
    pub(super) fn estimate(self, samples: u64, largest_term: f64, failure: f64) -> Estimate {
        let n = samples as f64;
        let mean = self.sum / n;
        let variance = ((self.squares - n * mean * mean) / (n - 1.0)).max(0.0);
        let surprise = (2.0 / failure).ln();
        let spread = (2.0 * variance * surprise / n).sqrt();
        let range = 7.0 * largest_term * surprise / (3.0 * (n - 1.0));
        // A mean that is no number (an infinite bound times nothing) says nothing.
        let upper = (mean + spread + range) * (1.0 + RAISED);
        let upper = if upper.is_nan() { 1.0 } else { upper.min(1.0) };
        Estimate { mean, standard_error: (variance / n).sqrt(), largest_term, upper }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_formula() {
        let mut moments = Moments::default();
        [0.0, 0.5, 1.0, 0.5].into_iter().for_each(|term| moments.push(term));
        let found = moments.estimate(4, 2.0, 0.1);
        let (variance, surprise): (f64, f64) = (0.5 / 3.0, 20_f64.ln());
        let expected = 0.5 + (2.0 * variance * surprise / 4.0).sqrt() + 7.0 * 2.0 * surprise / 9.0;
        assert_eq!((found.mean, found.upper), (0.5, 1.0), "no delta exceeds 1");
        let small = Moments { sum: 0.02, squares: 1.5e-4 }.estimate(4, 0.02, 0.1);
        assert!(expected > 1.0 && small.upper > small.mean + small.standard_error);
        let nothing = Moments { sum: f64::NAN, squares: 0.0 }.estimate(4, 1.0, 0.1);
        assert_eq!(nothing.upper, 1.0);
    }
}
